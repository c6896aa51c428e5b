"""The trees of an author who lays matrices out in another way: transposes are pushed down to the quantities.

The computation always has positions as rows and weights as [in, out]; numbers are turned when they are read and shown.
"""

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from vitral.explanation.examples.schema import AXES
from vitral.explanation.expressions import PRIMITIVES, Call, Constant, Reference, Tree
from vitral.explanation.expressions.definitions import BY_ROWS
from vitral.explanation.expressions.parser import FOLDS
from vitral.explanation.expressions.tree import Table

OTHER = {-1: -2, -2: -1}

KEPT = (
    "head",
    "lifted",
    "share",
    "aside",
    "plain",
    "relu",
    "squared_relu",
    "gelu",
    "gelu_tanh",
    "silu",
    "sigmoid",
    "sqrt",
)
"""Functions that do the same in the transposed matrix."""


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

    def index(self, name: str, index: tuple[Any, ...]) -> tuple[Any, ...]:
        """The place of a cell as the author counts it, or back."""
        return (*index[:-2], index[-1], index[-2]) if self.turned(name) and len(index) > 1 else index

    def laid_out(self, name: str, tree: Tree) -> Tree:
        """The tree of a quantity over quantities as the author writes them."""
        if not self.columns and not self.out_in:
            return tree
        return self._turned(tree) if self.turned(name) else self._own(tree)

    def _own(self, tree: Tree) -> Tree:
        """The same matrix."""
        match tree:
            case Reference(name):
                return Call("transpose", (tree,)) if self.turned(name) else tree
            case Constant():
                return tree
            case Call("transpose", (inside,)):
                return self._turned(inside)
        return replace(tree, arguments=tuple(map(self._own, tree.arguments)))

    def _turned(self, tree: Tree) -> Tree:
        """The transposed matrix."""
        match tree:
            case Constant(Table(numbers), symbol):
                return Constant.of(numbers.mT if numbers.dim() > 1 else numbers[:, None], symbol)
            case Constant():
                return tree
            case Reference(name) if len(AXES.get(name, ())) == 1:
                return Call("upright", (tree,))
            case Reference(name):
                return tree if self.turned(name) else Call("transpose", (tree,))
            case Call("transpose", (inside,)):
                return self._own(inside)
        return self._called(tree)

    def _called(self, tree: Call) -> Tree:
        function, settings = tree.function, tree.settings
        if function == "matmul":
            return Call("matmul", tuple(map(self._turned, reversed(tree.arguments))))
        if function in BY_ROWS:
            settings = (-2,) if settings in ((), (-1,)) else ()
        elif function in (*FOLDS, "pick"):
            settings = tuple(OTHER.get(each, each) for each in settings[:1]) + settings[1:]
        elif function == "merge":  # heads one below the other
            function = "stack"
        elif not _is_by_cells(function):
            return Call("transpose", (self._own(tree),))
        return Call(function, tuple(map(self._turned, tree.arguments)), settings)


def _is_by_cells(function: str) -> bool:
    return function in KEPT or (function in PRIMITIVES and PRIMITIVES[function].kind == "cell")
