"""Formulas and arithmetic as small trees, and their three written forms: plain text, MathML and LaTeX."""

from vitral.explain.formulas.latex_writer import escape, latex
from vitral.explain.formulas.mathml_writer import mathml
from vitral.explain.formulas.text_writer import sides, text
from vitral.explain.formulas.writer import MOST_TERMS, number, value_of

__all__ = ["MOST_TERMS", "escape", "latex", "mathml", "number", "sides", "text", "value_of"]
