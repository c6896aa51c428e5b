"""How a checked example is printed."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from vitral.api.explaining import correct, find_example, gallery
from vitral.cli.complaints import complain
from vitral.cli.screen import console, print_json, table
from vitral.cli.screen import say as say_line
from vitral.core.errors import StorageError, UsageError
from vitral.explain import Report, check
from vitral.explain.checking import Verdict
from vitral.explain.phrases import Phrases
from vitral.explain.verdicts import Row, first_wrong, plain, rows, summary
from vitral.figures.text import visible

FIXABLE = (Verdict.rounding, Verdict.follows, Verdict.wrong)
STYLES = {
    Verdict.unknown: "dim",
    Verdict.right: "green",
    Verdict.rounding: "yellow",
    Verdict.follows: "yellow",
    Verdict.wrong: "bold red",
}


def check_all(named: list[str], say: Phrases, *, as_json: bool, fix_into: tuple[bool, Path | None]) -> int:
    """Check each example and print what was found; gives the exit code.

    An example that cannot be read gets its line on stderr (in JSON, an entry with an error) and the others go on.

    Args:
        named: files, or names of the gallery.
        say: the language.
        as_json: print one list of plain data.
        fix_into: whether to write the corrected example, and into which folder (beside the file if None).
    """
    data: list[dict[str, Any]] = []
    code, (fix, folder) = 0, fix_into
    for place, name in enumerate(named):
        try:
            report = check(find_example(name))
        except UsageError as error:
            code = max(code, 2)
            complain(str(error))
            data.append({"file": name, "error": str(error)})
            continue
        code = max(code, int(report.worst in (Verdict.follows, Verdict.wrong)))
        data.append(plain(report, say))
        if not as_json:
            say_line() if place else None
            print_report(report, say)
        if not (fix and report.worst in FIXABLE):
            continue
        try:
            corrected = correct(report, folder)
        except (UsageError, StorageError) as error:
            code = max(code, error.exit_code)
            complain(str(error))
        else:
            data[-1]["corrected"] = str(corrected)
            None if as_json else say_line(say("check.fixed", path=corrected))
    if as_json:
        print_json(data)
    return code


def print_report(report: Report, say: Phrases) -> None:
    """The summary, the first wrong step, a table of the rows that are not right, and their arithmetic."""
    screen = console()
    name = f"{report.example.path}: " if report.example.path else ""
    screen.print(Text(visible(f"{name}{report.example.title}"), style="bold"))
    screen.print(Text(summary(report, say), style=STYLES[report.worst]))
    told = list(rows(report, say))
    if not told:
        return
    first = first_wrong(report, say)
    if first:
        screen.print(Text(visible(first), style="bold"))
    _print_rows(screen, told, say)
    for row in told:
        if row.working:
            screen.print(Padding(Text(visible(row.working)), (0, 0, 0, 2)))


def _print_rows(screen: Console, told: list[Row], say: Phrases) -> None:
    columns = [say(f"check.{name}") for name in ("step", "place", "claimed", "expected", "verdict", "guess")]
    made = table("", columns, [], words=6)
    made.title = None
    for row in told:
        claimed = Text("  ").join(
            Text(visible(number), style=STYLES[verdict])
            for number, verdict in zip(row.claimed, row.verdicts, strict=True)
        )
        verdict = Text(say(f"check.{row.verdict}"), style=STYLES[row.verdict])
        made.add_row(row.step, visible(row.where), claimed, "  ".join(row.expected), verdict, visible(row.guess))
    screen.print(made)


def print_gallery() -> None:
    """The worked examples that come along."""
    listed = [(name, find_example(name).title) for name in gallery()]
    console().print(table("Worked examples", ("name", "what it is"), listed, words=2))
