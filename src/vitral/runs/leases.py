"""Leases: which worker does a job, where several machines see one folder and nothing locks it.

A job has a folder of its own, its room:

    claim-000002.json   who claimed it, under its fencing number; the number grows with each claim
    beat-000002.json    rewritten every `RENEW` seconds as long as the worker lives, with what it tells of its work
    end-000002.json     how the claim ended, where its worker could say so
    run-000002/         what is made under the claim; nobody else ever writes there

A claim is made by creating its file, which the file system grants to one process only. It is lost once a watcher has
seen no change of its beat for `SILENCE` seconds by the watcher's own monotonic clock; two machines' clocks are never
compared. A worker of the same machine that has ended is known to have ended at once.

Before anything is published, the worker claims the next number for it. Whoever slept while another one claimed the job
fails there. The rest, a rename, may be done by anybody, and happens once.
"""

import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from vitral.core.errors import UsageError, VitralError
from vitral.core.files import as_json, storage
from vitral.core.guarded import GuardedFolder
from vitral.core.language import _
from vitral.core.seals import json_object

RENEW = 10.0
"""Seconds between two beats of a worker."""
SILENCE = 12 * RENEW
"""Seconds without a new beat after which a claim is lost; a network's file system may show a change a minute late."""
CLAIM, BEAT, END, RUN = "claim", "beat", "end", "run"
DONE, RELEASED, FAILED = "done", "released", "failed"
"""How a claim ended: its work is done; its worker stopped; it crashed."""
MOST_BYTES = 1 << 16
BEAT_BYTES = 512
"""Bytes of a beat, always as many: it is written in place, where every machine looks for it."""


class LeaseLost(VitralError, RuntimeError):
    """Another worker has claimed the job."""

    exit_code = 4


@cache
def _token(process: int) -> str:
    """A number of this process, which no other has."""
    return secrets.token_hex(8)


@dataclass(frozen=True)
class Owner:
    """A worker.

    Attributes:
        host: the name of its machine, for people.
        process: its number.
        place: of the kernel and of the numbering of its processes; None where the system does not tell.
        started: when the process began, by the kernel's clock, so that a number used again is another process.
        token: drawn for the process.
    """

    host: str
    process: int
    place: str | None
    started: str | None
    token: str

    @classmethod
    def me(cls) -> "Owner":
        """This process."""
        number = os.getpid()
        return cls(platform.node(), number, _place(), _started(number), _token(number))

    @classmethod
    def parse(cls, plain: Mapping[str, Any]) -> "Owner":
        """From plain data.

        Raises:
            ValueError: it is not one.
        """
        found = {name: plain.get(name) for name in ("host", "process", "place", "started", "token")}
        texts = [found["host"], found["token"], found["place"] or "", found["started"] or ""]
        if type(found["process"]) is not int or not all(isinstance(one, str) for one in texts):
            raise ValueError(_("it names no worker"))
        return cls(**found)  # pyright: ignore[reportArgumentType]

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        return dict(vars(self))

    def has_ended(self) -> bool:
        """Whether it is known that this process has ended; False where that cannot be known from here."""
        if self.place is None or self.place != _place() or self.started is None:
            return False
        started = _started(self.process)
        return started != self.started and not (started is None and _is_hidden(self.process))

    def lives_here(self) -> bool:
        """Whether it is known that this process lives, on this machine."""
        return self.place is not None and self.place == _place() and not self.has_ended()

    def __str__(self) -> str:
        """In words."""
        return _("process {process} on {host!a}", process=str(self.process), host=self.host[:60])


def _place() -> str | None:
    """What tells this kernel, and its numbering of processes, from all others."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except (OSError, ValueError):
        return None


def _started(process: int) -> str | None:
    """When a process began; None if there is none, or it has ended and waits for its parent."""
    try:
        fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X", b"x") else fields[19].decode("ascii")


def _is_hidden(process: int) -> bool:
    """Whether a process of another user lives, of which the system tells nothing more (`hidepid`)."""
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        pass
    return False


@dataclass(frozen=True)
class Claim:
    """A claim, as its file says.

    Attributes:
        number: the fencing number.
        owner: who claimed; None if the file is damaged.
        publishes: the number of the claim whose work is finished, and may be given its place by anybody.
    """

    number: int
    owner: Owner | None
    publishes: int | None = None


class Room:
    """The folder of one job.

    Attributes:
        folder: the door to it.
    """

    def __init__(self, folder: GuardedFolder) -> None:
        """Refer to a folder, which need not exist."""
        self.folder = folder

    def numbers(self, kind: str) -> list[int]:
        """The numbers of all claims, ends, or folders of work, in increasing order."""
        begin, found = f"{kind}-", list[int]()
        for name in self.folder.names():
            digits = name.removeprefix(begin).removesuffix(".json")
            if name.startswith(begin) and digits.isascii() and digits.isdigit() and len(digits) <= 18:
                found.append(int(digits))
        return sorted(found)

    def newest(self) -> Claim | None:
        """The newest claim; None if there is none."""
        numbers = self.numbers(CLAIM)
        return self.claim(numbers[-1]) if numbers else None

    def claim(self, number: int) -> Claim:
        """The claim of a number; without an owner where its file is damaged."""
        try:
            plain = self._plain(CLAIM, number)
            publishes = plain.get("publishes")
            return Claim(number, Owner.parse(plain), publishes if type(publishes) is int else None)
        except (OSError, ValueError):
            return Claim(number, None)

    def end(self, number: int) -> Mapping[str, Any] | None:
        """How a claim ended; None if its worker did not say."""
        try:
            return self._plain(END, number)
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            return {"state": RELEASED}

    def beat(self, number: int) -> bytes:
        """The newest beat of a claim, perhaps half written: any change of it is a sign of life."""
        try:
            return self.folder.read(f"{BEAT}-{number:06}.json", MOST_BYTES)
        except (OSError, ValueError):
            return b""

    def told(self, number: int) -> Mapping[str, Any]:
        """What the worker of a claim tells of its work; empty where its beat is half written."""
        try:
            return json_object(self.beat(number).strip())
        except ValueError:
            return {}

    def failures(self) -> list[str]:
        """The reasons of the claims that crashed, the oldest first."""
        ends = [self.end(number) or {} for number in self.numbers(END)]
        return [str(end.get("reason", "")) for end in ends if end.get("state") == FAILED]

    def forgive(self) -> None:
        """Let a job that crashed too often be tried again."""
        for number in self.numbers(END):
            if (self.end(number) or {}).get("state") == FAILED:
                self.say_end(number, RELEASED)

    def say_end(self, number: int, state: str, reason: str | None = None) -> None:
        """Write how a claim ended."""
        self.folder.write(f"{END}-{number:06}.json", as_json({"state": state, "reason": reason}))

    def create(self, number: int, publishes: int | None = None) -> bool:
        """Claim a number; return whether nobody else has it."""
        more = {} if publishes is None else {"publishes": publishes}
        return self.folder.create(f"{CLAIM}-{number:06}.json", as_json({**Owner.me().plain(), **more}))

    def _plain(self, kind: str, number: int) -> dict[str, Any]:
        return json_object(self.folder.read(f"{kind}-{number:06}.json", MOST_BYTES))


class Watcher:
    """One worker's view of the claims of others.

    Attributes:
        clock: seconds of a clock that never goes back, this machine's own.
        renew: seconds between two beats of this worker.
        silence: seconds without a change after which a claim is lost.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, renew: float = RENEW, silence: float = SILENCE
    ) -> None:
        """Begin to watch."""
        self.clock, self.renew, self.silence = clock, renew, silence
        self._seen: dict[tuple[Path, int], tuple[bytes, float]] = {}

    def is_free(self, room: Room) -> bool:
        """Whether no living worker has the job."""
        return self._is_free(room, room.newest())

    def _is_free(self, room: Room, newest: Claim | None) -> bool:
        if newest is None or room.end(newest.number) is not None:
            return True
        owner = newest.owner
        if owner is not None and (owner.has_ended() or _is_forgotten(owner, room, newest.number)):
            return True
        key, beat, now = (room.folder.path, newest.number), room.beat(newest.number), self.clock()
        if key not in self._seen or self._seen[key][0] != beat:
            self._seen[key] = beat, now
        return now - self._seen[key][1] > self.silence

    def claim(self, room: Room) -> "Lease | None":
        """Claim a job that is free; None if another worker has it, or was faster.

        Raises:
            StorageError: the folder cannot be written.
        """
        newest = room.newest()
        if not self._is_free(room, newest):
            return None
        room.folder.make()
        # The number after the one that was looked at: whoever claims meanwhile has it, and not the next one.
        number = 1 if newest is None else newest.number + 1
        key = (str(room.folder.path), number)
        _held.append(key)
        is_ours = False
        try:
            is_ours = room.create(number)
        finally:
            if not is_ours:
                _held.remove(key)
        return Lease(room, number, self.renew) if is_ours else None


_held = list[tuple[str, int]]()
"""The claims that this process holds, or tries to get; twice where two of its threads try at once."""


def _is_forgotten(owner: Owner, room: Room, number: int) -> bool:
    """Whether a claim is this process's own, and it has given it up without being able to say so."""
    return owner.token == _token(os.getpid()) and (str(room.folder.path), number) not in _held


@dataclass
class Lease:
    """A claim that this process holds.

    Attributes:
        room: the job's folder.
        number: the fencing number.
        renew: seconds between two beats.
        told: what is told with the next beat.
        is_lost: whether a newer claim was seen by a beat.
        is_sealed: whether this claim has claimed the next number too, for publishing.
        outcome: how the claim ends, unless an error ends it.
        about: what is said with it.
    """

    room: Room
    number: int
    renew: float = RENEW
    told: dict[str, Any] = field(default_factory=dict)
    is_lost: bool = False
    is_sealed: bool = False
    outcome: str = DONE
    about: str | None = None

    @property
    def work(self) -> str:
        """The name of the folder of its work."""
        return f"{RUN}-{self.number:06}"

    @contextmanager
    def kept(self, is_crash: Callable[[Exception], bool] = lambda error: True) -> Generator[None]:
        """Beat inside the block, in a thread; at its end the claim is given up, and how it ended is written.

        Args:
            is_crash: whether an error counts as a crash of the job; errors for users never do.
        """
        key, over = (str(self.room.folder.path), self.number), threading.Event()
        beats = threading.Thread(target=self._beats, args=(over,), name="lease", daemon=True)
        beats.start()
        state, reason = RELEASED, None
        try:
            yield
            state, reason = self.outcome, self.about
        except VitralError:
            raise
        except Exception as error:
            if is_crash(error):
                state, reason = FAILED, f"{type(error).__name__}: {error}"[:300]
            raise
        finally:
            over.set()
            beats.join()
            with suppress(ValueError):
                _held.remove(key)
            with suppress(VitralError, OSError):
                self.room.say_end(self.number, state, reason)

    def require(self) -> None:
        """Refuse to go on with a claim that is lost.

        Raises:
            LeaseLost: another worker has claimed the job.
        """
        if self._is_behind():
            raise self.lost()

    def _is_behind(self) -> bool:
        numbers = self.room.numbers(CLAIM)
        return not numbers or numbers[-1] > self.number + self.is_sealed

    def lost(self) -> LeaseLost:
        """The error of a claim that is lost."""
        newest = self.room.newest()
        who = _("another worker") if newest is None or newest.owner is None else str(newest.owner)
        return LeaseLost("{path}: {who} has claimed it meanwhile", path=self.room.folder.path, who=who)

    def seal(self) -> None:
        """Claim the next number, for publishing: the work is finished, and whoever comes may give it its place.

        Raises:
            LeaseLost: another worker has claimed the job.
            StorageError: the folder cannot be written.
        """
        self.is_sealed = self.room.create(self.number + 1, publishes=self.number)
        if not self.is_sealed:
            raise self.lost()

    def void(self) -> None:
        """Have done again what newer claims have done, because this one may have written over it."""
        newest = self.room.newest()
        number = self.number + 1 if newest is None else newest.number + 1
        if self.room.create(number):
            self.room.say_end(number, RELEASED)

    def beat(self, count: int) -> None:
        """Show that the worker lives, and look whether the claim is lost.

        Raises:
            OSError: it cannot be shown.
        """
        line = json.dumps({"beat": count, **self.told}).encode()
        with storage(self.room.folder.path), self.room.folder.held(f"{BEAT}-{self.number:06}.json") as file:
            os.lseek(file, 0, os.SEEK_SET)
            os.write(file, line[: BEAT_BYTES - 1].ljust(BEAT_BYTES - 1) + b"\n")
        self.is_lost = self._is_behind()

    def _beats(self, over: threading.Event) -> None:
        count = 0
        while True:
            with suppress(VitralError, OSError):  # silence tells the others, and the claim is checked before the end
                self.beat(count)
            count += 1
            if over.wait(self.renew):
                return


def living(room: Room) -> Owner | None:
    """The worker of a job who is known to live on this machine, and is not this process; None if there is none."""
    newest = room.newest()
    if newest is None or newest.owner is None or room.end(newest.number) is not None:
        return None
    owner = newest.owner
    return owner if owner.token != _token(os.getpid()) and owner.lives_here() else None


def require_nobody(room: Room, what: Path) -> None:
    """Refuse a change while a worker of this machine is at a job.

    Raises:
        UsageError: names the worker.
    """
    owner = living(room)
    if owner is not None:
        raise UsageError("{what}: {owner} is working on it; wait for it, or stop it", what=what, owner=owner)
