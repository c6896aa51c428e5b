"""vitral exercise: small computations to solve by hand, as sheets with their keys."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vitral.cli.completion import complete_kind
from vitral.cli.options import (
    AllOption,
    ColumnOption,
    DigitsOption,
    FileOption,
    Form,
    FormOption,
    KeyOption,
    QueryOption,
    choice_of,
)
from vitral.core.errors import UsageError
from vitral.core.language import _

if TYPE_CHECKING:
    from vitral.explanation import Exercise

MOST_EXERCISES = 1000
MOST_LISTED = 10
"""Files that are named one by one."""


FileArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE.toml",
        help="File to write the exercise to, with question marks to fill in.  [default: show the solution]",
    ),
]
CountOption = Annotated[
    int | None, typer.Option(help="Number of exercises, one for each student; the seeds count up.  [default: 1]")
]
PracticeOption = Annotated[
    bool, typer.Option("--practice", help="Also write pages that judge each number as it is filled in.")
]


def exercise(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help="attention, multi-head, block, positions, choice, loss, cross-attention; left out: attention, any "
            "numbers.",
            autocompletion=complete_kind,
        ),
    ] = None,
    positions: Annotated[
        int | None, typer.Option(help="Number of tokens, 1 to 8.  [default: 3; block, cross-attention: 2]")
    ] = None,
    d_model: Annotated[int | None, typer.Option(help="Width of the model, 1 to 8.  [default: 4]")] = None,
    num_heads: Annotated[
        int | None, typer.Option(help="Number of heads; must divide the width.  [default: 1; multi-head: 2]")
    ] = None,
    mask: Annotated[str | None, typer.Option(help="causal or bidirectional.  [default: causal]")] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            help="Scale of the scores: none, sqrt (1/√d_k) or linear (1/d_k).  [default: sqrt; multi-head: linear]"
        ),
    ] = None,
    seed: Annotated[str, typer.Option(help="Seed of the numbers, as 7 or 1,2,3; another is another exercise.")] = "1",
    head: Annotated[str, typer.Option(help="Heads to show, from 1, as in 1 or 1,2 or all.")] = "all",
    query: QueryOption = None,
    key: KeyOption = None,
    column: ColumnOption = None,
    all: AllOption = False,
    digits: DigitsOption = 3,
    format: FormOption = Form.text,
    out: FileOption = None,
    file: FileArgument = None,
    count: CountOption = None,
    practice: PracticeOption = False,
) -> None:
    """Make small exercises to solve by hand, with their keys.

    With KIND and --out FOLDER each exercise is written as a sheet in every form (.toml, .tex, .html to print, .pdf,
    .xlsx), and its key into a folder inside it; with --out FILE only in the form of the ending.

    With FILE.toml the exercise is written there: fill it in, then run vitral check FILE.toml. Without a file the
    solution is shown step by step; the same kind, sizes and seed give the same numbers.
    """
    from vitral.cli.screen import say
    from vitral.cli.walkthrough import write_walkthrough
    from vitral.explanation import exercise_of, walk_example
    from vitral.lab.examples import make_exercise

    kind, file = _kind_and_file(kind, file, out)
    choice = choice_of(head, query, key, column, first=1)
    sizes = {"positions": positions, "d_model": d_model, "num_heads": num_heads, "mask": mask, "scale": scale}
    exercises = [exercise_of(kind, **sizes, seed=each) for each in _seeds(str(seed), count)]
    if kind is not None and out is not None and file is None:
        _write(exercises, out, practice=practice)
        return
    if practice:
        raise UsageError("exercise: --practice goes with KIND and --out FOLDER")
    if len(exercises) > 1:
        raise UsageError("exercise: several exercises need KIND and --out FOLDER")
    made = make_exercise(exercises[0], file)
    if file is not None:
        say(_("written: {path}", path=file))
        say(_("fill in the question marks, then run: vitral check {path}", path=file))
    if file is None or out is not None:
        write_walkthrough(walk_example(made, choice), format, digits, out, whole=all)


def _kind_and_file(kind: str | None, file: Path | None, out: Path | None) -> tuple[str | None, Path | None]:
    """The first argument is a kind, or the file where the kind is left out.

    Raises:
        UsageError: two arguments of which the first is no kind, or a word that is nearly one.
    """
    from vitral.core.config import closest
    from vitral.explanation import KINDS

    if kind is None or kind in KINDS:
        return kind, file
    hint = closest(kind, KINDS)
    is_word = "." not in kind and "/" not in kind
    if file is not None or (is_word and (hint or out is not None)):
        raise UsageError(
            "exercise: no kind {kind!r}; {hint}",
            kind=kind,
            hint=hint or _("the kinds are {kinds}", kinds=", ".join(KINDS)),
        )
    return None, Path(kind)


def _seeds(given: str, count: int | None) -> list[int]:
    """The seeds, without repetition.

    Raises:
        UsageError: not whole numbers, or several seeds and a count.
    """
    try:
        seeds = list(dict.fromkeys(int(part) for part in given.split(",")))
    except ValueError:
        raise UsageError("--seed {given}: expected whole numbers, as in 7 or 1,2,3", given=given) from None
    if count is None:
        return seeds
    if len(seeds) > 1:
        raise UsageError("exercise: give several seeds or --count, not both")
    if not 1 <= count <= MOST_EXERCISES:
        raise UsageError("--count {count}: expected 1 to {most}", count=count, most=MOST_EXERCISES)
    return list(range(seeds[0], seeds[0] + count))


def _write(exercises: "list[Exercise]", out: Path, *, practice: bool) -> None:
    """Write sheets and keys, and say where.

    Raises:
        UsageError: several exercises for one file, an ending that is no form, or a file exists.
        StorageError: writing to disk failed.
    """
    from vitral.cli.screen import say
    from vitral.explanation.exercises.sheets import ExerciseSheet
    from vitral.lab.exercises import write_sheets

    written = write_sheets([ExerciseSheet(each) for each in exercises], out, with_practice=practice)
    if len(written.paths) <= MOST_LISTED:
        for path in written.paths:
            say(_("written: {path}", path=path))
    else:
        for folder, n in Counter(path.parent for path in written.paths).items():
            say(_("written: {n:,} files in {folder}", n=n, folder=folder))
    for why in written.missing:
        say(why)
