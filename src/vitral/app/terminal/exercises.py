"""How exercises are shown: which files were written, or the solution."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from vitral.app.options import Digits, Form, Numbers, Option, numbers
from vitral.core.language import _

if TYPE_CHECKING:
    from vitral.app.exercises import WrittenExercise
    from vitral.explanation.examples.example import Example

MOST_LISTED = 10
"""Files that are named one by one."""


@contextmanager
def sheets_listed(**given: Any) -> Iterator[Mapping[str, Any]]:
    """The files of sheets and keys on the screen."""
    yield {"on_written": _list}


def _list(written: "WrittenExercise") -> None:
    from vitral.app.terminal.screen import say

    if len(written.paths) <= MOST_LISTED:
        for path in written.paths:
            say(_("written: {path}", path=path))
    else:
        for folder, n in Counter(path.parent for path in written.paths).items():
            say(_("written: {n:,} files in {folder}", n=n, folder=folder))
    for why in written.missing:
        say(why)


def show_exercise(
    exercise: "Example",
    *,
    kind: str | None = None,
    out: Path | None = None,
    head: Annotated[Numbers, Option(parsed=str, read=numbers, default="all")] = None,
    query: int | None = None,
    key: int | None = None,
    column: int | None = None,
    whole: Annotated[bool, Option("--all")] = False,
    digits: Digits = 3,
    format: Form = "text",
) -> None:
    """The file, or the solution.

    Args:
        head: Heads to show, from 1, as in 1 or 1,2 or all.
        query: Query position to work through.  [default: the middle one; the last with --ending]
        key: Key position to work through.  [default: the most attended]
        column: Feature to work through.  [default: the first]
        whole: Write all rows, columns and terms of sums.  [default: those that matter most]
        digits: Digits after the decimal point.
        format: Form of the walkthrough.
    """
    from vitral.app.facade.explain import choice_of
    from vitral.app.terminal.screen import say
    from vitral.app.terminal.views import show_walkthrough
    from vitral.explanation import walk_example

    file = exercise.path
    if file is not None:
        say(_("written: {path}", path=file))
        say(_("fill in the question marks, then run: vitral check {path}", path=file))
    if (file is None and (kind is None or out is None)) or (file is not None and out is not None):
        choice = choice_of(head, query, key, column, first=1)
        show_walkthrough(walk_example(exercise, choice), whole=whole, digits=digits, format=format, out=out)
