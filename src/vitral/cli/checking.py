"""How a checked example is printed."""

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from vitral.api.explaining import find_example, gallery
from vitral.cli.screen import console, table
from vitral.explain import Report
from vitral.explain.checking import Verdict
from vitral.explain.phrases import Phrases
from vitral.explain.verdicts import Row, first_wrong, rows, summary
from vitral.figures.text import visible

STYLES = {
    Verdict.unknown: "dim",
    Verdict.right: "green",
    Verdict.rounding: "yellow",
    Verdict.follows: "yellow",
    Verdict.wrong: "bold red",
}


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
