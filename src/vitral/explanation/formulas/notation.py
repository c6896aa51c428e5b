"""The parts of formulas and arithmetic: a formula is a tree of these."""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Name:
    """A quantity or function, with subscript and superscript: q₂, Wᑫ, scores[2, 1].

    Attributes:
        letters: "q", "W", "scores"; one letter is set in italics, a word upright.
        below: subscript, as "2", "2,1" or "Q".
        above: superscript: "T" for transposed, "Q" of a matrix, "(1)" for block 1, "(1)T" for both.
    """

    letters: str
    below: str = ""
    above: str = ""


@dataclass(frozen=True)
class Number:
    """A number, written with the number of digits asked for; `exact` ones (sizes, counts) with all their digits."""

    value: float
    exact: bool = False


@dataclass(frozen=True)
class Words:
    """Plain words inside a formula.

    Attributes:
        text: the words.
        own: whether they come from the reader's own text (a token), so that they are not translated.
    """

    text: str
    own: bool = False


@dataclass(frozen=True)
class Product:
    """Factors with a multiplication dot between them; matrices side by side (`tight`)."""

    factors: tuple["Expression", ...]
    tight: bool = False


@dataclass(frozen=True)
class Sum:
    """Terms; a negative term is written with a minus sign.

    Of a long sum the largest terms are written, followed by the number and the sum of the others.
    """

    terms: tuple["Expression", ...]


@dataclass(frozen=True)
class Difference:
    """A difference: left − right."""

    left: "Expression"
    right: "Expression"


@dataclass(frozen=True)
class Fraction:
    """A fraction: numerator `above`, denominator `below`."""

    above: "Expression"
    below: "Expression"


@dataclass(frozen=True)
class Root:
    """A square root."""

    inside: "Expression"


@dataclass(frozen=True)
class Power:
    """A base with an exponent."""

    base: "Expression"
    exponent: "Expression"


@dataclass(frozen=True)
class Apply:
    """A function of arguments: mean(x), Concat(a, b)."""

    function: str
    arguments: tuple["Expression", ...]


@dataclass(frozen=True)
class Over:
    """A sum over an index, Σ_j body, or with another sign a product, Π_j body, or a choice, argmax_j body."""

    index: str
    body: "Expression"
    sign: str = "Σ"


@dataclass(frozen=True)
class Equation:
    """Two or more equal sides.

    Attributes:
        sides: in order.
        before: equations of numbers that it uses, as the mean of a norm; they are written first.
        after: further equations of the same formula, and definitions of its letters; they are written last.
    """

    sides: tuple["Expression", ...]
    before: tuple["Equation", ...] = ()
    after: tuple["Equation", ...] = ()

    def alone(self) -> "Equation":
        """The equation without those before and after it."""
        return Equation(self.sides)

    def all(self) -> tuple["Equation", ...]:
        """The equations in the order in which they are written."""
        return (*self.before, self.alone(), *self.after)


Expression = Name | Number | Words | Product | Sum | Difference | Fraction | Root | Power | Apply | Over | Equation


def renamed(part: Any, change: Callable[[Name], Name]) -> Any:
    """An expression, or a tuple of them, with every name changed."""
    if isinstance(part, Name):
        return change(part)
    if isinstance(part, tuple):
        return tuple(renamed(each, change) for each in part)
    if is_dataclass(part) and not isinstance(part, type | Number | Words):
        return replace(part, **{field.name: renamed(getattr(part, field.name), change) for field in fields(part)})
    return part
