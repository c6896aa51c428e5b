"""The writing of formulas, common to all forms: brackets, truncation of long sums, digits of numbers."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
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
WORDS = frozenset((N_("sin"), N_("mean"), N_("row"), N_("kept"), N_("others")))
"""Names in formulas that are words of a language; all other names are those of quantities and functions."""
MOST_TERMS = 5
"""Of a longer sum or list this many terms are written, the largest; the others are counted, those of a sum added up."""
SURE = 0.9
"""The numbers of a denominator have so many digits that their roundings leave this share of its value at least."""
MOST_DECIMALS = 330
"""No number of double precision needs more."""
NOISE = 1e-15
"""What is smaller is 0, up to the rounding of double precision."""


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
        case Apply("max" | "min" as function, arguments):
            worths = [*map(_worth, arguments)]
            return math.nan if any(map(math.isnan, worths)) else max(worths) if function == "max" else min(worths)
        case Name("π"):
            return math.pi
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
            case Words(words, own):
                return self.words(words if own else self.say.told(words))
            case Equation():
                return self.together([self.one(each) for each in expression.all()])
            case Apply(function, arguments):
                digits, self.digits = self.digits, _argument_digits(expression, self.digits)
                written = self.applied(self.function(self.told(function)), self.brackets(self.listed(arguments)))
                self.digits = digits
                return written
            case _:
                return self.arithmetic(expression)

    def one(self, equation: Equation) -> str:
        """One equation, without those before and after it."""
        return self.joined(self.between(self.sides(equation), self.sign("=")))

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
                return self.divided(above, below)
            case Root(inside):
                return self.root(inside)
            case Power(base, exponent):
                return self.raised(base, exponent)
            case Over(index, body, sign):
                return self.over(sign, self.told(index), self.factor(body, later=False))
            case _:
                raise TypeError(f"cannot write {type(expression).__name__}")

    def divided(self, above: Expression, below: Expression) -> str:
        """A fraction; both parts with more digits if the rounded denominator would be far from the true one, or 0."""
        if isinstance(below, Sum) and len(below.terms) == 1:
            below = below.terms[0]
        digits = self.digits
        self.digits = _needed(below, digits)
        written = self.fraction(above, below)
        self.digits = digits
        return written

    def raised(self, base: Expression, exponent: Expression) -> str:
        """A power; a small number below a root with as many digits as it needs, since the root is much larger."""
        digits = self.digits
        if isinstance(base, Number) and 0 < value_of(exponent) < 1:
            self.digits = _needed(base, digits)
        written = self.power(base, exponent)
        self.digits = digits
        return written

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
        if NOISE < abs(value) < 0.5 * 10.0**-digits:
            return number(value, digits)  # 0.000: rounded, and not 0
        slack = max(min(1e-9, 10.0 ** -(digits + 6)), 1e-16 * abs(value))
        shortest = next((fewer for fewer in range(digits) if abs(round(value, fewer) - value) < slack), digits)
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
        """Terms with signs between them; of a long sum the largest, then the sum of the others."""
        shown, rest = _shortened(terms, whole=self.say.whole)
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
        """Arguments with commas between them, semicolons beside decimal commas; of a long list the largest."""
        is_cut = len(arguments) > MOST_TERMS + 1 and not self.say.whole
        shown = _largest(arguments, value_of) if is_cut else arguments
        gap = [self.words(self.say("page.gap", count=len(arguments) - len(shown)))] if shown != arguments else []
        return self.joined(self.between([*map(self.write, shown), *gap], self.sign(";" if self.say.has_comma else ",")))

    @staticmethod
    def between(pieces: list[str], sign: str) -> list[str]:
        """The pieces with a sign between each pair of neighbours."""
        return [part for piece in pieces for part in (sign, piece)][1:]

    @staticmethod
    def marks(above: str, mark: Callable[[str], str], transposed: str) -> str:
        """A superscript: a mark, as a block's number or a matrix's letter, and the sign of a transposed matrix."""
        letters = above.removesuffix("T") if above == "T" or above.startswith("(") else above.removesuffix("ᵀ")
        return (mark(letters) if letters else "") + (transposed if letters != above else "")

    def applied(self, function: str, arguments: str) -> str:
        """A function and its arguments, both already written."""
        return self.joined([function, arguments])

    @abstractmethod
    def together(self, equations: list[str]) -> str:
        """Several equations that are already written."""

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
    def over(self, sign: str, index: str, body: str) -> str:
        """A sum, product or choice over an index; `body` is already written."""

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


Terms = tuple[Expression, ...]


def _shortened(terms: Terms, *, whole: bool = False) -> tuple[Terms, Terms]:
    """The terms that are written, and those that are only counted and summed; names are all written.

    Those that are written are the largest in size, or all if `whole`, in the order of the sum.
    """
    sizes = [abs(value_of(term)) for term in terms]
    if any(map(math.isnan, sizes)):
        return terms, ()
    order = sorted(range(len(terms)), key=lambda place: -sizes[place])
    shown = order if whole or len(terms) <= MOST_TERMS + 1 else order[:MOST_TERMS]
    rest = tuple(terms[place] for place in sorted(order[len(shown) :]))
    return tuple(terms[place] for place in sorted(shown)), rest


def _largest(terms: Terms, size: Callable[[Expression], float]) -> Terms:
    """The largest terms in their order; the first ones of names."""
    sizes = [size(term) for term in terms]
    if any(map(math.isnan, sizes)):
        return terms[:MOST_TERMS]
    return tuple(
        terms[place] for place in sorted(sorted(range(len(terms)), key=lambda place: -sizes[place])[:MOST_TERMS])
    )


def _needed(below: Expression, digits: int) -> int:
    """The decimals that the numbers of a denominator need, at least `digits`."""
    inside = below.inside if isinstance(below, Root) else below
    size = abs(value_of(inside))
    if not 0 < size < math.inf:
        return digits
    for more in range(digits, MOST_DECIMALS):
        low, high = bounds(inside, more)
        if min(abs(low), abs(high)) >= SURE * size and low * high > 0:
            return more
    return digits


def _argument_digits(function: Apply, digits: int) -> int:
    """The decimals that the argument of a logarithm or of a step needs: not 0, and on the same side of the step."""
    if function.function == "log" and len(function.arguments) == 1:
        return _needed(function.arguments[0], digits)
    if function.function == "floor" and len(function.arguments) == 1:
        value = value_of(function.arguments[0])
        if math.isfinite(value):
            same = (
                more for more in range(digits, MOST_DECIMALS) if math.floor(round(value, more)) == math.floor(value)
            )
            return next(same, digits)
    return digits


def _spread_of(value: float, digits: int, exact: bool) -> tuple[float, float]:
    half = 0.0 if exact else 0.5 * 10.0**-digits
    return value - half, value + half


def bounds(expression: Expression, digits: int) -> tuple[float, float]:
    """The least and the largest value of an expression whose numbers are rounded to so many decimals."""
    match expression:
        case Number(value, exact):
            return _spread_of(value, digits, exact)
        case Sum(terms):
            shown, rest = _shortened(terms)
            parts = [bounds(term, digits) for term in shown]
            parts += [_spread_of(math.fsum(map(value_of, rest)), digits, exact=False)] if rest else []
            return math.fsum(low for low, _ in parts), math.fsum(high for _, high in parts)
        case Difference(left, right):
            (one, two), (three, four) = bounds(left, digits), bounds(right, digits)
            return one - four, two - three
        case Product(factors):
            low, high = 1.0, 1.0
            for factor in factors:
                ends = [end * other for end in (low, high) for other in bounds(factor, digits)]
                low, high = min(ends), max(ends)
            return low, high
        case Fraction(above, below):
            (one, two), (three, four) = bounds(above, digits), bounds(below, max(digits, _needed(below, digits)))
            ends = [end / other for end in (one, two) for other in (three, four) if other]
            return min(ends, default=0.0), max(ends, default=0.0)
        case Power(base, exponent) if base != EXP:
            low, high = bounds(base, digits)
            times = value_of(exponent)
            return max(low, 0.0) ** times, max(abs(low), abs(high)) ** times
        case _:
            return value_of(expression), value_of(expression)
