"""Plain text for pdflatex with T1 fonts and textcomp."""

import re
import unicodedata

from vitral.core.text import visible

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
    "ˣ": r"\ensuremath{^{x}}",
    "ᵀ": r"\ensuremath{^{\top}}",
    "Σ": r"\ensuremath{\Sigma}",
    "σ": r"\ensuremath{\sigma}",
    "∂": r"\ensuremath{\partial}",
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
