"""Formulas and arithmetic in three scripts: plain text, MathML and LaTeX; one walk over the tree serves all."""

from vitral.explain.scripts.base import MOST_TERMS, number, value_of
from vitral.explain.scripts.letters import sides, text
from vitral.explain.scripts.markup import mathml
from vitral.explain.scripts.typeset import escape, latex

__all__ = ["MOST_TERMS", "escape", "latex", "mathml", "number", "sides", "text", "value_of"]
