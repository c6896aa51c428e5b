"""A sheet: a computation as a list of quantities, each computed from earlier ones by one operation.

A walkthrough shows the values of a sheet; a check applies its operations to an author's numbers as well.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from vitral.explanation.formulas.notation import Expression
from vitral.explanation.operations import CellNamer, Index, Operation
from vitral.explanation.steps import Arithmetic

Values = Mapping[str, Tensor]


@dataclass(frozen=True)
class SheetQuantity:
    """One named quantity.

    Attributes:
        name: as in `vitral.core.names`, without the block's prefix and "attn.".
        axes: names of its axes, as ("heads", "time", "source").
        operation: computes it.
        inputs: names of the operation's inputs, in order; absent ones (a bias) are omitted.
    """

    name: str
    axes: tuple[str, ...]
    operation: Operation
    inputs: tuple[str, ...]

    def make(self, values: Values) -> Tensor:
        """Compute the quantity from the values of its inputs."""
        return self.operation(*(values[name] for name in self.inputs))


@dataclass(frozen=True)
class Sheet:
    """A computation.

    Attributes:
        quantities: in order; each after its inputs.
        values: float64 tensors by name: the given ones and every quantity.
        tokens: labels of the positions.
        vocabulary: the words of the vocabulary, if there is one.
        namer: names cells.
        num_heads: query heads.
    """

    quantities: tuple[SheetQuantity, ...]
    values: Values
    tokens: tuple[str, ...] = ()
    vocabulary: tuple[str, ...] = ()
    namer: CellNamer = field(default_factory=CellNamer)
    num_heads: int = 1

    def __getitem__(self, name: str) -> SheetQuantity:
        """A quantity by name."""
        return next(quantity for quantity in self.quantities if quantity.name == name)

    def __contains__(self, name: object) -> bool:
        """Whether the quantity is computed here; given ones are not."""
        return any(quantity.name == name for quantity in self.quantities)

    def arithmetic(self, name: str, index: Index, *, through: Container[str] = ()) -> Arithmetic:
        """The computation of one cell.

        Args:
            name: the quantity.
            index: the cell.
            through: quantities that the reader does not see; if the cell is a copy of one of their cells, its
                arithmetic is appended.
        """
        if name not in self:
            return Arithmetic(self.cell(name, index), (), float(self.values[name][index]))
        target, stages = self.cell(name, index), self._stages(name, index)
        value, source = float(self.values[name][index]), self._source(name, index)
        while source is not None and source[0] in through and source[0] in self:
            stages = (*stages, *self._stages(*source))
            source = self._source(*source)
        return Arithmetic(target, stages, value)

    def _stages(self, name: str, index: Index) -> tuple[Expression, ...]:
        quantity = self[name]
        return quantity.operation.stages([self.values[each] for each in quantity.inputs], index, self.namer)

    def _source(self, name: str, index: Index) -> tuple[str, Index] | None:
        quantity = self[name]
        passes = getattr(quantity.operation, "passes", None)
        return None if passes is None else passes([self.values[each] for each in quantity.inputs], index)

    def cell(self, name: str, index: Index) -> Expression:
        """The name of a cell, without its head, which the matrix's label shows."""
        return self.namer.cell(name, *(index[1:] if len(index) == 3 else index))


def computed(quantities: Sequence[SheetQuantity], given: Values) -> dict[str, Tensor]:
    """The given values and those of all quantities."""
    values = dict(given)
    for quantity in quantities:
        values[quantity.name] = quantity.make(values)
    return values
