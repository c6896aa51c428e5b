"""Sections as a table in the terminal, and as JSON with the machine's description."""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from benchmarks.results import Measurement, Section, Verdict
from benchmarks.timing import Range, summary

INDENT = (0, 0, 0, 2)
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def show(section: Section, console: Console) -> None:
    """Print a section: contenders, goals, notes."""
    console.print(f"[bold]{escape(section.row)}[/]: {escape(section.title)}", highlight=False)
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("contender", no_wrap=True)
    for heading in (
        "median",
        "range",
        *([f"{section.unit}/s"] if section.unit else []),
        *["times as fast"] * section.is_race,
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in section.measurements:
        table.add_row(*(escape(cell) for cell in _cells(section, one)))
    console.print(table)
    for one in section.measurements:
        if one.facts:
            said = ", ".join(f"{name} {_fact(value)}" for name, value in one.facts.items())
            console.print(Padding(escape(f"{one.name}: {said}"), INDENT), highlight=False)
    for verdict in section.verdicts():
        colour = "green" if verdict.reached else "yellow"
        console.print(Padding(f"[{colour}]{escape(verdict_text(verdict))}[/]", INDENT))
    for note in section.notes:
        console.print(Padding(f"[dim]{escape(note)}[/]", INDENT), highlight=False)
    console.print()


def _cells(section: Section, one: Measurement) -> list[str]:
    spread = summary(one.seconds)
    rate = [number(section.rate(one).median)] if section.unit else []
    against = ["" if one is section.ours else times(section.speed_against(one))] * section.is_race
    return [one.name, duration(spread.median), low_to_high(spread), *rate, *against]


def _fact(value: float | int | str) -> str:
    return value if isinstance(value, str) else f"{value:,}"


def verdict_text(verdict: Verdict) -> str:
    """A goal, its measured value, and the verdict.

    >>> verdict_text(Verdict("≤ 0.3 s", 0.3, Range(0.25, 0.2, 0.4), True, "", "seconds"))
    'goal ≤ 0.3 s: reached, 0.25 (0.2 – 0.4)'
    """
    if verdict.measured is None:
        return f"goal {verdict.text}: not reached, {verdict.peer} was not measured"
    word = "reached" if verdict.reached else "not reached"
    measured = verdict.measured
    return f"goal {verdict.text}: {word}, {number(measured.median)} ({number(measured.low)} – {number(measured.high)})"


def duration(seconds: float) -> str:
    """Seconds with three digits in a suitable unit.

    >>> [duration(value) for value in (12.34, 0.01234, 0.0000123, math.inf)]
    ['12.3 s', '12.3 ms', '12.3 µs', 'never']
    """
    if math.isinf(seconds):
        return "never"
    scale, unit = _unit(seconds)
    return f"{number(seconds / scale)} {unit}"


def low_to_high(spread: Range) -> str:
    """Lowest to highest, in the unit of the median.

    >>> low_to_high(Range(0.02, 0.0185, 0.0333))
    '18.5 – 33.3'
    """
    scale = _unit(spread.median)[0]
    return f"{number(spread.low / scale)} – {number(spread.high / scale)}"


def _unit(seconds: float) -> tuple[float, str]:
    if math.isinf(seconds):
        return UNITS[0]
    return next(((scale, unit) for scale, unit in UNITS if seconds >= scale), UNITS[-1])


def number(value: float) -> str:
    """Three digits, without an exponent.

    >>> [number(value) for value in (1234567.0, 12.345, 0.012345)]
    ['1,234,567', '12.3', '0.0123']
    """
    if not math.isfinite(value):
        return "∞" if value > 0 else "-∞"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def times(ratio: Range) -> str:
    """A speedup.

    >>> times(Range(10.0, 9.0, 11.0))
    '10x (9 – 11)'
    """
    return f"{number(ratio.median)}x ({number(ratio.low)} – {number(ratio.high)})"


def write(path: Path, machine: Mapping[str, Any], sections: Sequence[Section]) -> dict[str, Any]:
    """Write sections to a machine's file; rows not measured this time stay, each with its date and commit.

    Returns all rows in the file.
    """
    rows: dict[str, Any] = {}
    if path.is_file():
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    for row in dict.fromkeys(section.row for section in sections):
        tables = [section.plain() for section in sections if section.row == row]
        rows[row] = {
            "date": date.today().isoformat(),
            "commit": machine.get("commit"),
            "versions": machine.get("packages", {}),
            "tables": tables,
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"machine": dict(machine), "rows": rows}, indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
    return rows
