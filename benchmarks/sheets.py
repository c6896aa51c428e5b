"""How well `vitral check` judges the sheets of students: honest ones, and ones with a slip.

    python -m benchmarks.sheets --sheets 2000 --seed 1

The sheets come from `tests/helpers/students`, which shares no code with the checker. Every row is printed with the
seeds of the sheets that it counts against the checker.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from students import Changed, Sheet, student_sheet

from vitral.core.errors import UsageError
from vitral.explanation import CheckReport, Verdict, check, parse_example
from vitral.explanation.checks.slips import Slip

ACCUSED = (Verdict.follows, Verdict.wrong)
ACQUITTED = (Verdict.right, Verdict.rounding, Verdict.unclear)

NAMELESS = ("cell-off", "whole-number-off", "product-wrong", "carry-of-ten")
"""Slips of which nothing but the wrong number can be known: a name is not asked for."""


@dataclass(frozen=True)
class Limit:
    """The number that a row has to reach: at most, or at least, a share."""

    share: float
    at_most: bool = True

    def __str__(self) -> str:
        """As ≤ 2.0%."""
        return f"{'≤' if self.at_most else '≥'} {self.share:.1%}" if self != REPORTED else ""


REPORTED = Limit(0.0, at_most=False)
"""No limit: the share is only reported."""


@dataclass
class Row:
    """One measured share.

    Attributes:
        name: what is counted.
        limit: what the share has to be.
        of: sheets counted.
        seeds: those that count against the checker, with a word about each.
    """

    name: str
    limit: Limit
    of: int = 0
    seeds: list[str] = field(default_factory=list)

    def count(self, bad: bool, sheet: Sheet, why: str = "") -> None:
        """Count one sheet."""
        self.of += 1
        if bad:
            words = (sheet.kind, sheet.slip, sheet.habit.name, why)
            self.seeds.append(f"{sheet.seed} ({', '.join(filter(None, words))})")

    @property
    def share(self) -> float:
        """Of failures where the limit is an upper one, else of successes."""
        failures = len(self.seeds) / max(self.of, 1)
        return failures if self.limit.at_most else 1 - failures

    def holds(self, slack: float = 0.0) -> bool:
        """Whether the limit is reached, give or take so many standard errors of the sample."""
        if not self.of:
            return True
        share = self.limit.share
        room = slack * (math.sqrt(share * (1 - share) / self.of) + (0 < share < 1) * 0.5 / self.of)
        return self.share <= share + room if self.limit.at_most else self.share >= share - room

    def __str__(self) -> str:
        """One line of the table."""
        counted = len(self.seeds) if self.limit.at_most else self.of - len(self.seeds)
        wanted = f"{self.limit}{'' if self.holds() else '  MISSED'}"
        return f"{self.name:<66} {counted:>5}/{self.of:<5} {self.share:>7.2%}  {wanted}"


def judged(sheet: Sheet) -> CheckReport:
    """The checker's report on a sheet."""
    return check(parse_example(sheet.text))


def verdict_on(report: CheckReport, changed: Changed) -> Verdict:
    """The verdict on one cell."""
    for checked in report.quantities:
        if checked.claim.label == changed.step:
            index = changed.index[3 - checked.verdicts.dim() :]
            return list(Verdict)[int(checked.verdicts[index])]
    raise AssertionError(changed.step)


def first_step(report: CheckReport, verdict: Verdict) -> str | None:
    """The first step with a cell of this verdict."""
    for checked in report.quantities:
        if any(finding.verdict is verdict for finding in checked.findings):
            return checked.claim.label
    return None


def names_given(report: CheckReport, step: str | None) -> list[Slip]:
    """The slips named for the first cell that is wrong in itself: none, one, or two candidates."""
    for checked in report.quantities:
        if checked.claim.label == step:
            for finding in checked.findings:
                if finding.verdict is Verdict.wrong and finding.slip is not None:
                    other = finding.slip.other
                    return [finding.slip, *([] if other is None else [other])]
    return []


def is_named(sheet: Sheet, names: Iterable[Slip]) -> bool:
    """Whether one of the names is that of the slip, in its step, or of one that leads to the same sheet."""
    for name in names:
        meant = MEANT.get(name.kind, ())
        if sheet.slip in meant and is_step(sheet, name.step):
            return True
        if any(sheet.same_as(other) for other in meant if other != sheet.slip):
            return True
    return False


def is_step(sheet: Sheet, step: str) -> bool:
    """Whether a step is that of the slip; of z and the output, of x and what makes it, either may be meant."""
    together = ({"z", "out", "output"}, {"masked", "weights"}, {"resid_post", "output"})
    return step == sheet.slip_step or any({step, sheet.slip_step} <= same for same in together)


def honest(sheets: Iterator[Sheet], row: Row) -> Row:
    """Count the honest sheets that are accused."""
    for sheet in sheets:
        report = _report(sheet, row)
        if report is not None:
            worst = next((f for q in report.quantities for f in q.findings if f.verdict in ACCUSED), None)
            row.count(worst is not None, sheet, "" if worst is None else f"{worst.name}{list(worst.index)}")
    return row


def _report(sheet: Sheet, row: Row) -> CheckReport | None:
    """The report; a sheet that is refused counts against the checker."""
    try:
        return judged(sheet)
    except UsageError as error:
        row.count(True, sheet, f"refused: {error}")
        return None


@dataclass
class SlipRows:
    """The rows about sheets with a slip."""

    first: Row = field(
        default_factory=lambda: Row("first step called wrong, or else doubtful, right", Limit(0.99, at_most=False))
    )
    alone: Row = field(
        default_factory=lambda: Row("… and no other step called wrong in itself", Limit(0.95, at_most=False))
    )
    named: dict[str, Row] = field(
        default_factory=lambda: {
            "all": Row("slip named, where all steps are printed", Limit(0.85, at_most=False)),
            "some": Row("slip named, where some steps are printed", REPORTED),
            "output": Row("slip named, where only the output is printed", Limit(0.60, at_most=False)),
        }
    )
    right: Row = field(default_factory=lambda: Row("a name given is right", Limit(0.95, at_most=False)))

    def add(self, sheet: Sheet) -> None:
        """Judge one sheet."""
        report = _report(sheet, self.first)
        if report is None:
            return
        called = first_step(report, Verdict.wrong)
        shown = called or first_step(report, Verdict.doubtful)
        self.first.count(shown != sheet.first, sheet, f"{sheet.first} called {shown}")
        others = [
            checked.claim.label
            for checked in report.quantities
            if checked.claim.label != called and checked.worst is Verdict.wrong
        ]
        if called == sheet.first:
            self.alone.count(bool(others), sheet, ", ".join(others))
        names = names_given(report, called)
        said = " or ".join(f"{name.kind} in {name.step}" for name in names)
        if sheet.slip not in NAMELESS:
            self.named[sheet.extent].count(not is_named(sheet, names), sheet, f"{sheet.extent}: {said or 'silence'}")
        if names:
            self.right.count(not is_named(sheet, names), sheet, said)

    def all(self) -> list[Row]:
        """The rows."""
        return [self.first, self.alone, *self.named.values(), self.right]


def acquitted(sheets: Iterator[Sheet], row: Row, verdicts: tuple[Verdict, ...], units: float, exact: bool) -> Row:
    """Count single wrong cells that are acquitted: those off by so many units, or exact ones."""
    for sheet in sheets:
        cell = sheet.changed[0]
        if cell.units < units or (exact and not cell.exact):
            continue
        report = _report(sheet, row)
        if report is not None:
            verdict = verdict_on(report, cell)
            row.count(
                verdict in verdicts, sheet, f"{cell.step}{list(cell.index)} {cell.typed} for {cell.meant}: {verdict}"
            )
    return row


def _honest(made: Callable[..., Iterator[Sheet]]) -> Iterator[Row]:
    yield honest(made(0, "listed"), Row("honest sheets accused, rounding rules of the list", Limit(0.005)))
    yield honest(made(1, "unlisted"), Row("honest sheets accused, other rules", Limit(0.02)))


def _slips(made: Callable[..., Iterator[Sheet]]) -> Iterator[Row]:
    rows = SlipRows()
    for sheet in made(2, slip="any"):
        rows.add(sheet)
    yield from rows.all()


def _cells(made: Callable[..., Iterator[Sheet]]) -> Iterator[Row]:
    row = Row("single cells off by 3 units or more, acquitted", Limit(0.02))
    yield acquitted(made(3, slip="cell-off"), row, ACQUITTED, 3, exact=False)
    row = Row("wrong whole numbers from exact inputs, acquitted", Limit(0.0))
    yield acquitted(made(4, slip="whole-number-off"), row, (*ACQUITTED, Verdict.doubtful), 0, exact=True)


PARTS = {"honest": _honest, "slips": _slips, "cells": _cells}
"""The parts of the measurement."""


def measured(
    sheets: int, seed: int, parts: Iterable[str] = PARTS, show: Callable[[Row], None] = lambda row: None
) -> list[Row]:
    """The rows of some parts, from so many sheets for each."""

    def made(start: int, habit: str | None = None, slip: str | None = None) -> Iterator[Sheet]:
        # Every row has seeds of its own.
        first = seed * 1_000_000 + start * 100_000
        return (student_sheet(number, habit=habit, slip=slip) for number in range(first, first + sheets))

    rows = []
    for part in parts:
        for row in PARTS[part](made):
            show(row)
            rows.append(row)
    return rows


SCALES = (
    *("scale-d_k", "scale-root", "scale-d_model", "scale-root-d_model", "scale-log2", "scale-multiplied"),
    *("scale-twice", "softmax-temperature"),
)
MEANT = {
    "scale-missing": ("scale-missing",),
    "scale-other": SCALES,
    "scale-twice": ("scale-twice", "scale-d_k", "softmax-temperature"),
    "temperature": (*SCALES, "softmax-base-2", "softmax-base-10"),
    "total-wrong": ("softmax-term-missing", "softmax-total-wrong"),
    "softmax-twice": ("softmax-twice",),
    "mask-missing": ("mask-missing",),
    "mask-other": ("mask-one-more", "mask-one-fewer", "mask-other-side", "mask-transposed"),
    "mask-late": ("mask-after-softmax",),
    "zero-for-infinity": ("mask-zero",),
    "not-exponential": ("softmax-no-exp",),
    "not-divided": ("softmax-not-divided", "temperature-not-normalised", "loss-of-logits"),
    "base-other": ("softmax-base-2", "softmax-base-10", "loss-log10", "loss-log2", "perplexity-base-2"),
    "wrong-axis": ("softmax-columns", "softmax-whole"),
    "maximum-once": ("softmax-max-numerator",),
    "operand-other": (
        *("value-for-key", "query-for-key", "key-for-value", "other-matrix", "residual-from-norm", "residual-first"),
        *("loss-of-logits", "loss-target-shifted"),
    ),
    "operands-exchanged": ("query-key-exchanged", "other-matrix"),
    "operation-inverse": ("loss-sign", "scale-multiplied"),
    "transposed": ("matrix-transposed", "column-for-row", "query-key-exchanged", "mask-transposed"),
    "other-row": ("other-token", "scores-other-row", "loss-target-shifted"),
    "copied-wrong": ("given-misread",),
    "term-dropped": ("term-missing", "softmax-term-missing", "position-not-added"),
    "term-doubled": ("bias-twice",),
    "term-sign": ("term-wrong-sign",),
    "term-added": ("term-added",),
    "projection-missing": ("w_o-forgotten",),
    "heads-averaged": ("heads-averaged",),
    "heads-order": ("heads-order",),
    "heads-single": ("heads-first-only", "heads-first-repeated"),
    "bias-missing": ("bias-missing", "norm-bias-missing"),
    "bias-twice": ("bias-twice",),
    "residual-missing": ("residual-missing", "position-not-added"),
    "norm-other": (
        *("norm-sample-variance", "norm-variance-not-rooted", "norm-mean-not-subtracted", "norm-not-divided"),
        *("norm-missing", "norm-gain-missing"),
    ),
    "norm-order": ("norm-before-sum",),
    "gain-missing": ("norm-gain-missing",),
    "activation-missing": ("activation-missing",),
    "activation-other": ("activation-gelu", "activation-relu", "activation-absolute"),
    "positions-from-one": ("position-from-1",),
    "sine-cosine": ("position-sine-cosine",),
    "exponent-other": ("position-exponent",),
    "degrees": ("position-degrees",),
    "second-best": ("greedy-second",),
    "temperature-inverted": ("temperature-multiplied",),
    "temperature-direct": ("temperature-divides-probabilities",),
    "not-renormalised": ("filter-not-renormalised", "temperature-not-normalised"),
    "kept-other": ("top_k-one-fewer", "top_k-one-more", "top_p-one-fewer", "top_p-one-more"),
    "function-missing": ("loss-no-log", "activation-missing", "softmax-no-exp"),
    "function-other": (
        "loss-summed",
        "loss-log10",
        "loss-log2",
        "perplexity-base-2",
        "activation-gelu",
        "activation-relu",
    ),
    "constant-other": ("loss-sign", "loss-summed"),
    "digits-swapped": ("digits-swapped",),
    "sign-lost": ("sign-lost", "loss-sign"),
    "point-misplaced": ("point-misplaced",),
    "digit-wrong": ("carry-of-ten", "cell-off", "whole-number-off"),
}
"""For each kind of slip that the checker names, the slips of students that it stands for."""


def main() -> None:
    """Measure and print."""
    about = "Measure how well `vitral check` judges the sheets of students."
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sheets", description=about)
    parser.add_argument("--sheets", type=int, default=2000, help="sheets for each row")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", choices=tuple(PARTS), action="append", help="only this part; may be repeated")
    options = parser.parse_args()
    print(f"{options.sheets} sheets for each row, seed {options.seed}")

    def show(row: Row) -> None:
        print(row, *row.seeds, sep="\n    ", flush=True)

    measured(options.sheets, options.seed, options.part or PARTS, show)


if __name__ == "__main__":
    main()
