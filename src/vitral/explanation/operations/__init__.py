"""Operations: each computes a quantity and writes the arithmetic of any of its cells."""

from vitral.explanation.operations.attention import (
    CONCATENATED,
    ApplyMask,
    Output,
    Project,
    Scale,
    Score,
    Softmax,
    Weigh,
)
from vitral.explanation.operations.base import CellNamer, Index, Operation, numbers
from vitral.explanation.operations.block import Activate, Add, Linear, Lookup, Normalise, Replace, Sinusoid
from vitral.explanation.operations.rotation import Rotate

__all__ = [
    "CONCATENATED",
    "Activate",
    "Add",
    "ApplyMask",
    "CellNamer",
    "Index",
    "Linear",
    "Lookup",
    "Normalise",
    "Operation",
    "Output",
    "Project",
    "Replace",
    "Rotate",
    "Scale",
    "Score",
    "Sinusoid",
    "Softmax",
    "Weigh",
    "numbers",
]
