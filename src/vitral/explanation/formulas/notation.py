"""The parts of formulas and arithmetic: a formula is a tree of these. Their values, and the digits that these need."""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

LOST = 0.1
"""The numbers of a denominator have so many digits that their roundings change this share of its value at most."""
MOST_DECIMALS = 330
"""No number of double precision needs more."""


@dataclass(frozen=True)
class Part:
    """A part of a formula. Parts are put together as numbers are: flat, without what changes nothing."""

    def __sub__(self, other: "Expression") -> "Expression":
        """A difference."""
        return self if other is ZERO or self == Number(-math.inf) else Difference(self, other)  # pyright: ignore

    def __mul__(self, other: "Expression") -> "Expression":
        """A product."""
        factors = tuple(factor for part in (self, other) if part is not ONE for factor in part.factors_of(tight=False))
        if any(factor is ZERO for factor in factors):
            return ZERO
        return Product(factors) if len(factors) > 1 else (*factors, ONE)[0]

    def __truediv__(self, other: "Expression") -> "Expression":
        """A fraction."""
        return self if other is ONE or other is ZERO else Fraction(self, other)  # pyright: ignore

    def __pow__(self, other: "Expression") -> "Expression":
        """A power."""
        return Power(self, other)  # pyright: ignore

    def __neg__(self) -> "Expression":
        """The part with a minus sign."""
        if isinstance(self, Number):
            return ZERO if self is ZERO else Number(-self.value, self.exact)
        return Product((exact(-1), *self.factors_of(tight=False)))

    def factors_of(self, *, tight: bool) -> "tuple[Expression, ...]":
        """The factors of a product, or the part alone."""
        return self.factors if isinstance(self, Product) and self.tight == tight else (self,)  # pyright: ignore


def added(*parts: "Expression") -> "Expression":
    """A sum of any number of terms."""
    nonzero = (part for part in parts if part is not ZERO)
    terms = tuple(term for part in nonzero for term in (part.terms if isinstance(part, Sum) else (part,)))
    return Sum(terms) if len(terms) > 1 else (*terms, ZERO)[0]


@dataclass(frozen=True)
class Name(Part):
    """A quantity or function, with subscript and superscript: q₂, Wᑫ, scores[2, 1].

    Attributes:
        letters: "q", "W", "scores"; one letter is set in italics, a word upright.
        below: subscript, as "2", "2,1" or "Q".
        above: superscript: "T" for transposed, "Q" of a matrix, "(1)" for block 1, "(1)T" for both.
    """

    letters: str
    below: str = ""
    above: str = ""


EXP = Name("e")
"""The base of the exponential function; plain text writes its powers as exp(…)."""


@dataclass(frozen=True)
class Number(Part):
    """A number, written with the number of digits asked for; `exact` ones (sizes, counts) with all their digits."""

    value: float
    exact: bool = False


def exact(value: float) -> Number:
    """A number with all its digits."""
    return Number(value, exact=True)


ZERO, ONE = exact(0), exact(1)
"""These objects, and no other zeros and ones, change nothing and are not written."""


@dataclass(frozen=True)
class Words(Part):
    """Plain words inside a formula.

    Attributes:
        text: the words.
        own: whether they come from the reader's own text (a token), so that they are not translated.
    """

    text: str
    own: bool = False


@dataclass(frozen=True)
class Product(Part):
    """Factors with a multiplication dot between them; matrices side by side (`tight`)."""

    factors: tuple["Expression", ...]
    tight: bool = False


@dataclass(frozen=True)
class Sum(Part):
    """Terms; a negative term is written with a minus sign.

    Of a long sum the largest terms are written, followed by the number and the sum of the others.
    """

    terms: tuple["Expression", ...]


@dataclass(frozen=True)
class Difference(Part):
    """A difference: left − right."""

    left: "Expression"
    right: "Expression"


@dataclass(frozen=True)
class Fraction(Part):
    """A fraction: numerator `above`, denominator `below`."""

    above: "Expression"
    below: "Expression"


@dataclass(frozen=True)
class Root(Part):
    """A square root."""

    inside: "Expression"


@dataclass(frozen=True)
class Power(Part):
    """A base with an exponent."""

    base: "Expression"
    exponent: "Expression"


@dataclass(frozen=True)
class Apply(Part):
    """A function of arguments: mean(x), Concat(a, b)."""

    function: str
    arguments: tuple["Expression", ...]


@dataclass(frozen=True)
class Over(Part):
    """A sum over an index, Σ_j body, or with another sign a product, Π_j body, or a choice, argmax_j body."""

    index: str
    body: "Expression"
    sign: str = "Σ"


@dataclass(frozen=True)
class Equation(Part):
    """Two or more equal sides.

    Attributes:
        sides: in order.
        before: equations of numbers that it uses, as the mean of a norm; they are written first.
        after: further equations of the same formula, and definitions of its letters; they are written last.
    """

    sides: tuple["Expression", ...]
    before: tuple["Equation", ...] = ()
    after: tuple["Equation", ...] = ()

    def all(self) -> tuple["Equation", ...]:
        """The equations in the order in which they are written, each alone."""
        return (*self.before, Equation(self.sides), *self.after)


Expression = Name | Number | Words | Product | Sum | Difference | Fraction | Root | Power | Apply | Over | Equation


def mapped(part: Any, change: Callable[[Any], Any]) -> Any:
    """An expression, or a tuple of them, with parts exchanged, from the whole down; `change` is None for what stays."""
    changed = change(part)
    if changed is not None:
        return changed
    if isinstance(part, tuple):
        return tuple(mapped(item, change) for item in part)
    if isinstance(part, Part) and not isinstance(part, Number | Words):
        return replace(part, **{field.name: mapped(getattr(part, field.name), change) for field in fields(part)})
    return part


def renamed(part: Any, change: Callable[[Name], Name]) -> Any:
    """An expression, or a tuple of them, with every name changed."""
    return mapped(part, lambda item: change(item) if isinstance(item, Name) else None)


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


def needed(below: Expression, digits: int) -> int:
    """The decimals that the numbers of a denominator need, at least `digits`."""
    inside = below.inside if isinstance(below, Root) else below
    size = abs(value_of(inside))
    if not 0 < size < math.inf:
        return digits
    sufficient = (
        n for n in range(digits, MOST_DECIMALS) if abs(value_of(_to(inside, n)) - value_of(inside)) <= LOST * size
    )
    return next(sufficient, digits)


def _to(expression: Expression, decimals: int) -> Expression:
    """The expression as it is read when its numbers are written with so many decimals."""
    is_rounded = lambda part: isinstance(part, Number) and not part.exact and math.isfinite(part.value)  # noqa: E731
    return mapped(expression, lambda part: exact(round(part.value, decimals)) if is_rounded(part) else None)


def argument_digits(function: Apply, digits: int) -> int:
    """The decimals that the argument of a logarithm or of a step needs: not 0, and on the same side of the step."""
    match function:
        case Apply("log", (argument,)):
            return needed(argument, digits)
        case Apply("floor", (argument,)) if math.isfinite(value := value_of(argument)):
            sufficient = (n for n in range(digits, MOST_DECIMALS) if math.floor(round(value, n)) == math.floor(value))
            return next(sufficient, digits)
    return digits


def transposed(matrix: Expression) -> Expression:
    """A whole matrix, transposed."""
    if isinstance(matrix, Number):
        return matrix
    if not isinstance(matrix, Name):
        return Power(matrix, Name("T"))

    return replace(matrix, above=f"{matrix.above}ᵀ" if matrix.above else "T")


def combined(function: str, parts: list[Expression]) -> Expression:
    """A function of written parts."""
    if function in COMBINED:
        return COMBINED[function](*parts)
    values = [part.value for part in parts if isinstance(part, Number)]
    if function in ("less", "equal") and len(values) == 2:
        return exact(float(values[0] < values[1] if function == "less" else values[0] == values[1]))
    return Apply({"maximum": "max", "minimum": "min"}.get(function, function), tuple(parts))


def _over(first: Expression, other: Expression) -> Expression:
    return ZERO if first is ZERO or value_of(other) == 0 else first / other


def _exponential(exponent: Expression) -> Expression:
    """A power of e; that of a logarithm over T is a power to 1/T, of a number over the largest if that is shifted."""
    match exponent:
        case Difference(Apply("log", (inside,)), Number(shift)):
            return inside / Number(math.exp(shift))
        case Difference(Fraction(Apply("log", (inside,)), Number(heat) as below), Number(shift)):
            return (inside / Number(math.exp(shift * heat))) ** (ONE / below)
        case Apply("log", (inside,)):
            return inside
        case Fraction(Apply("log", (inside,)), below):
            return inside ** (ONE / below)
    return EXP**exponent


COMBINED: dict[str, Callable[..., Any]] = {
    **{"add": added, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv},
    **{"power": operator.pow, "negative": operator.neg, "root": Root, "over": _over, "exp": _exponential},
}
