"""The heartbeats of several ranks, and what they say of failures, in a store that all of them see."""

import json
import math
import os
import socket
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from vitral.training.meeting import Store, launcher_gone
from vitral.training.team import RankLost

BEAT = 1.0
"""Seconds between heartbeats, at most."""
STANDSTILL = "VITRAL_STANDSTILL"
"""Variable of the environment: seconds in which the main thread of a rank must come forward."""
GOODBYE = 5.0
"""Seconds in which a rank that lost its connection looks for the reason."""


class Heart:
    """The heart of one rank.

    It beats in a thread, so that no work, however long, keeps it from beating; a process that is stopped or has ended
    does not beat. The first rank that finds another one lost says so, and all of them go by that.

    The same thread watches the main one: where that neither waits for other ranks nor comes forward for too long, the
    rank is lost, and its process ends. Time is counted in heartbeats, so a process that was stopped loses none.

    Attributes:
        silence: seconds without a heartbeat after which a rank is lost.
        patience: seconds between two looks at the others.
        is_free: whether the main thread may take as long as it likes, since no training goes on.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        stores: Sequence[Store],
        silence: float,
        standstill: float = math.inf,
        *,
        is_first: bool,
    ) -> None:
        """Begin to beat.

        Args:
            rank: this rank.
            size: number of ranks.
            stores: two connections to the store, since a thread that waits keeps the others waiting.
            silence: seconds without a heartbeat after which a rank is lost.
            standstill: seconds after which a rank is lost whose main thread stands still in a training.
            is_first: whether this rank tells the user if the store is gone.
        """
        self._rank, self._is_first, self._others = rank, is_first, [other for other in range(size) if other != rank]
        self._store, beating = stores
        self.silence, self.patience = silence, min(5.0, silence / 4)
        self._standstill, self._pause = standstill, min(BEAT, silence / 4)
        self.is_free, self._waits, self._moves = True, False, 0
        self._seen: dict[int, tuple[int, float]] = {}
        self._looked = -math.inf
        self._stopped = threading.Event()
        self._store.set(f"place/{rank}", f"{socket.gethostname()}, {os.getpid()}")
        threading.Thread(target=self._beat, args=(beating,), name="heart", daemon=True).start()

    def beats(self, rank: int) -> int:
        """How often the heart of a rank has beaten."""
        return self._store.add(f"beat/{rank}", 0)

    def stop(self) -> None:
        """Beat no longer."""
        self._stopped.set()

    def moved(self) -> None:
        """The main thread has come forward."""
        self._moves += 1

    @contextmanager
    def waiting(self) -> Generator[None]:
        """The main thread waits for other ranks inside the block."""
        self._waits = True
        try:
            yield
        finally:
            self._waits = False
            self.moved()

    def silent(self) -> RankLost | None:
        """The first rank that has said that it failed, or that has not beaten for too long; None: no rank."""
        try:
            told = self._told()
            if told is None:
                told = next((self._mute(one) for one, age in self._ages().items() if age > self.silence), None)
            return None if told is None else self._agreed(told)
        except RuntimeError:
            return launcher_gone()

    def reason(self, error: Exception) -> RankLost:
        """Why a connection broke: the failure that a rank tells within some seconds, or the rank that has ended."""
        until = time.monotonic() + GOODBYE
        self._seen.clear()
        try:
            while (told := self._told()) is None and time.monotonic() < until:
                self._ages()
                time.sleep(BEAT / 10)
            if told is None:
                age, rank = max((age, rank) for rank, age in self._ages().items())
                said = {"rank": None, "line": str(error).splitlines()[0][:200], "code": 4}
                told = self._mute(rank) if age > GOODBYE / 2 else said
            return self._agreed(told)
        except RuntimeError:
            return launcher_gone()

    def tell(self, line: str, code: int) -> None:
        """Say why this rank failed."""
        with suppress(RuntimeError):
            self._store.set(f"failed/{self._rank}", json.dumps({"rank": self._rank, "line": line, "code": code}))

    def speaks(self, lost: int | None, seconds: float) -> bool:
        """Whether this rank tells the user why all end: rank 0, or another one if rank 0 is gone.

        Args:
            lost: the lost rank; None if it is not known.
            seconds: after which rank 0 is taken for gone if it tells nothing.
        """
        until = time.monotonic() + (seconds if self._rank else 0.0)
        try:
            is_mute = lost == 0 and not self._store.check(["failed/0"])
            while not is_mute and time.monotonic() < until and not self._store.check(["speaker"]):
                time.sleep(BEAT / 10)
            return self._store.compare_set("speaker", "", str(self._rank)) == str(self._rank).encode()
        except RuntimeError:
            return self._is_first

    def _told(self) -> Mapping[str, Any] | None:
        """What is known to all, or what a rank says of its own failure."""
        for key in ("lost", *(f"failed/{other}" for other in self._others)):
            if self._store.check([key]):
                return json.loads(self._store.get(key))
        return None

    def _agreed(self, told: Mapping[str, Any]) -> RankLost:
        known = json.loads(self._store.compare_set("lost", "", json.dumps(told)))
        rank, line = known["rank"], known["line"]
        if rank is None:
            return RankLost("the connection between the ranks broke ({error})", error=line)
        if line is not None:
            return failed(rank, line, known["code"])
        where, _comma, process = self._store.get(f"place/{rank}").decode().rpartition(", ")
        places = {"rank": rank, "where": where, "process": process}
        if (seconds := known["still"]) is not None:
            return RankLost(
                "rank {rank} ({where}, process {process}) has stood still for {seconds:g} s in the middle of the "
                "training; {variable} in the environment allows another number of seconds",
                **places,
                seconds=seconds,
                variable=STANDSTILL,
            )
        return RankLost("rank {rank} ({where}, process {process}) does not answer any more", **places)

    @staticmethod
    def _mute(rank: int, still: float | None = None) -> Mapping[str, Any]:
        return {"rank": rank, "line": None, "code": 4, "still": still}

    def _ages(self) -> dict[int, float]:
        """Seconds in which the heart of each other rank was not seen to beat."""
        now = time.monotonic()
        if now - self._looked > 2 * self.patience:
            self._seen.clear()  # this rank has not waited meanwhile, or was stopped with the others
        self._looked = now
        for rank in self._others:
            count = self.beats(rank)
            if self._seen.get(rank, (-1, 0.0))[0] != count:
                self._seen[rank] = count, now
        return {rank: now - since for rank, (_count, since) in self._seen.items()}

    def _beat(self, store: Store) -> None:
        still, moves = 0, self._moves
        with suppress(RuntimeError):  # the launcher has ended; the connections tell why
            while not self._stopped.wait(self._pause):
                store.add(f"beat/{self._rank}", 1)
                is_still = not self.is_free and not self._waits and self._moves == moves
                still, moves = still + 1 if is_still else 0, self._moves
                if still * self._pause >= self._standstill:
                    store.compare_set("lost", "", json.dumps(self._mute(self._rank, self._standstill)))
                    os._exit(RankLost.exit_code)  # what the main thread waits for may never come


def failed(rank: int, line: str, code: int) -> RankLost:
    """A rank that said why it failed."""
    error = RankLost("rank {rank}: {line}", rank=rank, line=line)
    error.exit_code = code
    return error
