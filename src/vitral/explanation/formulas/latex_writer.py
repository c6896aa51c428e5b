"""Formulas and plain text for pdflatex; a character that the fonts lack is replaced by its code point."""

from vitral.core.latex import escape
from vitral.core.text import visible
from vitral.explanation.formulas.notation import Equation, Expression, Name, Number
from vitral.explanation.formulas.writer import FormulaWriter
from vitral.explanation.phrasebook import Phrases


def latex(expression: Expression, digits: int, say: Phrases) -> str:
    """The expression as LaTeX for math mode."""
    return _LaTeX(digits, say).write(expression)


def markdown_latex(expression: Expression, digits: int, say: Phrases) -> str:
    """The expression as LaTeX that stays intact in Markdown: no backslash before a punctuation mark.

    Several equations, and the sides of an equation, have a line each.
    """
    script = _InMarkdown(digits, say)
    if not isinstance(expression, Equation):
        return script.write(expression)
    lines: list[str] = []  # a backslash before a newline would be one before a punctuation mark: \\cr
    for equation in expression.all():
        first, *others = script.sides(equation)
        begin = [f"{first} &= {others[0]}" if others else rf"&\ {first}"]
        lines += [*begin, *(f"&= {side}" for side in others[1:])]
    if len(lines) == 1:
        return script.one(expression)
    inside = r" \cr ".join(lines)
    return rf"\begin{{aligned}} {inside} \end{{aligned}}"


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


class _LaTeX(FormulaWriter):
    def number(self, letters: str) -> str:
        # A decimal comma in braces: TeX sets one without as the comma of a list, with a space after it.
        return "".join(_TEX.get(letter, letter) for letter in letters).replace(",", "{,}")

    def name(self, name: Name) -> str:
        base = self.letters(name.letters)
        below = f"_{{{self.letters(name.below, upright=False)}}}" if name.below else ""
        marks = self.marks(name.above, lambda letters: self.letters(letters, upright=False), r"\top")
        above = f"^{{{marks}}}" if marks else ""
        return f"{base}{above}{below}"

    def letters(self, letters: str, *, upright: bool = True) -> str:
        plain = all(
            letter in _TEX or (letter.isascii() and (letter.isalnum() or letter in ",:;'()")) for letter in letters
        )
        if plain and (len(letters) == 1 or not upright):
            return "".join(_TEX.get(letter, letter) for letter in letters)
        return rf"\text{{{escape(letters)}}}"

    def words(self, words: str) -> str:
        return rf"\text{{{escape(words)}}}"

    def sign(self, sign: str) -> str:
        return f"{sign}\\," if sign in ",;" else f" {_TEX.get(sign, sign)} "

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

    def over(self, sign: str, index: str, body: str) -> str:
        symbol = {"Σ": r"\sum", "Π": r"\prod"}.get(sign, rf"\operatorname*{{{sign}}}")
        return rf"{symbol}_{{{self.letters(index)}}} {body}"

    def together(self, equations: list[str]) -> str:
        inside = r" \\ ".join(f"&{equation}" for equation in equations)
        return equations[0] if len(equations) == 1 else rf"\begin{{aligned}}{inside}\end{{aligned}}"

    def function(self, function: str) -> str:
        named = {"max": r"\max ", "sin": r"\sin ", "sen": r"\operatorname{sen} ", "cos": r"\cos "}
        return named.get(function) or self.letters(function)


class _InMarkdown(_LaTeX):
    """For the Markdown of GitHub, which takes a backslash before a punctuation mark away."""

    def letters(self, letters: str, *, upright: bool = True) -> str:
        plain = super().letters(letters, upright=upright)
        return plain if not plain.startswith(r"\text") else self.words(letters)

    def words(self, words: str) -> str:
        inside = "".join(_WIDE.get(letter, letter) for letter in visible(words))
        *parts, apart = [rf"\text{{{part}}}" if part else "" for part in inside.split("_")]
        for part in reversed(parts):
            apart = rf"{{{part}\_{apart}}}"  # in braces: without its backslash the underscore begins a subscript
        return apart

    def sign(self, sign: str) -> str:
        return f"{sign} " if sign in ",;" else super().sign(sign)

    def product(self, factors: list[str], tight: bool) -> str:
        return (r"\ " if tight else r" \cdot ").join(factors)


_WIDE = {letter: chr(ord(letter) + 0xFEE0) for letter in "\\{}$%#&^~<>|`*"} | {"\n": " "}
"""Letters that TeX, Markdown or HTML would obey, and their wide forms, which are obeyed by none."""
