"""The parts of formulas and arithmetic: a formula is a tree of these."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any


@dataclass(frozen=True)
class Part:
    """A part of a formula. Parts are put together as numbers are: flat, without what changes nothing."""

    def __add__(self, other: "Expression") -> "Expression":
        """A sum."""
        return added(self, other)  # pyright: ignore

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
    kept = (part for part in parts if part is not ZERO)
    terms = tuple(term for part in kept for term in (part.terms if isinstance(part, Sum) else (part,)))
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
    made = change(part)
    if made is not None:
        return made
    if isinstance(part, tuple):
        return tuple(mapped(each, change) for each in part)
    if isinstance(part, Part) and not isinstance(part, Number | Words):
        return replace(part, **{field.name: mapped(getattr(part, field.name), change) for field in fields(part)})
    return part


def renamed(part: Any, change: Callable[[Name], Name]) -> Any:
    """An expression, or a tuple of them, with every name changed."""
    return mapped(part, lambda each: change(each) if isinstance(each, Name) else None)
