"""The small language of computations: text to tree, shapes and cost before anything is computed, values."""

from vitral.explanation.expressions.evaluation import Instead, compute, evaluate, from_the_end, measured, shape_of
from vitral.explanation.expressions.parser import MOST_CHARACTERS, MOST_NODES, parse
from vitral.explanation.expressions.tree import (
    Call,
    Constant,
    Reference,
    Tree,
    nodes,
    references,
    replaced,
    substituted,
)

__all__ = [
    "MOST_CHARACTERS",
    "MOST_NODES",
    "Call",
    "Constant",
    "Instead",
    "Reference",
    "Tree",
    "compute",
    "evaluate",
    "from_the_end",
    "measured",
    "nodes",
    "parse",
    "references",
    "replaced",
    "shape_of",
    "substituted",
]
