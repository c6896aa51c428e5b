"""The small language of computations: text to tree, shapes and cost before anything is computed, values."""

from vitral.explanation.expressions.definitions import DEFINITIONS, expanded
from vitral.explanation.expressions.evaluation import call_of, compute, every, from_the_end, shape_of
from vitral.explanation.expressions.parser import parse, read
from vitral.explanation.expressions.primitives import PRIMITIVES, Index
from vitral.explanation.expressions.tree import (
    Call,
    Constant,
    Reference,
    Tree,
    mapped,
    nodes,
    references,
    substituted,
)

__all__ = [
    "DEFINITIONS",
    "PRIMITIVES",
    "Call",
    "Constant",
    "Index",
    "Reference",
    "Tree",
    "call_of",
    "compute",
    "every",
    "expanded",
    "from_the_end",
    "mapped",
    "nodes",
    "parse",
    "read",
    "references",
    "shape_of",
    "substituted",
]
