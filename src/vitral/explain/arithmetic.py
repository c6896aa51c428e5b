"""The arithmetic of one number: kept as the numbers it was made of, written out with as many digits as asked for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

MOST_TERMS = 4
"""Of a longer sum the first this many terms are written; the line says how many are not, and what they come to."""


@runtime_checkable
class Working(Protocol):
    """The right-hand side of an equation, with numbers in it."""

    def lines(self, digits: int) -> tuple[str, ...]:
        """The equation's stages between its rule and its value, each to stand after an equals sign."""
        ...


@dataclass(frozen=True)
class Sum:
    """A sum of products; a term of one factor is that number.

    >>> Sum(((0.5, 2.0), (3.0, -1.0), (0.25,))).lines(2)
    ('0.50·2.00 + 3.00·(−1.00) + 0.25',)
    """

    terms: tuple[tuple[float, ...], ...]

    def lines(self, digits: int) -> tuple[str, ...]:
        """The terms, or the first of them."""
        written = [_product(term, digits) for term in self.terms[:MOST_TERMS]]
        return (_sum(written, [math.prod(term) for term in self.terms[MOST_TERMS:]], digits),)


@dataclass(frozen=True)
class Exponentials:
    """One entry's exponential over the sum of all: a cell of a softmax.

    The row's largest entry is taken off every exponent first, as `vitral.attention.steps.normalise` does: the quotient
    is the same, and nothing overflows. Entries of −∞ have an exponential of zero and are not written.

    >>> Exponentials(0.0, (0.0, 1.0, -math.inf)).lines(3)
    ('exp(0.000 − 1.000) / Σ', '0.368 / (0.368 + 1.000)')
    """

    entry: float
    entries: tuple[float, ...]

    def lines(self, digits: int) -> tuple[str, ...]:
        """The exponent, then the quotient."""
        largest = max(self.entries)
        if largest == -math.inf:
            return ("nothing may be seen",)
        above = math.exp(self.entry - largest)
        below = [math.exp(entry - largest) for entry in self.entries if entry != -math.inf]
        written = [number(value, digits) for value in below[:MOST_TERMS]]
        exponent = _difference(number(self.entry, digits), number(largest, digits))
        total = _sum(written, below[MOST_TERMS:], digits)
        return (f"exp({exponent}) / Σ", f"{number(above, digits)} / ({total})")


@dataclass(frozen=True)
class Arithmetic:
    """One number and where it comes from.

    Attributes:
        target: the number's name, as `scores[2, 1]`.
        rule: what it is, in names, as `q[2] · k[1]`.
        working: the same in numbers.
        value: the number as the model has it; the working comes to it up to the rounding of the model's own precision.
    """

    target: str
    rule: str
    working: Working
    value: float

    def lines(self, digits: int = 3) -> tuple[str, ...]:
        """What stands after each equals sign: the rule, the working, the value; nothing twice in a row."""
        stages = (self.rule, *self.working.lines(digits), number(self.value, digits))
        return tuple(stage for before, stage in zip(("", *stages), stages, strict=False) if stage != before)

    def line(self, digits: int = 3) -> str:
        """All of it in one line."""
        return " = ".join((self.target, *self.lines(digits)))


def number(value: float, digits: int) -> str:
    """A number to so many digits, with ∞ and the minus sign as they are written by hand, and no minus before zero.

    >>> number(-1.25, 1), number(-0.0001, 3), number(-math.inf, 3)
    ('−1.2', '0.000', '−∞')
    """
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    written = f"{value:.{digits}f}"
    negative = written.startswith("-") and float(written) != 0
    return f"−{written[1:]}" if negative else written.removeprefix("-")


def dot(left: Tensor, right: Tensor, *extra: float) -> Sum:
    """The dot product of two vectors, and what is added to it."""
    pairs = zip(left.tolist(), right.tolist(), strict=True)
    return Sum((*pairs, *((term,) for term in extra)))


def _product(factors: Sequence[float], digits: int) -> str:
    first, *others = (number(factor, digits) for factor in factors)
    return "·".join([first, *(f"({other})" if other.startswith("−") else other for other in others)])


def _sum(written: Sequence[str], rest: Sequence[float], digits: int) -> str:
    """Terms with their signs between them, then how many there are besides and what those come to."""
    line = written[0] if written else "0"
    for term in written[1:]:
        line += f" − {term[1:]}" if term.startswith("−") else f" + {term}"
    if not rest:
        return line
    return f"{line} + … ({len(rest)} more {'term' if len(rest) == 1 else 'terms'}: {number(math.fsum(rest), digits)})"


def _difference(left: str, right: str) -> str:
    return f"{left} − {f'({right})' if right.startswith('−') else right}"
