"""vitral check: the numbers of worked examples compared with the correct ones."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitral.cli.complaints import complain
from vitral.cli.completion import complete_example
from vitral.cli.options import Format, FormatOption
from vitral.core.errors import StorageError, UsageError
from vitral.core.language import _, in_language

if TYPE_CHECKING:
    from rich.table import Table

    from vitral.explanation import CheckReport
    from vitral.explanation.checks.report import RowFinding
    from vitral.explanation.phrasebook import Phrases

FIXABLE = ("rounding", "unclear", "follows", "wrong")
STYLES = {
    "unknown": "dim",
    "right": "green",
    "rounding": "yellow",
    "doubtful": "yellow",
    "unclear": "yellow",
    "follows": "yellow",
    "wrong": "bold red",
}


def check(
    examples: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE|NAME|-",
            help="Worked examples, by file (TOML, Markdown, LaTeX, printed arrays, CSV, .xlsx) or by name (vitral list "
            "examples); - is the standard input.",
            autocompletion=complete_example,
        ),
    ] = None,
    fix: Annotated[
        bool,
        typer.Option("--fix", help="Write each corrected example beside it, in its format.  [default: only report]"),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="With --fix: folder to write to.  [default: beside the example]")
    ] = None,
    format: FormatOption = Format.text,
    list_: Annotated[bool, typer.Option("--list", hidden=True)] = False,
) -> None:
    """Check the numbers of worked examples.

    Reports which number is wrong first, and why.

    Exit code 0 if nothing is worse than rounding, 1 if a number is wrong, 2 if a file cannot be read; the other files
    are checked all the same.
    """
    from vitral.explanation import phrases

    if list_:
        from vitral.cli.list import Kind, list_names

        complain(_("check --list is now the command: vitral list examples"))
        list_names(Kind.examples)
        return
    if not examples:
        raise UsageError("check: name the examples, by file or by name (vitral list examples)")
    if out is not None and not fix:
        raise UsageError("check: --out goes with --fix")
    code = check_all(examples, phrases(), as_json=format is Format.json, fix_into=(fix, out))
    if code:
        raise typer.Exit(code)


def check_all(named: list[str], say: "Phrases", *, as_json: bool, fix_into: tuple[bool, Path | None]) -> int:
    """Check each example, print the result, and return the exit code.

    An example that cannot be read gets its line on stderr (in JSON, an entry with an error) and the others go on.

    Args:
        named: files, or names of worked examples.
        say: the language of what is printed for people.
        as_json: print one list of plain data, in English.
        fix_into: whether to write the corrected example, and into which folder (beside the file if None).
    """
    from vitral.cli.screen import print_json
    from vitral.cli.screen import say as say_line
    from vitral.explanation import check
    from vitral.lab.examples import find_example

    data: list[dict[str, Any]] = []
    code, (fix, folder) = 0, fix_into
    for place, name in enumerate(named):
        try:
            report = check(find_example(name))
        except UsageError as error:
            code = max(code, 2)
            complain(str(error))
            data.append({"file": name, "error": _in_english(name, error)})
            continue
        code = max(code, int(report.worst in ("follows", "wrong")))
        data.append(report.plain())
        for note in report.example.document.notes:
            complain(f"{name}: {note}")
        if not as_json:
            if place:
                say_line()
            print_report(report, say)
        if fix and report.worst in FIXABLE:
            corrected = _corrected(report, folder)
            code = max(code, corrected if isinstance(corrected, int) else 0)
            if isinstance(corrected, Path):
                data[-1]["corrected"] = str(corrected)
                if not as_json:
                    say_line(say("check.fixed", path=corrected))
    if as_json:
        print_json(data)
    return code


def _corrected(report: "CheckReport", folder: Path | None) -> Path | int:
    """Write the corrected example and return its path, or complain and return the exit code."""
    from vitral.lab.examples import correct

    try:
        return correct(report, folder)
    except (UsageError, StorageError) as error:
        complain(str(error))
        return error.exit_code


def _in_english(name: str, told: UsageError) -> str:
    """Why an example cannot be read; what the error was told if it cannot be read again, or can be by now."""
    if name == "-":
        return str(told)
    from vitral.explanation import check
    from vitral.lab.examples import find_example

    with in_language("en"):
        try:
            check(find_example(name))
        except UsageError as error:
            return str(error)
    return str(told)


def print_report(report: "CheckReport", say: "Phrases") -> None:
    """Print the summary, the first wrong step, a table of the rows that are not right, and their arithmetic."""
    from rich.padding import Padding
    from rich.text import Text

    from vitral.cli.screen import console
    from vitral.explanation.checks.report import first_wrong, habit_line, rows, summary
    from vitral.figures.text import visible

    screen = console()
    name = f"{report.example.path}: " if report.example.path else ""
    screen.print(Text(visible(f"{name}{report.example.told(say.language).title}"), style="bold"))
    screen.print(Text(summary(report, say), style=STYLES[report.worst]))
    problems = list(rows(report, say))
    if not problems:
        return
    habit = habit_line(report, say)
    if habit:
        screen.print(Text(habit))
    first = first_wrong(report, say)
    if first:
        screen.print(Text(visible(first), style="bold"))
    screen.print(_table(problems, say))
    for row in problems:
        if row.working:
            screen.print(Padding(Text(visible(row.working)), (0, 0, 0, 2)))


def _table(problems: "list[RowFinding]", say: "Phrases") -> "Table":
    from rich.text import Text

    from vitral.cli.screen import table
    from vitral.figures.text import visible

    columns = [say(f"check.{name}") for name in ("step", "place", "claimed", "expected", "verdict", "guess")]
    made = table("", columns, [], words=6)
    made.title = None
    for row in problems:
        claimed = Text("  ").join(
            Text(visible(number), style=STYLES[verdict])
            for number, verdict in zip(row.claimed, row.verdicts, strict=True)
        )
        verdict = Text(say(f"check.{row.verdict}"), style=STYLES[row.verdict])
        made.add_row(row.step, visible(row.where), claimed, "  ".join(row.expected), verdict, visible(row.guess))
    return made
