"""How an author lays matrices out: positions as rows or as columns, weights as [in, out] or [out, in].

The computation always has positions as rows and weights as [in, out]; numbers are turned when they are read and shown.
"""

from dataclasses import dataclass

from torch import Tensor

from vitral.explanation.examples.schema import AXES


@dataclass(frozen=True)
class Conventions:
    """The layout of one file.

    Attributes:
        columns: whether positions are columns: q = W x, scores = kᵀ q, each column of the weights adds up to 1.
        out_in: whether a weight matrix has one row for each output.
    """

    columns: bool = False
    out_in: bool = False

    def turned(self, name: str) -> bool:
        """Whether the author writes the transpose of a quantity."""
        axes = AXES.get(name, ())
        if len(axes) < 2 or name == "next":
            return False
        return self.out_in if name.startswith("w_") else self.columns

    def seen(self, name: str, value: Tensor) -> Tensor:
        """The value as the author writes it; with heads, each head's."""
        return value.mT if self.turned(name) and value.dim() > 1 else value

    def index(self, name: str, index: tuple[int, ...]) -> tuple[int, ...]:
        """The place of a cell as the author counts it, or back."""
        return (*index[:-2], index[-1], index[-2]) if self.turned(name) and len(index) > 1 else index
