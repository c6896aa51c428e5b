"""Formulas and arithmetic as small trees, written in three scripts: plain text, MathML and LaTeX."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Name:
    """A quantity or function by its letters, with what stands below and above: q₂, Wᑫ, scores[2, 1].

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
    """A number, written with as many digits as the reader asked for; `exact` ones (sizes, counts) as they are."""

    value: float
    exact: bool = False


@dataclass(frozen=True)
class Words:
    """Plain words inside a formula."""

    text: str


@dataclass(frozen=True)
class Product:
    """Factors with a point between them, or, for matrices, side by side (`tight`)."""

    factors: tuple["Expression", ...]
    tight: bool = False


@dataclass(frozen=True)
class Sum:
    """Terms; negative ones are written with a minus sign between.

    Of a long sum the writer leaves out the last ones, says how many they are and what they come to.
    """

    terms: tuple["Expression", ...]


@dataclass(frozen=True)
class Difference:
    """One thing less another."""

    left: "Expression"
    right: "Expression"


@dataclass(frozen=True)
class Fraction:
    """One thing over another."""

    above: "Expression"
    below: "Expression"


@dataclass(frozen=True)
class Root:
    """A square root."""

    inside: "Expression"


@dataclass(frozen=True)
class Power:
    """A base with an exponent, as e to the x or the square of something."""

    base: "Expression"
    exponent: "Expression"


@dataclass(frozen=True)
class Apply:
    """A function of arguments: softmax(x), Concat(a, b)."""

    function: str
    arguments: tuple["Expression", ...]


@dataclass(frozen=True)
class Over:
    """A sum sign over an index: Σ_j body."""

    index: str
    body: "Expression"


@dataclass(frozen=True)
class Equation:
    """Things that are equal, one after the other."""

    sides: tuple["Expression", ...]


Expression = Name | Number | Words | Product | Sum | Difference | Fraction | Root | Power | Apply | Over | Equation
