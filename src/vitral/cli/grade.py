"""vitral grade: the sheets of a class checked against a key, with points."""

import enum
import sys
from pathlib import Path
from typing import Annotated

import typer

from vitral.cli.complaints import complain
from vitral.cli.completion import complete_example
from vitral.core.errors import UsageError
from vitral.core.language import _


class GradeFormat(enum.StrEnum):
    """The form of printed grades."""

    text = "text"
    json = "json"
    csv = "csv"
    html = "html"
    markdown = "markdown"


def grade(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder with a file for each student.")],
    key: Annotated[
        list[str],
        typer.Option(
            help="The key, or the exercise itself; a folder of keys, or the option repeated, for several exercises.",
            autocompletion=complete_example,
        ),
    ],
    rule: Annotated[
        Path | None, typer.Option(help="TOML file with points and credit.  [default: 1 point for each step]")
    ] = None,
    points: Annotated[str | None, typer.Option(help="Points of steps, as in weights=3,output=2.")] = None,
    total: Annotated[
        float | None, typer.Option(help="Points of a sheet without fault.  [default: the sum of the steps]")
    ] = None,
    pseudonyms: Annotated[
        Path | None,
        typer.Option(help="CSV file of pseudonyms, shown instead of file names; made if there is none."),
    ] = None,
    marked: Annotated[Path | None, typer.Option(help="Folder for a page of each sheet with its marks.")] = None,
    out: Annotated[Path | None, typer.Option(help="File for the page of the class (.html).")] = None,
    format: Annotated[
        GradeFormat, typer.Option("--format", help="Output for people (text, html, markdown) or programs (json, csv).")
    ] = GradeFormat.text,
) -> None:
    """Grade the sheets of a class.

    Every number is checked with the given numbers of the key. A step has one point, shared among its numbers; what
    follows from an earlier wrong number has full credit.

    Exit code 0 if every file could be graded, 2 if some could not; the others are graded all the same.
    """
    from vitral.cli.screen import print_data, print_json, say
    from vitral.lab import grade as grade_class
    from vitral.lab.grading import FailedSheet

    graded = grade_class(
        folder,
        list(key),
        rule=rule,
        points=_points(points),
        total=total,
        pseudonyms=pseudonyms,
        out=out,
        marked=marked,
    )
    if format is GradeFormat.json:
        print_json(graded.plain())
    elif format is GradeFormat.csv:
        sys.stdout.write(graded.data().csv())
    elif format is GradeFormat.html:
        sys.stdout.write(graded.page())
    elif format is GradeFormat.markdown:
        say(graded.markdown())
    else:
        say(graded.summary)
        print_data(graded.table())
        print_data(graded.steps_table())
        for note in graded.notes:
            say(_(note))
        for path in filter(None, (out, marked, pseudonyms)):
            say(_("written: {path}", path=path))
    for sheet in graded.unreadable:
        complain(_(sheet.error))
    if graded.unreadable:
        raise typer.Exit(70 if any(isinstance(sheet, FailedSheet) for sheet in graded.unreadable) else 2)


def _points(given: str | None) -> dict[str, float] | None:
    """The points of steps.

    Raises:
        UsageError: not pairs of a step and a number.
    """
    if given is None:
        return None
    made: dict[str, float] = {}
    for pair in given.split(","):
        name, _equals, points = (part.strip() for part in pair.partition("="))
        try:
            made[name] = float(points)
        except ValueError:
            raise UsageError("--points {given}: expected STEP=POINTS, as in weights=3,output=2", given=given) from None
    return made
