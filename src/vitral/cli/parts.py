"""The option --parts: files of the user's that register own parts, imported before the command begins."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

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

    @functools.wraps(command)
    def called(*given: Any, parts: list[Path] | None = None, **options: Any) -> None:
        if parts:
            from vitral.core.parts import import_parts

            for path in parts:
                import_parts(path)
        command(*given, **options)

    signature = inspect.signature(command)
    option = inspect.Parameter("parts", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=PartsOption)
    called.__signature__ = signature.replace(parameters=[*signature.parameters.values(), option])  # pyright: ignore
    called.__annotations__ = {**command.__annotations__, "parts": PartsOption}
    return called
