"""The numbers of formulas: the value of an expression, and the digits with which a written equation stays true."""

import math
from collections.abc import Sequence

from vitral.explanation.formulas.notation import (
    EXP,
    Apply,
    Difference,
    Expression,
    Fraction,
    Name,
    Number,
    Power,
    Product,
    Root,
    Sum,
)

MOST_TERMS = 5
"""Of a longer sum or list this many terms are written, the largest; the others are counted, those of a sum added up."""
SURE = 0.9
"""The numbers of a denominator have so many digits that their roundings leave this share of its value at least."""
MOST_DECIMALS = 330
"""No number of double precision needs more."""


def number(value: float, digits: int) -> str:
    """A number with a fixed number of decimals, with the signs ∞ and −, and no minus before zero.

    >>> number(-1.25, 1), number(-0.0001, 3), number(-math.inf, 3)
    ('−1.2', '0.000', '−∞')
    """
    if math.isnan(value):
        return "?"
    written = "∞" if math.isinf(value) else f"{abs(value):.{digits}f}"
    return f"−{written}" if value < 0 and (written == "∞" or float(written)) else written


def decimals(most: int, *values: float, slack: float = 1e-9) -> int:
    """The fewest decimals with which numbers are whole, as far as can be seen; at most so many."""
    fits = (n for n in range(most) if all(abs(round(value, n) - value) < slack for value in values))
    return next(fits, most)


def value_of(expression: Expression) -> float:
    """The value of an expression of numbers; NaN if it contains names or divides by zero."""
    try:
        return _value(expression)
    except OverflowError:
        return math.inf
    except (ZeroDivisionError, ValueError):
        return math.nan


def _value(expression: Expression) -> float:
    match expression:
        case Number(value):
            return value
        case Product(factors):
            return math.prod(map(_value, factors))
        case Sum(terms):
            return math.fsum(map(_value, terms))
        case Difference(left, right):
            return _value(left) - _value(right)
        case Fraction(above, below):
            return _value(above) / _value(below)
        case Root(inside):
            return math.sqrt(_value(inside))
        case Power(base, exponent):
            return math.pow(math.e if base == EXP else _value(base), _value(exponent))
        case Apply("max" | "min" as function, arguments):
            values = [*map(_value, arguments)]
            return math.nan if any(map(math.isnan, values)) else max(values) if function == "max" else min(values)
        case Name("π"):
            return math.pi
        case _:
            return math.nan


def largest(sizes: Sequence[float]) -> list[int]:
    """The places of the terms of a long sum or list that are written, in their order."""
    return sorted(sorted(range(len(sizes)), key=lambda place: -sizes[place])[:MOST_TERMS])


def shortened(terms: tuple[Expression, ...], *, whole: bool = False) -> tuple[list[Expression], float | None, int]:
    """The terms of a sum that are written; the sum and the number of the others; names are all written."""
    sizes = [abs(value_of(term)) for term in terms]
    if whole or len(terms) <= MOST_TERMS + 1 or any(map(math.isnan, sizes)):
        return list(terms), None, 0
    shown = largest(sizes)
    rest = [value_of(term) for place, term in enumerate(terms) if place not in shown]
    return [terms[place] for place in shown], math.fsum(rest), len(rest)


def needed(below: Expression, digits: int) -> int:
    """The decimals that the numbers of a denominator need, at least `digits`."""
    inside = below.inside if isinstance(below, Root) else below
    size = abs(value_of(inside))
    if not 0 < size < math.inf:
        return digits
    for more in range(digits, MOST_DECIMALS):
        low, high = _bounds(inside, more)
        if min(abs(low), abs(high)) >= SURE * size and low * high > 0:
            return more
    return digits


def argument_digits(function: Apply, digits: int) -> int:
    """The decimals that the argument of a logarithm or of a step needs: not 0, and on the same side of the step."""
    match function:
        case Apply("log", (argument,)):
            return needed(argument, digits)
        case Apply("floor", (argument,)) if math.isfinite(value := value_of(argument)):
            enough = (n for n in range(digits, MOST_DECIMALS) if math.floor(round(value, n)) == math.floor(value))
            return next(enough, digits)
    return digits


def _rounded(value: float, digits: int) -> tuple[float, float]:
    half = 0.5 * 10.0**-digits
    return value - half, value + half


def _bounds(expression: Expression, digits: int) -> tuple[float, float]:
    """The least and the largest value of an expression whose numbers are rounded to so many decimals."""
    match expression:
        case Number(value, exact=False):
            return _rounded(value, digits)
        case Sum(terms):
            shown, rest, _ = shortened(terms)
            parts = [_bounds(term, digits) for term in shown]
            parts += [] if rest is None else [_rounded(rest, digits)]
            return math.fsum(low for low, _ in parts), math.fsum(high for _, high in parts)
        case Difference(left, right):
            (one, two), (three, four) = _bounds(left, digits), _bounds(right, digits)
            return one - four, two - three
        case Product(factors):
            low, high = 1.0, 1.0
            for factor in factors:
                ends = [end * other for end in (low, high) for other in _bounds(factor, digits)]
                low, high = min(ends), max(ends)
            return low, high
        case Fraction(above, below):
            belows = _bounds(below, max(digits, needed(below, digits)))
            ends = [end / other for end in _bounds(above, digits) for other in belows if other]
            return min(ends, default=0.0), max(ends, default=0.0)
        case Power(base, exponent) if base != EXP:
            low, high = _bounds(base, digits)
            times = value_of(exponent)
            return max(low, 0.0) ** times, max(abs(low), abs(high)) ** times
    return value_of(expression), value_of(expression)
