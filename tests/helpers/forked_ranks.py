"""Several ranks without a launcher: children of this process, in which PyTorch is loaded already."""

import gc
import json
import os
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import torch.distributed as dist

from vitral.core.errors import UsageError, VitralError
from vitral.training.joining import together
from vitral.training.ranks import require_ranks

ENDED = "ended"
"""Prefix of the files in which each rank that failed leaves its message, its exit code and whether it speaks."""
PATIENCE = 900.0
"""Seconds after which ranks are taken for some that would never end."""


def can_connect() -> bool:
    """Whether this PyTorch can connect ranks."""
    try:
        require_ranks()
    except UsageError:
        return False
    return True


class Forked:
    """Ranks that do the same work.

    Attributes:
        children: their processes, by rank.
    """

    def __init__(
        self,
        size: int,
        work: Callable[[], object],
        folder: Path,
        local: int | None = None,
        /,
        *,
        before: "Forked | None" = None,
        **environment: str,
    ) -> None:
        """Start them.

        Args:
            size: number of ranks.
            work: what each does inside `together`.
            folder: for the files about failures.
            local: number of those of one machine; None: all.
            before: ranks that this launcher starts anew; None: it starts its first.
            environment: further variables.
        """
        self._folder = folder
        for left in folder.glob(f"{ENDED}-*"):
            left.unlink()
        self._store = before._store if before is not None else _served()
        shared = {
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(local or size),
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": str(self._store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            **environment,
        }
        ranks = ({"RANK": str(rank), "LOCAL_RANK": str(rank % (local or size))} for rank in range(size))
        # The store's thread is idle until all are forked: a child would wait for ever for a lock that it holds.
        self._gate = os.pipe()
        self.children = [self._forked(work, shared | rank) for rank in ranks]
        for end in self._gate:
            os.close(end)

    def is_there(self, seconds: float, rank: int = 0) -> bool:
        """Whether a rank is still there after so many seconds at most."""
        descriptor = os.pidfd_open(self.children[rank])
        try:
            return not select.select([descriptor], [], [], seconds)[0]
        finally:
            os.close(descriptor)

    def signal(self, rank: int, number: int) -> None:
        """Send a signal to a rank."""
        os.kill(self.children[rank], number)

    def wait(self) -> list[int]:
        """Wait until all have ended, and kill what goes on for minutes; the exit codes, negative for signals."""
        until = time.monotonic() + PATIENCE
        for rank in range(len(self.children)):
            if self.is_there(max(0.0, until - time.monotonic()), rank):
                self.signal(rank, signal.SIGKILL)
        return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in self.children]

    def said(self) -> list[tuple[str, int]]:
        """What the ranks that speak to the user say, with their exit codes."""
        found = [json.loads(file.read_bytes()) for file in sorted(self._folder.glob(f"{ENDED}-*"))]
        return [(one["line"], one["code"]) for one in found if not one["is_said"]]

    def _forked(self, work: Callable[[], object], environment: dict[str, str]) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which the child has no use of
            child = os.fork()
        if child:
            return child
        code = 70
        gc.freeze()  # else a store of an earlier test, freed here, would wait for a thread that only the parent has
        try:
            os.environ |= environment
            begin, held = self._gate
            os.close(held)
            os.read(begin, 1)  # returns when no process holds the other end any more
            with together():
                work()
            code = 0
        except VitralError as error:
            code = error.exit_code
            about = {"line": str(error), "code": code, "is_said": getattr(error, "is_said", False)}
            (self._folder / f"{ENDED}-{environment['RANK']}").write_text(json.dumps(about), encoding="utf-8")
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)


def _served() -> dist.TCPStore:  # pyright: ignore[reportPrivateImportUsage]
    return dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)  # pyright: ignore
