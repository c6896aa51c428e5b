"""How checks of worked examples are printed."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitral.app.options import Format
from vitral.app.terminal.complaints import complain
from vitral.core.errors import StorageError, UsageError, VitralError
from vitral.core.language import in_language

if TYPE_CHECKING:
    from rich.table import Table

    from vitral.explanation import CheckReport
    from vitral.explanation.checks.report import RowFinding
    from vitral.explanation.phrasebook import Phrases

STYLES = {
    "unknown": "dim",
    "right": "green",
    "rounding": "yellow",
    "doubtful": "yellow",
    "unclear": "yellow",
    "follows": "yellow",
    "wrong": "bold red",
}


def show_checks(
    reports: "Iterator[tuple[str, CheckReport | VitralError]]",
    *,
    fix: bool = False,
    out: Path | None = None,
    format: Format = "text",
) -> int:
    """Each report as a table; an example that cannot be read is one line, and the others go on.

    Args:
        fix: Write each corrected example beside it, in its format.  [default: only report]
        out: With --fix: folder to write to.  [default: beside the example]
        format: Output for people (text) or programs (json).
    """
    from vitral.app.facade.explain import corrected
    from vitral.app.terminal.screen import print_json, say
    from vitral.explanation import phrases

    if out is not None and not fix:
        raise UsageError("check: --out goes with --fix")
    words, data, code = phrases(), list[dict[str, Any]](), 0
    for name, report in reports:
        if isinstance(report, VitralError):
            code = max(code, report.exit_code)
            complain(str(report))
            with in_language("en"):
                data.append({"file": name, "error": str(report)})
            continue
        code = max(code, int(report.worst in ("follows", "wrong")))
        for note in report.example.document.notes:
            complain(f"{name}: {note}")
        if format == "text":
            say() if data else None
            print_report(report, words)
        data.append(report.plain())
        try:
            written = corrected(report, out) if fix else None
        except (UsageError, StorageError) as error:
            complain(str(error))
            code = max(code, error.exit_code)
            continue
        if written is not None:
            data[-1]["corrected"] = str(written)
            if format == "text":
                say(words("check.fixed", path=written))
    if format == "json":
        print_json(data)
    return code


def print_report(report: "CheckReport", say: "Phrases") -> None:
    """Print the summary, the first wrong step, a table of the rows that are not right, and their arithmetic."""
    from rich.padding import Padding
    from rich.text import Text

    from vitral.app.terminal.screen import console
    from vitral.core.text import visible
    from vitral.explanation.checks.report import first_wrong, habit_line, rows, summary

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

    from vitral.app.terminal.screen import table
    from vitral.core.text import visible

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
