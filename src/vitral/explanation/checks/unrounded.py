"""Given numbers that were rounded before printing, as a notebook prints a random matrix or 16-bit weights."""

import itertools

import torch
from scipy.optimize import lsq_linear
from torch import Tensor
from torch.func import jacrev

from vitral.explanation.checks.author import Author
from vitral.explanation.checks.intervals import Interval
from vitral.explanation.checks.rounding import HALF_ULP, TOLERANCE, is_whole
from vitral.explanation.examples.numerals import MOST_DECIMALS
from vitral.explanation.recipe import Values

LEAST_DECIMALS = 2
"""Given numbers with fewer decimals, or with fewer than the printed ones, are more often what they are."""
MOST_NUMBERS = 600
"""In larger tables, no number is supposed to be rounded."""
NEAR = 0.1
"""How much a change of the given numbers should stay what it was, beside the numbers to which it leads."""
MOST_TRIES = 8
"""Given numbers that are tried for one step."""
CLOSE = 1.0
"""Units that a printed number may be off after the best change of the given ones."""
LEAST_OFF = 2
"""So many printed numbers must be off."""
MANY_OFF = 6
"""So many, if the given numbers have few decimals."""


class Unrounded:
    """The given numbers before rounding, as far as printed steps show them.

    A step is kept if some given numbers within half a unit of the printed ones lead to its numbers and to those of all
    steps kept before it; a step after a lost one is lost. A slip loses its own step, and what was computed before it
    still shows some.

    Attributes:
        values: given numbers that lead to the kept steps.
        halves: by how much each given number may have been rounded.
        kept: names of the steps.
        off: how many of their numbers the printed given ones do not lead to.
        expected: how many these would be on average, if the given ones had been rounded.
    """

    def __init__(self, author: Author, accused: str, halves: Values, *, from_printed: bool) -> None:
        """Find the numbers.

        Args:
            author: of the sheet.
            accused: the first step with a number that is wrong if the given ones are exact; the search ends if it is
                lost.
            halves: by how much each given number may have been rounded, for those that may.
            from_printed: whether each step starts from what is printed of the steps before.
        """
        self.author, self.halves, self.from_printed = author, halves, from_printed
        self.values: Values = author.given
        self.kept: list[str] = []
        self.off, self.expected, lost = 0, 0.0, set[str]()
        size = sum(half.numel() for half in self.halves.values())
        self.changes = torch.zeros(size, dtype=torch.float64)
        if not 0 < size <= MOST_NUMBERS or any(name in author.given for name in author.claimed):
            return
        for quantity in author.sheet.quantities:
            name = quantity.name
            if not lost.isdisjoint(quantity.inputs) or (name in author.claimed and not self.keeps(name)):
                lost |= set() if from_printed and bool(author.printed[name].known.all()) else {name}
                if name == accused:
                    return
        self.values = self.changed(self.changes)

    @property
    def boxes(self) -> dict[str, Interval]:
        """Where each given number lies."""
        return {name: Interval.around(value, self.halves.get(name, 0.0)) for name, value in self.author.given.items()}

    def changed(self, changes: Tensor) -> dict[str, Tensor]:
        """The given numbers after changes, in half units."""
        parts = changes.split([half.numel() for half in self.halves.values()])
        return self.author.given | {
            name: self.author.given[name] + half * part.reshape(half.shape)
            for (name, half), part in zip(self.halves.items(), parts, strict=True)
        }

    def left(self, changes: Tensor, names: list[str]) -> Tensor:
        """How far the printed numbers of some steps are off after changes, in units."""
        values, author, left = self.changed(changes), self.author, list[Tensor]()
        for quantity in author.sheet.quantities:
            name = quantity.name
            printed, value = author.printed[name], quantity.make(values)
            values[name] = torch.where(printed.known, printed.values, value) if self.from_printed else value
            if name in names:
                left.append(((value - printed.values) / printed.size)[printed.values.isfinite()])
            if name == names[-1]:
                break
        return torch.cat(left)

    def keeps(self, name: str) -> bool:
        """Whether the changes can be chosen so that they lead to this step too."""
        printed, names = self.author.printed[name], [*self.kept, name]
        if bool((printed.values.isinf() & (printed.values != self.author.sheet.values[name])).any()):
            return False
        start, changes, slopes = self.left(torch.zeros_like(self.changes), names), self.changes, self.changes
        for _ in range(MOST_TRIES):
            left, slopes = self.left(changes, names), jacrev(self.left)(changes, names)
            steep = slopes.abs().sum(dim=1)
            if not bool((left.abs() <= 3 * steep + CLOSE).all()):  # beyond reach
                return False
            if bool((left.abs() <= TOLERANCE).all()):
                break
            near = NEAR * torch.eye(len(changes), dtype=torch.float64)
            goal = torch.cat([slopes @ changes - left, NEAR * changes])
            solution = lsq_linear(torch.cat([slopes, near]).numpy(), goal.numpy(), bounds=(-1, 1))
            changes = torch.from_numpy(solution.x)
        if bool((self.left(changes, names).abs() > CLOSE).any()):
            return False
        self.kept, self.changes = names, changes
        self.off = int((start.abs() > TOLERANCE).sum())
        spread = (slopes.square().sum(dim=1) / 3 + 1 / 12).sqrt()
        self.expected = float(torch.erfc(TOLERANCE / 2**0.5 / spread).sum())
        return True


def unrounded(author: Author, accused: str, *, is_named: bool) -> Unrounded | None:
    """The given numbers before rounding; None if they are probably exact.

    Args:
        author: of the sheet.
        accused: the first step with a number that is wrong if they are exact.
        is_named: whether a slip is named there.
    """
    given, best = author.given, None
    digits = {name: count for name, value in given.items() if (count := decimals(value))}
    halves = {name: torch.full_like(given[name], 10.0**-count / 2) for name, count in digits.items()}
    least = max(LEAST_DECIMALS, author.usual.decimals)
    long = {name: half for name, half in halves.items() if digits[name] >= least}
    ulps = {name: given[name].abs() * HALF_ULP / 2 for name in digits}
    for tables, from_printed in itertools.product((long, halves, ulps), (False, True)):
        if tables is long or not is_named:
            way = Unrounded(author, accused, tables, from_printed=from_printed)
            # About as many numbers are off as can be; a slip leaves those before it, and beside it, right.
            is_likely = way.off >= max(LEAST_OFF if tables is long else MANY_OFF, way.expected / 2)
            if accused in way.kept and is_likely and (best is None or len(way.kept) > len(best.kept)):
                best = way
        if best is not None and len(best.kept) == len(author.claimed):
            break
    return best


def decimals(values: Tensor) -> int:
    """The decimals of the longest number; 0 where the numbers are no decimal fractions."""
    return next((digits for digits in range(MOST_DECIMALS) if bool(is_whole(values, 10.0**-digits).all())), 0)
