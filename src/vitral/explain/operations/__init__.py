"""The operations a computation is made of: how each makes its numbers, and how one number is worked out by hand."""

from vitral.explain.operations.attention import Masking, Output, Project, Scale, Score, Softmax, Turn, Weigh
from vitral.explain.operations.base import Index, Operation, Scribe, numbers
from vitral.explain.operations.block import Activate, Add, Linear, Lookup, Normalise, Sinusoid

__all__ = [
    "Activate",
    "Add",
    "Index",
    "Linear",
    "Lookup",
    "Masking",
    "Normalise",
    "Operation",
    "Output",
    "Project",
    "Scale",
    "Score",
    "Scribe",
    "Sinusoid",
    "Softmax",
    "Turn",
    "Weigh",
    "numbers",
]
