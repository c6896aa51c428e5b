"""The parts of formulas and arithmetic: a formula is a tree of these."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Name:
    """A quantity or function, with subscript and superscript: q₂, Wᑫ, scores[2, 1].

    Attributes:
        letters: "q", "W", "scores"; one letter is set in italics, a word upright.
        below: subscript, as "2", "2,1" or "Q".
        above: superscript, as "T".
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
    """Plain words inside a formula."""

    text: str


@dataclass(frozen=True)
class Product:
    """Factors with a multiplication dot between them; matrices side by side (`tight`)."""

    factors: tuple["Expression", ...]
    tight: bool = False


@dataclass(frozen=True)
class Sum:
    """Terms; a negative term is written with a minus sign.

    A long sum is truncated after its first terms, followed by the number and the sum of the others.
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
    """A function of arguments: softmax(x), Concat(a, b)."""

    function: str
    arguments: tuple["Expression", ...]


@dataclass(frozen=True)
class Over:
    """A sum over an index: Σ_j body."""

    index: str
    body: "Expression"


@dataclass(frozen=True)
class Equation:
    """Two or more equal sides."""

    sides: tuple["Expression", ...]


Expression = Name | Number | Words | Product | Sum | Difference | Fraction | Root | Power | Apply | Over | Equation
