"""The arithmetic of one number, written out from the numbers it was made of."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

MOST_TERMS = 4
"""Of a longer sum the first this many terms are written; the line says how many are not."""


@dataclass(frozen=True)
class Arithmetic:
    """One number and where it comes from.

    Attributes:
        target: the number's name.
        working: the sum, product or quotient, as text.
        value: the model's own number.
    """

    target: str
    working: str
    value: float

    def line(self) -> str:
        """All of it in one line."""
        return f"{self.target} = {self.working} = {number(self.value, 4)}"


def number(value: float, digits: int) -> str:
    """A number to so many digits, −∞ and the minus sign as they are written by hand."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.{digits}f}".replace("-", "−")


def dot(target: str, left: Tensor, right: Tensor, value: float) -> Arithmetic:
    """A dot product, term by term."""
    terms = [f"{number(float(a), 3)}·{number(float(b), 3)}" for a, b in zip(left, right, strict=True)]
    return Arithmetic(target, _sum(terms), value)


def weighted(target: str, weights: Tensor, values: Tensor, value: float) -> Arithmetic:
    """A weighted sum, largest weights first, keys of weight zero left out."""
    order = [int(j) for j in weights.argsort(descending=True, stable=True) if weights[j] > 0]
    terms = [f"{number(float(weights[j]), 3)}·{number(float(values[j]), 3)}" for j in order]
    return Arithmetic(target, _sum(terms), value)


def product(target: str, score: float, factor: float, value: float) -> Arithmetic:
    """One score times the scale."""
    return Arithmetic(target, f"{number(score, 4)} · {number(factor, 4)}", value)


def softmax_cell(target: str, row: Tensor, column: int, value: float) -> Arithmetic:
    """One weight: the exponential of its entry over the sum of the row's, entries of −∞ left out."""
    finite = [float(entry) for entry in row if entry != -math.inf]
    if not finite:
        return Arithmetic(target, "nothing may be seen", value)
    below = _sum([f"exp({number(entry, 3)})" for entry in finite])
    return Arithmetic(target, f"exp({number(float(row[column]), 3)}) / ({below})", value)


def _sum(terms: Sequence[str]) -> str:
    """Terms with plus signs, the later ones of a long sum counted instead of written."""
    if not terms:
        return "0"
    rest = len(terms) - MOST_TERMS
    written = " + ".join(terms[:MOST_TERMS])
    return written if rest <= 0 else f"{written} + … ({rest} more)"
