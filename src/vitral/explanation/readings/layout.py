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
        return self._written(tree, turned=self.turned(name))

    def _written(self, tree: Tree, *, turned: bool) -> Tree:
        """The same matrix, or the transposed one."""
        match tree:
            case Constant(Table(numbers), symbol) if turned:
                return Constant.of(numbers.mT if numbers.dim() > 1 else numbers[:, None], symbol)
            case Constant():
                return tree
            case Reference(name) if turned and len(AXES.get(name, ())) == 1:
                return Call("upright", (tree,))
            case Reference(name):
                return tree if self.turned(name) == turned else Call("transpose", (tree,))
            case Call("transpose", (inside,)):
                return self._written(inside, turned=not turned)
        return self._transposed(tree) if turned else self._over(tree, turned=False)

    def _over(self, tree: Call, *, turned: bool) -> Call:
        """The call of arguments as they are, or transposed."""
        return replace(tree, arguments=tuple(self._written(argument, turned=turned) for argument in tree.arguments))

    def _transposed(self, tree: Call) -> Tree:
        function, settings = tree.function, tree.settings
        if function == "matmul":
            tree = replace(tree, arguments=tree.arguments[::-1])
        elif function in BY_ROWS:
            settings = (-2,) if settings in ((), (-1,)) else ()
        elif function in (*FOLDS, "pick"):
            settings = tuple(OTHER.get(axis, axis) for axis in settings[:1]) + settings[1:]
        elif function == "merge":  # heads one below the other
            function = "stack"
        elif function not in KEPT and (function not in PRIMITIVES or PRIMITIVES[function].kind != "cell"):
            return Call("transpose", (self._over(tree, turned=False),))
        return replace(self._over(tree, turned=True), function=function, settings=settings)
