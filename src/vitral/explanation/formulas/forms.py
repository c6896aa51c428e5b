"""Formulas in plain text, in LaTeX for pdflatex, in the LaTeX of Markdown, and in MathML Core.

One walk over the parts of a formula, whose pieces each form puts together by its own templates. The numbers have the
digits with which a written equation stays true.
"""

import html
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import ClassVar, Self

from vitral.core.language import N_
from vitral.core.latex import escape
from vitral.core.text import columns, visible
from vitral.explanation.formulas.notation import (
    EXP,
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
    argument_digits,
    needed,
    value_of,
)
from vitral.explanation.phrasebook import Phrases

MOST_TERMS = 5
"""Of a longer sum or list this many terms are written, the largest; the others are counted, those of a sum added up."""


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


WORDS = frozenset(
    (N_("sin"), N_("mean"), N_("sum"), N_("row"), N_("kept"), N_("others"), N_("scaled"), N_("masked"), N_("weights"))
)
"""Names in formulas that are words of a language; all other names are those of quantities and functions."""
NOISE = 1e-15
"""What is smaller is 0, up to the rounding of double precision."""


@dataclass(frozen=True)
class Form:
    """Writes expressions in one form: plain text, unless a subclass has other templates.

    Attributes:
        digits: after the point of numbers.
        say: the language of words.
    """

    digits: int
    say: Phrases

    BRACKETS: ClassVar = "({})"
    SIGN: ClassVar = " {} "
    COMMA: ClassVar = "{} "
    DOT: ClassVar = "·"
    SPACE: ClassVar = " "
    """Between matrices side by side."""
    APPLIED: ClassVar = "{}{}"
    TOGETHER: ClassVar = "; "
    TRANSPOSED: ClassVar = "ᵀ"
    LOOSE: ClassVar[tuple[type, ...]] = (Sum, Difference, Fraction)
    """Factors that need brackets."""

    def write(self, expression: Expression) -> str:
        """The expression in this form."""
        match expression:
            case Number():
                return self.number(self.say.number(self.written(expression)))
            case Name(letters, below):
                return self.name(replace(expression, letters=self.translated(letters), below=self.translated(below)))
            case Words(words, own):
                return self.words(words if own else self.say.translated(words))
            case Equation():
                return self.together([self.sign("=").join(self.sides(equation)) for equation in expression.all()])
            case Apply(function, arguments):
                inside = self.finer(argument_digits(expression, self.digits)).listed(arguments)
                return self.APPLIED.format(self.function(self.translated(function)), self.brackets(inside))
            case Over(index, body, sign):
                return self.over(sign, self.translated(index), self.factor(body, later=False))
        return self.arithmetic(expression)

    def arithmetic(self, expression: Sum | Product | Difference | Fraction | Root | Power) -> str:
        """An expression of operators."""
        match expression:
            case Product(factors, tight):
                written = [self.factor(factor, index > 0) for index, factor in enumerate(factors)]
                return (self.SPACE if tight else self.DOT).join(written)
            case Sum(terms):
                return "".join(self.terms(terms))
            case Difference(left, right):
                return self.write(left) + self.sign("−") + self.bracketed(right, negative=True)
            case Fraction(above, Sum((below,)) | below):
                return self.finer(needed(below, self.digits)).fraction(above, below)
            case Root(inside):
                return self.root(inside)
            case Power(base, exponent):
                # Below a root a small number has as many digits as it needs, since the root is much larger.
                is_root = isinstance(base, Number) and 0 < value_of(exponent) < 1
                return self.finer(needed(base, self.digits) if is_root else self.digits).power(base, exponent)

    def finer(self, digits: int) -> Self:
        """The same with other digits."""
        return replace(self, digits=digits)

    def sides(self, equation: Equation) -> list[str]:
        """The sides of an equation; a side written like the one before is not repeated."""
        written = [self.write(side) for side in equation.sides]
        return [side for before, side in zip(["", *written], written, strict=False) if side != before]

    def translated(self, letters: str) -> str:
        """A name; translated if it is a word."""
        return letters if letters not in WORDS or self.say.in_data else self.say.translated(letters)

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
        return number(value, decimals(digits, value, slack=slack))

    def is_negative(self, expression: Expression) -> bool:
        """Whether the written form begins with a minus sign: a number, a first factor, a numerator."""
        match expression:
            case Number():
                return self.written(expression).startswith("−")
            case Product((first, *_)) | Fraction(first):
                return self.is_negative(first)
        return False

    def bracketed(
        self, expression: Expression, *, negative: bool = False, loose: tuple[type, ...] = (Sum, Difference)
    ) -> str:
        """In brackets if it is a sum, or if `negative` and it begins with a minus sign."""
        inside = self.write(expression)
        must = isinstance(expression, loose) or (negative and self.is_negative(expression))
        return self.brackets(inside) if must else inside

    def factor(self, expression: Expression, later: bool) -> str:
        """A factor of a product, in brackets if it is a sum."""
        return self.bracketed(expression, negative=later, loose=(*self.LOOSE, Over) if later else self.LOOSE)

    def closed(self, expression: Expression, *simple: type) -> str:
        """In brackets unless it is simple and no negative number."""
        inside = self.write(expression)
        return inside if isinstance(expression, simple) and not self.is_negative(expression) else self.brackets(inside)

    def shown(self, sizes: list[float], named: int) -> list[int]:
        """The indices of the parts of a sum or list that are written: of a long one the largest.

        Args:
            sizes: of the parts; NaN for names.
            named: how many are written of a long one with names.
        """
        if self.say.whole or len(sizes) <= MOST_TERMS + 1:
            return [*range(len(sizes))]
        if any(map(math.isnan, sizes)):
            return [*range(named)]
        return sorted(sorted(range(len(sizes)), key=lambda index: -sizes[index])[:MOST_TERMS])

    def terms(self, terms: tuple[Expression, ...]) -> Iterator[str]:
        """Terms with signs between them; of a long sum the largest, then the sum of the others."""
        values = [*map(value_of, terms)]
        indices = self.shown([*map(abs, values)], len(terms))
        yield self.bracketed(terms[indices[0]]) if terms else self.number("0")
        for term in (terms[index] for index in indices[1:]):
            is_negative = self.is_negative(term)
            yield self.sign("−" if is_negative else "+")
            yield self.write(_negated(term)) if is_negative else self.bracketed(term)
        if rest := [value for index, value in enumerate(values) if index not in indices]:
            phrase = "page.more_term" if len(rest) == 1 else "page.more_terms"
            total = self.say.number(self.written(Number(math.fsum(rest))))
            yield self.sign("+") + self.words(self.say(phrase, count=len(rest), total=total))

    def listed(self, arguments: tuple[Expression, ...]) -> str:
        """Arguments with commas between them, semicolons beside decimal commas; of a long list the largest."""
        indices = self.shown([*map(value_of, arguments)], MOST_TERMS)
        left = len(arguments) - len(indices)
        gap = [self.words(self.say("page.gap", count=left))] if left else []
        return self.sign(";" if self.say.has_comma else ",").join(
            [*(self.write(arguments[index]) for index in indices), *gap]
        )

    def marks(self, above: str) -> str:
        """A superscript: a mark, as a block's number or a matrix's letter, and the sign of a transposed matrix."""
        letters = above.removesuffix("T") if above == "T" or above.startswith("(") else above.removesuffix("ᵀ")
        return (self.mark(letters) if letters else "") + (self.TRANSPOSED if letters != above else "")

    # What a form may say in another way.

    def number(self, letters: str) -> str:
        """A number, given its characters."""
        return letters

    def name(self, name: Name) -> str:
        """A quantity's name, as q[2,1] and W^Q[:,1]; letters below a letter after an underscore: √d_k."""
        short = len(name.letters) == 1 and name.below.isalpha()
        below = f"_{name.below}" if short else f"[{name.below}]" if name.below else ""
        return f"{name.letters}{self.marks(name.above)}{below}"

    def mark(self, letters: str) -> str:
        """The letters of a superscript."""
        return f"^{letters}"

    def words(self, words: str) -> str:
        """Plain words."""
        return words

    def function(self, function: str) -> str:
        """A function's name."""
        return self.words(function)

    def sign(self, sign: str) -> str:
        """An operator or relation sign."""
        return (self.COMMA if sign in ",;" else self.SIGN).format(sign)

    def brackets(self, inside: str) -> str:
        """Round brackets."""
        return self.BRACKETS.format(inside)

    def together(self, equations: list[str]) -> str:
        """Several equations that are already written."""
        return self.TOGETHER.join(equations)

    def fraction(self, above: Expression, below: Expression) -> str:
        """A fraction."""
        return f"{self.factor(above, later=False)} / {self.closed(below, Number, Name, Root, Power)}"

    def root(self, inside: Expression) -> str:
        """A square root."""
        return f"√{self.closed(inside, Name, Number)}"

    def power(self, base: Expression, exponent: Expression) -> str:
        """A power; in plain text those of e are exp(…)."""
        if base == EXP:
            return f"exp({self.write(exponent)})"
        return f"{self.closed(base, Name, Apply, Number)}^{self.closed(exponent, Number, Name)}"

    def over(self, sign: str, index: str, body: str) -> str:
        """A sum, product or choice over an index; `body` is already written."""
        return f"{sign}_{index} {body}"


def _negated(expression: Expression) -> Expression:
    """The expression without its leading minus sign."""
    match expression:
        case Product((first, *others), tight):
            return Product((_negated(first), *others), tight)
        case Fraction(above, below):
            return Fraction(_negated(above), below)
    assert isinstance(expression, Number)
    return Number(-expression.value, expression.exact)


def text(expression: Expression, digits: int, say: Phrases) -> str:
    """The expression in one line of plain text."""
    return Form(digits, say).write(expression)


def lines(equation: Equation, digits: int, say: Phrases) -> list[str]:
    """Lines of plain text: every equation with its signs of equality below one another."""
    written: list[str] = []
    for target, *others in map(Form(digits, say).sides, equation.all()):
        first = [f"{target} = {others[0]}"] if others else [target]
        written += [*first, *(f"{' ' * columns(target)} = {side}" for side in others[1:])]
    return written


def latex(expression: Expression, digits: int, say: Phrases) -> str:
    """The expression as LaTeX for math mode."""
    return _LaTeX(digits, say).write(expression)


def markdown_latex(expression: Expression, digits: int, say: Phrases) -> str:
    """The expression as LaTeX that stays intact in Markdown: no backslash before a punctuation mark.

    Several equations, and the sides of an equation, have a line each.
    """
    form = _InMarkdown(digits, say)
    written: list[str] = []  # a backslash before a newline would be one before a punctuation mark: \\cr
    for first, *others in map(form.sides, expression.all() if isinstance(expression, Equation) else ()):
        begin = [f"{first} &= {others[0]}" if others else rf"&\ {first}"]
        written += [*begin, *(f"&= {side}" for side in others[1:])]
    if len(written) < 2:
        return form.write(expression)
    inside = r" \cr ".join(written)
    return rf"\begin{{aligned}} {inside} \end{{aligned}}"


def mathml(expression: Expression, digits: int, say: Phrases) -> str:
    """The expression as a `math` element of MathML Core; an equation of several sides, one line for each."""
    form = _MathML(digits, say)
    written: list[str] = []
    for equation in expression.all() if isinstance(expression, Equation) else ():
        match equation.sides:
            case (Words(words),):  # a sentence, which may be broken
                written.append(f"<span>{_shown(say.translated(words))}</span>")
            case _:
                first, *others = form.sides(equation)
                pieces = [first + form.sign("=") + others[0] if others else first]
                written += map(_line, [*pieces, *(form.sign("=") + side for side in others[1:])])
    return "<br>".join(written or [_line(form.write(expression))])


_TEX = {
    "−": "-",
    "·": r"\cdot ",
    "∞": r"\infty ",
    "σ": r"\sigma ",
    "μ": r"\mu ",
    "ε": r"\varepsilon ",
    "Φ": r"\Phi ",
    "θ": r"\theta ",
    "π": r"\pi ",
    "…": r"\ldots ",
    "²": "^2",
    "√": r"\sqrt",
    "–": "--",
}
"""Characters of formulas in math mode."""
_OPERATORS = {"Σ": r"\sum", "Π": r"\prod"}
_FUNCTIONS = {"max": r"\max ", "sin": r"\sin ", "sen": r"\operatorname{sen} ", "cos": r"\cos "}
_WIDE = {letter: chr(ord(letter) + 0xFEE0) for letter in "\\{}$%#&^~<>|`*"} | {"\n": " "}
"""Letters that TeX, Markdown or HTML would obey, and their wide forms, which are obeyed by none."""


class _InTwoDimensions(Form):
    """A form that sets fractions, roots and powers above one another."""

    FRACTION = ROOT = POWER = ""
    LOOSE = (Sum, Difference)

    def fraction(self, above: Expression, below: Expression) -> str:
        return self.FRACTION.format(self.write(above), self.write(below))

    def root(self, inside: Expression) -> str:
        return self.ROOT.format(self.write(inside))

    def power(self, base: Expression, exponent: Expression) -> str:
        return self.POWER.format(self.closed(base, Name, Number), self.write(exponent))


class _LaTeX(_InTwoDimensions):
    BRACKETS, COMMA, DOT, SPACE, TRANSPOSED = r"\left({}\right)", r"{}\,", r" \cdot ", r"\,", r"\top"
    FRACTION, ROOT, POWER = r"\frac{{{}}}{{{}}}", r"\sqrt{{{}}}", "{{{}}}^{{{}}}"

    def number(self, letters: str) -> str:
        # A decimal comma in braces: TeX sets one without as the comma of a list, with a space after it.
        return _in_tex(letters).replace(",", "{,}")

    def name(self, name: Name) -> str:
        below = f"_{{{self.mark(name.below)}}}" if name.below else ""
        above = f"^{{{marks}}}" if (marks := self.marks(name.above)) else ""
        return self.letters(name.letters) + above + below

    def mark(self, letters: str) -> str:
        return self.letters(letters, upright=False)

    def letters(self, letters: str, *, upright: bool = True) -> str:
        plain = all(
            letter in _TEX or (letter.isascii() and (letter.isalnum() or letter in ",:;'()")) for letter in letters
        )
        return _in_tex(letters) if plain and (len(letters) == 1 or not upright) else self.words(letters)

    def words(self, words: str) -> str:
        return rf"\text{{{escape(words)}}}"

    def sign(self, sign: str) -> str:
        return super().sign(_TEX.get(sign, sign))

    def over(self, sign: str, index: str, body: str) -> str:
        symbol = _OPERATORS.get(sign, rf"\operatorname*{{{sign}}}")
        return rf"{symbol}_{{{self.letters(index)}}} {body}"

    def together(self, equations: list[str]) -> str:
        inside = r" \\ ".join(f"&{equation}" for equation in equations)
        return equations[0] if len(equations) == 1 else rf"\begin{{aligned}}{inside}\end{{aligned}}"

    def function(self, function: str) -> str:
        return _FUNCTIONS.get(function) or self.letters(function)


class _InMarkdown(_LaTeX):
    """For the Markdown of GitHub, which takes a backslash before a punctuation mark away."""

    COMMA, SPACE = "{} ", r"\ "

    def words(self, words: str) -> str:
        inside = "".join(_WIDE.get(letter, letter) for letter in visible(words))
        *parts, apart = [rf"\text{{{part}}}" if part else "" for part in inside.split("_")]
        for part in reversed(parts):
            apart = rf"{{{part}\_{apart}}}"  # in braces: without its backslash the underscore begins a subscript
        return apart


class _MathML(_InTwoDimensions):
    # Invisible operators that a screen reader speaks: times, and a function of; after times a space for the eye.
    DOT, SPACE = "<mo>·</mo>", "<mo>&#x2062;</mo><mtext>&#xa0;</mtext>"
    APPLIED = "<mrow>{}<mo>&#x2061;</mo>{}</mrow>"
    SIGN = COMMA = "<mo>{}</mo>"
    TOGETHER, TRANSPOSED = "<mo>;</mo>", "<mo>⊤</mo>"
    FRACTION, ROOT = "<mfrac><mrow>{}</mrow><mrow>{}</mrow></mfrac>", "<msqrt>{}</msqrt>"
    POWER = "<msup>{}<mrow>{}</mrow></msup>"

    def number(self, letters: str) -> str:
        if letters.startswith("−"):
            return f"<mrow><mo>−</mo>{self.number(letters[1:])}</mrow>"
        return "<mi>∞</mi>" if letters == "∞" else f"<mn>{letters}</mn>"

    def name(self, name: Name) -> str:
        base, below, above = self.mark(name.letters), _subscript(name.below), self.marks(name.above)
        above = f"<mrow>{above}</mrow>" if above.count("<m") > 1 else above
        tag = f"{'sub' if name.below else ''}{'sup' if name.above else ''}"
        inside = base + (below if name.below else "") + above
        return f"<m{tag}>{inside}</m{tag}>" if tag else base

    def mark(self, letters: str) -> str:
        return f"<mi>{_shown(letters)}</mi>"

    def words(self, words: str) -> str:
        return f"<mtext>{_shown(words)}</mtext>"

    def function(self, function: str) -> str:
        return self.mark(function)

    def brackets(self, inside: str) -> str:
        # Brackets that need not grow stand close to what is in them.
        size = "" if "<mfrac>" in inside or "<munder>" in inside else ' stretchy="false"'
        return f"<mrow><mo{size}>(</mo>{inside}<mo{size}>)</mo></mrow>"

    def over(self, sign: str, index: str, body: str) -> str:
        symbol = {"Σ": "<mo>∑</mo>", "Π": "<mo>∏</mo>"}.get(sign)
        if symbol is None:  # a function of the index, as argmax
            symbol, body = self.mark(sign), f"<mo>&#x2061;</mo><mtext>&#xa0;</mtext>{body}"
        return f"<mrow><munder>{symbol}{self.mark(index)}</munder>{body}</mrow>"


def _in_tex(letters: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in letters)


def _line(inside: str) -> str:
    return f"<math>{inside}</math>"


def _shown(letters: str) -> str:
    """Letters for a page: HTML escaped, invisible characters made visible."""
    return html.escape(visible(letters))


def _subscript(below: str) -> str:
    """A subscript: numbers and letters with commas between them, or a word."""
    tags = [
        f"<mn>{part}</mn>" if part.isdecimal() else "<mo>:</mo>" if part == ":" else f"<mi>{_shown(part)}</mi>"
        for part in below.split(",")
    ]
    return f"<mrow>{'<mo>,</mo>'.join(tags)}</mrow>" if len(tags) > 1 else tags[0]
