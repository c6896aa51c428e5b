"""Several ranks without a launcher: children of this process, in which PyTorch is loaded already."""

import gc
import json
import os
import signal
import socket
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

from vitral.core.errors import UsageError, VitralError
from vitral.training.ranks import joined, require_ranks

PATIENCE = 120.0
"""Seconds after which ranks are taken for some that would never end."""


def can_connect() -> bool:
    """Whether this PyTorch can connect ranks."""
    try:
        require_ranks()
    except UsageError:
        return False
    return True


class Forked:
    """Ranks that do the same work; each that fails leaves in a folder its message, and whether it speaks.

    Attributes:
        children: their processes, by rank.
    """

    def __init__(self, size: int, work: Callable[[], object], folder: Path, **environment: str) -> None:
        """Start them, with further variables of the environment."""
        self._folder = folder
        for left in folder.glob("ended-*"):
            left.unlink()
        with socket.socket() as found:
            found.bind(("localhost", 0))
            port = found.getsockname()[1]
        shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "localhost", "MASTER_PORT": str(port), **environment}
        self.children = [self._forked(work, shared | {"RANK": str(rank)}) for rank in range(size)]

    def signal(self, rank: int, number: int) -> None:
        """Send a signal to a rank."""
        os.kill(self.children[rank], number)

    def wait(self) -> list[int]:
        """Wait until all have ended, and kill what goes on for minutes; the exit codes, negative for signals."""
        until, codes = time.monotonic() + PATIENCE, dict[int, int]()
        while len(codes) < len(self.children):
            for child in self.children:
                ended, status = os.waitpid(child, os.WNOHANG) if child not in codes else (0, 0)
                if ended:
                    codes[child] = os.waitstatus_to_exitcode(status)
                elif child not in codes and time.monotonic() > until:
                    os.kill(child, signal.SIGKILL)
            time.sleep(0.02)
        return [codes[child] for child in self.children]

    def said(self) -> list[str]:
        """What the ranks that speak to the user say."""
        found = [json.loads(file.read_bytes()) for file in sorted(self._folder.glob("ended-*"))]
        return [line for line, is_said in found if not is_said]

    def _forked(self, work: Callable[[], object], environment: dict[str, str]) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which the child has no use of
            child = os.fork()
        if child:
            return child
        code = 70
        gc.freeze()
        try:
            os.environ |= environment
            with joined():
                work()
            code = 0
        except VitralError as error:
            code = error.exit_code
            about = [str(error), getattr(error, "is_said", False)]
            (self._folder / f"ended-{environment['RANK']}").write_text(json.dumps(about), encoding="utf-8")
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
