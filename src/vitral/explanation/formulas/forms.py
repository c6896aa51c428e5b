"""Formulas in plain text, in LaTeX for pdflatex, in the LaTeX of Markdown, and in MathML Core."""

import html

from vitral.core.latex import escape
from vitral.core.text import columns, visible
from vitral.explanation.formulas.notation import Difference, Equation, Expression, Name, Number, Sum, Words
from vitral.explanation.formulas.writer import Form
from vitral.explanation.phrasebook import Phrases


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
                written.append(f"<span>{_shown(say.told(words))}</span>")
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
        base, below, above = self.mark(name.letters), _places(name.below), self.marks(name.above)
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


def _places(below: str) -> str:
    """A subscript: places and letters with commas between them, or a word."""
    tags = [
        f"<mn>{part}</mn>" if part.isdecimal() else "<mo>:</mo>" if part == ":" else f"<mi>{_shown(part)}</mi>"
        for part in below.split(",")
    ]
    return f"<mrow>{'<mo>,</mo>'.join(tags)}</mrow>" if len(tags) > 1 else tags[0]
