"""Formulas and arithmetic as small trees, and their written forms: plain text, MathML and LaTeX."""

from vitral.explanation.formulas.forms import (
    MOST_TERMS,
    decimals,
    latex,
    lines,
    markdown_latex,
    mathml,
    number,
    text,
)
from vitral.explanation.formulas.notation import value_of

__all__ = [
    "MOST_TERMS",
    "decimals",
    "latex",
    "lines",
    "markdown_latex",
    "mathml",
    "number",
    "text",
    "value_of",
]
