"""The writing of formulas, common to all forms: brackets, truncation of long sums, digits of numbers."""

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from decimal import Decimal

from vitral.core.language import N_
from vitral.explanation.formulas.notation import (
    Apply,
    Difference,
    Equation,
    Expression,
    Fraction,
    Name,
    Number,
    Over,
    Power,
    Product,
    Root,
    Sum,
    Words,
)
from vitral.explanation.phrasebook import Phrases

EXP = Name("e")
"""The base of the exponential function; plain text writes its powers as exp(…)."""
WORDS = frozenset((N_("sin"), N_("rotate"), N_("mean"), N_("position"), N_("count"), N_("row"), N_("kept")))
"""Names in formulas that are words of a language; all other names are those of quantities and functions."""
MOST_TERMS = 5
"""A longer sum or list is truncated after this many terms; the others are counted and, if they are numbers, summed."""


def number(value: float, digits: int) -> str:
    """A number with a fixed number of decimals, with the signs ∞ and −, and no minus before zero.

    >>> number(-1.25, 1), number(-0.0001, 3), number(-math.inf, 3)
    ('−1.2', '0.000', '−∞')
    """
    if math.isnan(value):
        return "?"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    written = f"{value:.{digits}f}"
    negative = written.startswith("-") and float(written) != 0
    return f"−{written[1:]}" if negative else written.removeprefix("-")


def value_of(expression: Expression) -> float:
    """The value of an expression of numbers; NaN if it contains names or divides by zero."""
    try:
        return _worth(expression)
    except OverflowError:
        return math.inf
    except (ZeroDivisionError, ValueError):
        return math.nan


def _worth(expression: Expression) -> float:
    match expression:
        case Number(value):
            return value
        case Product(factors):
            return math.prod(map(_worth, factors))
        case Sum(terms):
            return math.fsum(map(_worth, terms))
        case Difference(left, right):
            return _worth(left) - _worth(right)
        case Fraction(above, below):
            return _worth(above) / _worth(below)
        case Root(inside):
            return math.sqrt(_worth(inside))
        case Power(base, exponent):
            return math.pow(math.e if base == EXP else _worth(base), _worth(exponent))
        case _:
            return math.nan


class FormulaWriter(ABC):
    """Writes expressions in one form. Subclasses say how pieces are put together; the brackets are the same in all."""

    def __init__(self, digits: int, say: Phrases) -> None:
        """Write numbers with `digits` decimals, and words in the language of `say`."""
        self.digits, self.say = digits, say

    def write(self, expression: Expression) -> str:
        """The expression in this form."""
        match expression:
            case Number():
                return self.number(self.say.number(self.written(expression)))
            case Name(letters, below):
                return self.name(replace(expression, letters=self.told(letters), below=self.told(below)))
            case Words(words):
                return self.words(self.say.told(words))
            case Equation():
                return self.joined(self.between(self.sides(expression), self.sign("=")))
            case Apply(function, arguments):
                return self.joined([self.function(self.told(function)), self.brackets(self.listed(arguments))])
            case _:
                return self.arithmetic(expression)

    def sides(self, equation: Equation) -> list[str]:
        """The sides of an equation; a side written like the one before is not repeated."""
        written = [self.write(side) for side in equation.sides]
        return [side for before, side in zip(["", *written], written, strict=False) if side != before]

    def arithmetic(self, expression: Expression) -> str:
        """An expression that has operands."""
        match expression:
            case Product(factors, tight):
                return self.product([self.factor(factor, place > 0) for place, factor in enumerate(factors)], tight)
            case Sum(terms):
                return self.sum(terms)
            case Difference(left, right):
                return self.joined([self.write(left), self.sign("−"), self.bracketed(right, negative=True)])
            case Fraction(above, below):
                return self.fraction(above, below)
            case Root(inside):
                return self.root(inside)
            case Power(base, exponent):
                return self.power(base, exponent)
            case Over(index, body):
                return self.over(self.told(index), self.factor(body, later=False))
            case _:
                raise TypeError(f"cannot write {type(expression).__name__}")

    def told(self, letters: str) -> str:
        """A name; translated if it is a word."""
        return self.say.told(letters) if letters in WORDS else letters

    def written(self, expression: Number) -> str:
        """The characters of a number, with a decimal point."""
        value, digits = expression.value, self.digits
        if not math.isfinite(value):
            return number(value, digits)
        if expression.exact:
            return f"{Decimal(repr(float(value) + 0.0)):f}".removesuffix(".0").replace("-", "−")
        # Without trailing zeros: 0.5, not 0.500.
        shortest = next((fewer for fewer in range(digits) if abs(round(value, fewer) - value) < 1e-9), digits)
        return number(value, shortest)

    def is_negative(self, expression: Expression) -> bool:
        """Whether the written form begins with a minus sign: a number, a first factor, a numerator."""
        match expression:
            case Number():
                return self.written(expression).startswith("−")
            case Product((first, *_)) | Fraction(first):
                return self.is_negative(first)
            case _:
                return False

    def factor(self, expression: Expression, later: bool) -> str:
        """A factor of a product, in brackets if it is a sum."""
        loose = isinstance(expression, Sum | Difference) or (isinstance(expression, Over) and later)
        return self.bracketed(expression, negative=later) if not loose else self.brackets(self.write(expression))

    def bracketed(self, expression: Expression, *, negative: bool) -> str:
        """In brackets if it is a sum, or if `negative` and it begins with a minus sign."""
        inside = self.write(expression)
        must = isinstance(expression, Sum | Difference) or (negative and self.is_negative(expression))
        return self.brackets(inside) if must else inside

    def sum(self, terms: tuple[Expression, ...]) -> str:
        """Terms with signs between them; a long sum truncated, with the sum of the omitted terms."""
        shown, rest = (terms, ()) if self.say.whole else _shortened(terms)
        pieces = [self.bracketed(shown[0], negative=False)] if shown else [self.number("0")]
        for term in shown[1:]:
            pieces += (
                [self.sign("−"), self.write(_negated(term))]
                if self.is_negative(term)
                else [self.sign("+"), self.bracketed(term, negative=False)]
            )
        if rest:
            total = self.say.number(self.written(Number(math.fsum(map(value_of, rest)))))
            phrase = "page.more_term" if len(rest) == 1 else "page.more_terms"
            pieces += [self.sign("+"), self.words(self.say(phrase, count=len(rest), total=total))]
        return self.joined(pieces)

    def listed(self, arguments: tuple[Expression, ...]) -> str:
        """Arguments with commas between them, semicolons beside decimal commas; a long list truncated."""
        shown = arguments if self.say.whole or len(arguments) <= MOST_TERMS + 1 else arguments[:MOST_TERMS]
        gap = [self.words(self.say("page.gap", count=len(arguments) - len(shown)))] if shown != arguments else []
        return self.joined(self.between([*map(self.write, shown), *gap], self.sign(";" if self.say.has_comma else ",")))

    @staticmethod
    def between(pieces: list[str], sign: str) -> list[str]:
        """The pieces with a sign between each pair of neighbours."""
        return [part for piece in pieces for part in (sign, piece)][1:]

    @staticmethod
    def joined(pieces: list[str]) -> str:
        """Concatenate pieces."""
        return "".join(pieces)

    @abstractmethod
    def number(self, letters: str) -> str:
        """A number, given its characters."""

    @abstractmethod
    def name(self, name: Name) -> str:
        """A quantity's name."""

    @abstractmethod
    def words(self, words: str) -> str:
        """Plain words."""

    @abstractmethod
    def sign(self, sign: str) -> str:
        """An operator or relation sign."""

    @abstractmethod
    def brackets(self, inside: str) -> str:
        """Round brackets."""

    @abstractmethod
    def product(self, factors: list[str], tight: bool) -> str:
        """A product of factors that are already written, and bracketed where needed."""

    @abstractmethod
    def fraction(self, above: Expression, below: Expression) -> str:
        """A fraction."""

    @abstractmethod
    def root(self, inside: Expression) -> str:
        """A square root."""

    @abstractmethod
    def power(self, base: Expression, exponent: Expression) -> str:
        """A power."""

    @abstractmethod
    def over(self, index: str, body: str) -> str:
        """A sum over an index; `body` is already written."""

    @abstractmethod
    def function(self, function: str) -> str:
        """A function's name."""


def _negated(expression: Expression) -> Expression:
    """The expression without its leading minus sign."""
    match expression:
        case Number(value, exact):
            return Number(-value, exact)
        case Product((first, *others), tight):
            return Product((_negated(first), *others), tight)
        case Fraction(above, below):
            return Fraction(_negated(above), below)
        case _:
            raise TypeError(f"{type(expression).__name__} has no sign")


def _shortened(terms: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], tuple[Expression, ...]]:
    """The terms that are written, and those that are only counted and summed; names are all written."""
    if len(terms) <= MOST_TERMS + 1 or any(math.isnan(value_of(term)) for term in terms):
        return terms, ()
    return terms[:MOST_TERMS], terms[MOST_TERMS:]
