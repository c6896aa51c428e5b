"""The option --parts: files of the user's that register own parts, imported before the command begins."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from vitral.cli.options import with_option

PartsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--parts",
        metavar="FILE.py",
        envvar="VITRAL_PARTS",
        help="Python file that registers parts of your own, which is run (docs/own-parts.md); repeatable.",
    ),
]


def with_parts(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the option --parts."""
    return with_option(command, "parts", PartsOption, _imported)


def _imported(parts: list[Path] | None) -> None:
    if parts:
        from vitral.core.parts import import_parts

        for path in parts:
            import_parts(path)
