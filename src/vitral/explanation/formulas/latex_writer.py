"""Formulas and plain text for pdflatex; a character that the fonts lack is replaced by its code point."""

import re
import unicodedata

from vitral.explanation.formulas.notation import Expression, Name, Number
from vitral.explanation.formulas.writer import FormulaWriter
from vitral.explanation.phrasebook import Phrases
from vitral.figures.text import visible

_SPECIAL = {
    "\n": " ",
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\^{}",
    "~": r"\~{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "'": r"\textquotesingle{}",
    "−": r"\ensuremath{-}",
    "∞": r"\ensuremath{\infty}",
    "√": r"\ensuremath{\surd}",
    "·": r"\ensuremath{\cdot}",
    "×": r"\ensuremath{\times}",
    "→": r"\ensuremath{\rightarrow}",
    "…": r"\ldots{}",
    "–": "--",
    "—": "---",
    "“": r"\textquotedblleft{}",
    "”": r"\textquotedblright{}",
    "‘": r"\textquoteleft{}",
    "’": r"\textquoteright{}",
    "␠": r"\textvisiblespace{}",
    "␣": r"\textvisiblespace{}",
    "↵": r"\ensuremath{\hookleftarrow}",
    "⟨": r"\ensuremath{\langle}",
    "⟩": r"\ensuremath{\rangle}",
    "²": r"\ensuremath{^2}",
    "ᵀ": r"\ensuremath{^{\top}}",
    "Σ": r"\ensuremath{\Sigma}",
    "σ": r"\ensuremath{\sigma}",
    "ε": r"\ensuremath{\varepsilon}",
    "μ": r"\ensuremath{\mu}",
    "Φ": r"\ensuremath{\Phi}",
    "º": r"\textordmasculine{}",
    "ª": r"\textordfeminine{}",
    "°": r"\textdegree{}",
    "«": r"\guillemotleft{}",
    "»": r"\guillemotright{}",
    "§": r"\S{}",
    "¡": r"\textexclamdown{}",
    "¿": r"\textquestiondown{}",
}
_LATIN = range(0x00C0, 0x0180)
"""Accented letters of T1 fonts, except those of `_NOT_IN_T1`."""
_NOT_IN_T1 = frozenset("÷ĀāĈĉĊċĒēĔĕĖėĜĝĠġĢģĤĥĦħĨĩĪīĬĭĮįĴĵĶķĸĻļŅņŉŊŌōŎŏŖŗŜŝŦŧŨũŪūŬŭŲųŴŵŶŷſĿŀı")
_LIGATURE = re.compile(r"([-,])(?=\1)")
"""Two hyphens or commas in a row, which LaTeX would set as a dash or a quotation mark."""


def latex(expression: Expression, digits: int, say: Phrases) -> str:
    """The expression as LaTeX for math mode."""
    return _LaTeX(digits, say).write(expression)


def escape(words: str) -> str:
    r"""One paragraph of plain text as LaTeX; a character that the fonts lack is replaced by its code point.

    >>> escape("50% of a_b"), escape("ж")
    ('50\\% of a\\_b', '\\texttt{U+0436}')
    """
    shown = unicodedata.normalize("NFC", visible(words))
    return "".join(map(_letter, _LIGATURE.sub("\\1\0", shown))).replace("\0", "{}")


def _letter(letter: str) -> str:
    if letter in _SPECIAL:
        return _SPECIAL[letter]
    plain = letter == "\0" or (letter.isascii() and letter.isprintable())
    accented = ord(letter) in _LATIN and letter not in _NOT_IN_T1
    return letter if plain or accented else rf"\texttt{{U+{ord(letter):04X}}}"


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
"""Characters of formulas in math mode."""


class _LaTeX(FormulaWriter):
    def number(self, letters: str) -> str:
        # A decimal comma in braces: TeX sets one without as the comma of a list, with a space after it.
        return "".join(_TEX.get(letter, letter) for letter in letters).replace(",", "{,}")

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

    def over(self, index: str, body: str) -> str:
        return rf"\sum_{{{self.letters(index)}}} {body}"

    def function(self, function: str) -> str:
        return {"max": r"\max ", "sin": r"\sin ", "sen": r"\operatorname{sen} ", "cos": r"\cos ", "Π": r"\prod "}.get(
            function
        ) or self.letters(function)
