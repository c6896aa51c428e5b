"""Formulas and arithmetic in three scripts: plain text, MathML and LaTeX.

Each script is a small class of the same protocol; one walk over the tree serves all three.
"""

import html
import math
from abc import ABC, abstractmethod

from vitral.explain.notation import (
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
from vitral.explain.phrases import Phrases

MOST_TERMS = 6
"""Of a longer sum or list the first of them are written; the rest is counted and, where it is numbers, added up."""


def number(value: float, digits: int) -> str:
    """A number to so many digits, with ∞ and the minus sign as they are written by hand, and no minus before zero.

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


def text(expression: Expression, digits: int, say: Phrases) -> str:
    """The expression in one line of plain text."""
    return _Text(digits, say).write(expression)


def mathml(expression: Expression, digits: int, say: Phrases) -> str:
    """The expression as a `math` element, of MathML Core alone."""
    return f"<math>{_MathML(digits, say).write(expression)}</math>"


def latex(expression: Expression, digits: int, say: Phrases) -> str:
    """The expression as LaTeX, to stand in math mode."""
    return _LaTeX(digits, say).write(expression)


def value_of(expression: Expression) -> float:
    """What an expression of numbers comes to; not a number where it holds names."""
    match expression:
        case Number(value):
            return value
        case Product(factors):
            return math.prod(map(value_of, factors))
        case Sum(terms):
            return math.fsum(map(value_of, terms))
        case Difference(left, right):
            return value_of(left) - value_of(right)
        case Fraction(above, below):
            return value_of(above) / value_of(below)
        case Power(Name("e"), exponent):
            return math.exp(value_of(exponent))
        case Power(base, exponent):
            return value_of(base) ** value_of(exponent)
        case _:
            return math.nan


class _Script(ABC):
    """One script: how pieces are put together; what is put in brackets is the same in all."""

    def __init__(self, digits: int, say: Phrases) -> None:
        self.digits, self.say = digits, say

    def write(self, expression: Expression) -> str:
        """The expression."""
        match expression:
            case Number():
                return self.number(self.written(expression))
            case Name():
                return self.name(expression)
            case Words(words):
                return self.words(words)
            case Equation(sides):
                written = [self.write(side) for side in sides]
                once = [side for before, side in zip(["", *written], written, strict=False) if side != before]
                return self.joined(self.between(once, self.sign("=")))
            case Apply(function, arguments):
                return self.joined([self.function(function), self.brackets(self.listed(arguments))])
            case _:
                return self.arithmetic(expression)

    def arithmetic(self, expression: Expression) -> str:
        """The expressions that have terms, factors or parts of fractions."""
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
                return self.over(index, self.factor(body, later=False))
            case _:
                raise TypeError(f"no script for {type(expression).__name__}")

    def written(self, expression: Number) -> str:
        """A number's letters."""
        value, digits = expression.value, self.digits
        if not math.isfinite(value):
            return number(value, digits)
        if expression.exact:
            return f"{value:g}".replace("-", "−")
        # A short number is written short: 0.5, not 0.500.
        shortest = next((fewer for fewer in range(digits) if abs(round(value, fewer) - value) < 1e-9), digits)
        return number(value, shortest)

    def is_negative(self, expression: Expression) -> bool:
        """Whether a number is written with a minus sign, alone or as the first factor."""
        if isinstance(expression, Product) and expression.factors:
            return self.is_negative(expression.factors[0])
        return isinstance(expression, Number) and self.written(expression).startswith("−")

    def factor(self, expression: Expression, later: bool) -> str:
        """In brackets where a product would tear it apart."""
        loose = isinstance(expression, Sum | Difference) or (isinstance(expression, Over) and later)
        return self.bracketed(expression, negative=later) if not loose else self.brackets(self.write(expression))

    def bracketed(self, expression: Expression, *, negative: bool) -> str:
        """In brackets if it is a sum, or begins with a minus sign where that must not stand."""
        inside = self.write(expression)
        must = isinstance(expression, Sum | Difference) or (negative and self.is_negative(expression))
        return self.brackets(inside) if must else inside

    def sum(self, terms: tuple[Expression, ...]) -> str:
        """Terms with their signs between; of many the first ones, and what the rest comes to."""
        shown, rest = _shortened(terms)
        pieces = [self.write(shown[0])] if shown else [self.number("0")]
        for term in shown[1:]:
            pieces += (
                [self.sign("−"), self.less(term)] if self.is_negative(term) else [self.sign("+"), self.write(term)]
            )
        if rest:
            total = number(math.fsum(map(value_of, rest)), self.digits)
            phrase = "page.more_term" if len(rest) == 1 else "page.more_terms"
            pieces += [self.sign("+"), self.words(self.say(phrase, count=len(rest), total=total))]
        return self.joined(pieces)

    def less(self, term: Expression) -> str:
        """A negative term without its sign."""
        if isinstance(term, Number):
            return self.number(self.written(term)[1:])
        assert isinstance(term, Product)
        first, *others = term.factors
        return self.product([self.less(first), *(self.factor(other, True) for other in others)], term.tight)

    def listed(self, arguments: tuple[Expression, ...]) -> str:
        """Arguments with commas between."""
        written = [self.write(argument) for argument in arguments[:MOST_TERMS]]
        dots = [self.words("…")] if len(arguments) > MOST_TERMS else []
        return self.joined(self.between([*written, *dots], self.sign(",")))

    @staticmethod
    def between(pieces: list[str], sign: str) -> list[str]:
        """The pieces with a sign between each two."""
        return [part for piece in pieces for part in (sign, piece)][1:]

    @abstractmethod
    def joined(self, pieces: list[str]) -> str: ...

    @abstractmethod
    def number(self, letters: str) -> str: ...

    @abstractmethod
    def name(self, name: Name) -> str: ...

    @abstractmethod
    def words(self, words: str) -> str: ...

    @abstractmethod
    def sign(self, sign: str) -> str: ...

    @abstractmethod
    def brackets(self, inside: str) -> str: ...

    @abstractmethod
    def product(self, factors: list[str], tight: bool) -> str: ...

    @abstractmethod
    def fraction(self, above: Expression, below: Expression) -> str: ...

    @abstractmethod
    def root(self, inside: Expression) -> str: ...

    @abstractmethod
    def power(self, base: Expression, exponent: Expression) -> str: ...

    @abstractmethod
    def over(self, index: str, body: str) -> str: ...

    @abstractmethod
    def function(self, function: str) -> str: ...


class _Text(_Script):
    """q[2,1] = x[2]·W^Q[:,1] in plain letters."""

    def joined(self, pieces: list[str]) -> str:
        return "".join(pieces)

    def number(self, letters: str) -> str:
        return letters

    def name(self, name: Name) -> str:
        above = {"": "", "T": "ᵀ"}.get(name.above, f"^{name.above}")
        return f"{name.letters}{above}" + (f"[{name.below}]" if name.below else "")

    def words(self, words: str) -> str:
        return words

    def sign(self, sign: str) -> str:
        return ", " if sign == "," else f" {sign} "

    def brackets(self, inside: str) -> str:
        return f"({inside})"

    def product(self, factors: list[str], tight: bool) -> str:
        return (" " if tight else "·").join(factors)

    def fraction(self, above: Expression, below: Expression) -> str:
        top = self.factor(above, later=False)
        bottom = self.write(below)
        simple = isinstance(below, Number | Name | Root) and not self.is_negative(below)
        return f"{top} / {bottom if simple else self.brackets(bottom)}"

    def root(self, inside: Expression) -> str:
        return (
            f"√{self.write(inside)}"
            if isinstance(inside, Name) or (isinstance(inside, Number) and not self.is_negative(inside))
            else f"√({self.write(inside)})"
        )

    def power(self, base: Expression, exponent: Expression) -> str:
        if base == Name("e"):
            return f"exp({self.write(exponent)})"
        raised = self.write(exponent)
        simple = isinstance(exponent, Number | Name) and not self.is_negative(exponent)
        below = (
            self.write(base)
            if isinstance(base, Name | Apply) or (isinstance(base, Number) and not self.is_negative(base))
            else self.brackets(self.write(base))
        )
        return f"{below}^{raised if simple else self.brackets(raised)}"

    def over(self, index: str, body: str) -> str:
        return f"Σ_{index} {body}"

    def function(self, function: str) -> str:
        return function


class _MathML(_Script):
    """MathML Core."""

    def joined(self, pieces: list[str]) -> str:
        return f"<mrow>{''.join(pieces)}</mrow>"

    def number(self, letters: str) -> str:
        if letters.startswith("−"):
            return f"<mrow><mo>−</mo>{self.number(letters[1:])}</mrow>"
        return "<mi>∞</mi>" if letters == "∞" else f"<mn>{letters}</mn>"

    def name(self, name: Name) -> str:
        base = f"<mi>{html.escape(name.letters)}</mi>"
        below = f"<mtext>{html.escape(name.below)}</mtext>"
        above = f"<mi>{html.escape(name.above)}</mi>"
        if name.below and name.above:
            return f"<msubsup>{base}{below}{above}</msubsup>"
        if name.below:
            return f"<msub>{base}{below}</msub>"
        return f"<msup>{base}{above}</msup>" if name.above else base

    def words(self, words: str) -> str:
        return f"<mtext>{html.escape(words)}</mtext>"

    def sign(self, sign: str) -> str:
        return f"<mo>{sign}</mo>"

    def brackets(self, inside: str) -> str:
        return f"<mrow><mo>(</mo>{inside}<mo>)</mo></mrow>"

    def product(self, factors: list[str], tight: bool) -> str:
        return self.joined(factors if tight else self.between(factors, "<mo>·</mo>"))

    def fraction(self, above: Expression, below: Expression) -> str:
        return f"<mfrac>{self.joined([self.write(above)])}{self.joined([self.write(below)])}</mfrac>"

    def root(self, inside: Expression) -> str:
        return f"<msqrt>{self.write(inside)}</msqrt>"

    def power(self, base: Expression, exponent: Expression) -> str:
        loose = not isinstance(base, Name) and not (isinstance(base, Number) and not self.is_negative(base))
        below = self.brackets(self.write(base)) if loose else self.write(base)
        return f"<msup>{below}{self.joined([self.write(exponent)])}</msup>"

    def over(self, index: str, body: str) -> str:
        return f"<mrow><munder><mo>∑</mo><mi>{html.escape(index)}</mi></munder>{body}</mrow>"

    def function(self, function: str) -> str:
        return f"<mi>{html.escape(function)}</mi>"


_TEX = {
    "−": "-",
    "·": r"\cdot ",
    "∞": r"\infty ",
    "σ": r"\sigma ",
    "μ": r"\mu ",
    "ε": r"\varepsilon ",
    "Φ": r"\Phi ",
    "Π": r"\prod ",
    "…": r"\ldots ",
    "²": "^2",
    "√": r"\sqrt",
    "–": "--",
}
_TEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    "_": r"\_",
    "%": r"\%",
    "&": r"\&",
    "#": r"\#",
    "$": r"\$",
    "{": r"\{",
    "}": r"\}",
    "^": r"\^{}",
    "~": r"\~{}",
}


class _LaTeX(_Script):
    """LaTeX's math mode, with amsmath."""

    def joined(self, pieces: list[str]) -> str:
        return "".join(pieces)

    def number(self, letters: str) -> str:
        return "".join(_TEX.get(letter, letter) for letter in letters)

    def name(self, name: Name) -> str:
        base = self.letters(name.letters)
        below = f"_{{{self.letters(name.below, upright=False)}}}" if name.below else ""
        above = {"": "", "T": r"^{\top}"}.get(name.above, f"^{{{self.letters(name.above, upright=False)}}}")
        return f"{base}{above}{below}"

    def letters(self, letters: str, *, upright: bool = True) -> str:
        plain = all(
            letter in _TEX or (letter.isascii() and (letter.isalnum() or letter in ",:;'")) for letter in letters
        )
        if plain and (len(letters) == 1 or not upright):
            return "".join(_TEX.get(letter, letter) for letter in letters)
        return rf"\mathrm{{{self.number(self.escaped(letters))}}}"

    @staticmethod
    def escaped(words: str) -> str:
        return "".join(_TEX_ESCAPES.get(letter, letter) for letter in words)

    def words(self, words: str) -> str:
        inside = "".join(
            {"−": r"\ensuremath{-}", "…": r"\ldots ", "∞": r"\ensuremath{\infty}"}.get(letter, letter)
            for letter in self.escaped(words)
        )
        return rf"\text{{{inside}}}"

    def sign(self, sign: str) -> str:
        return ",\\," if sign == "," else f" {_TEX.get(sign, sign)} "

    def brackets(self, inside: str) -> str:
        return rf"\left({inside}\right)"

    def product(self, factors: list[str], tight: bool) -> str:
        return (r"\," if tight else r" \cdot ").join(factors)

    def fraction(self, above: Expression, below: Expression) -> str:
        return rf"\frac{{{self.write(above)}}}{{{self.write(below)}}}"

    def root(self, inside: Expression) -> str:
        return rf"\sqrt{{{self.write(inside)}}}"

    def power(self, base: Expression, exponent: Expression) -> str:
        loose = not isinstance(base, Name) and not (isinstance(base, Number) and not self.is_negative(base))
        below = self.brackets(self.write(base)) if loose else self.write(base)
        return f"{{{below}}}^{{{self.write(exponent)}}}"

    def over(self, index: str, body: str) -> str:
        below = index if len(index) == 1 else rf"\text{{{index}}}"
        return rf"\sum_{{{below}}} {body}"

    def function(self, function: str) -> str:
        return (
            r"\max"
            if function == "max"
            else rf"\operatorname{{{self.number(self.escaped(function)).replace('^2', '')}}}"
            + ("^2" if "²" in function else "")
        )


def _shortened(terms: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], tuple[Expression, ...]]:
    """The terms that are written, and those that are only counted: numbers alone can be added up."""
    if len(terms) <= MOST_TERMS + 1 or any(math.isnan(value_of(term)) for term in terms):
        return terms, ()
    return terms[:MOST_TERMS], terms[MOST_TERMS:]
