"""Several ranks: `--ranks` starts them here by torchrun's launcher; which of them speaks; how they end."""

import os
import sys
from pathlib import Path
from typing import NoReturn

import typer

from vitral.app import session
from vitral.core.errors import UsageError
from vitral.core.launching import EXIT_CODE, launched

_silent = False


def launch_if_several(ranks: int | None) -> None:
    """Run this command again on several ranks, and end with their exit code.

    Raises:
        UsageError: they are started already, or PyTorch cannot connect ranks.
        typer.Exit: they have ended.
    """
    if ranks is None or ranks == 1:
        return
    if launched() or "TORCHELASTIC_RUN_ID" in os.environ:
        raise UsageError(
            "--ranks {ranks}: torchrun or another launcher has started the ranks already; leave it out", ranks=ranks
        )
    from vitral.training.ranks import launch

    raise typer.Exit(launch(ranks, _without_ranks(session.given())))


def _without_ranks(given: list[str]) -> list[str]:
    """The arguments of this command without the option."""
    place = next(n for n, argument in enumerate(given) if argument.split("=")[0] == "--ranks")
    return given[:place] + given[place + (1 if "=" in given[place] else 2) :]


def be_silent() -> None:
    """Another rank has told the user why all of them end."""
    global _silent
    _silent = True


def leave(code: int) -> NoReturn:
    """End the process.

    One of several ranks ends at once: a connection to a rank that is lost would keep it.
    """
    if not launched():
        sys.exit(code)
    if EXIT_CODE in os.environ and not _silent and (code or os.environ.get("RANK") == "0"):
        Path(os.environ[EXIT_CODE]).write_text(str(code), encoding="ascii")
    os._exit(code)
