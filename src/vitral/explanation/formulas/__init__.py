"""Formulas and arithmetic as small trees, and their three written forms: plain text, MathML and LaTeX."""

from vitral.explanation.formulas.latex_writer import latex, markdown_latex
from vitral.explanation.formulas.mathml_writer import mathml
from vitral.explanation.formulas.text_writer import lines, sides, text
from vitral.explanation.formulas.writer import MOST_TERMS, number, value_of

__all__ = [
    "MOST_TERMS",
    "latex",
    "lines",
    "markdown_latex",
    "mathml",
    "number",
    "sides",
    "text",
    "value_of",
]
