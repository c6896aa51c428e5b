"""A sheet: a computation as a list of quantities, each made of earlier ones by one operation.

What an explanation tells and what a check compares are the same sheet: told, its values are shown; checked, its
operations are applied to an author's numbers too.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from vitral.explain.notation import Expression
from vitral.explain.operations import Index, Operation, Scribe
from vitral.explain.walkthrough import Arithmetic

Values = Mapping[str, Tensor]


@dataclass(frozen=True)
class Quantity:
    """One named quantity.

    Attributes:
        name: as in `vitral.core.names`, or of the block and the head around attention.
        axes: the names of its axes, as ("heads", "time", "source").
        operation: makes it.
        inputs: of these, in order; those that are not there (a bias) are left out.
    """

    name: str
    axes: tuple[str, ...]
    operation: Operation
    inputs: tuple[str, ...]

    def make(self, values: Values) -> Tensor:
        """The quantity from the values of its inputs."""
        return self.operation(*(values[name] for name in self.inputs))


@dataclass(frozen=True)
class Sheet:
    """A computation.

    Attributes:
        quantities: in order; each after its inputs.
        values: float64 tensors by name, of what was given and of every quantity.
        tokens: names of the positions.
        vocabulary: names of the vocabulary's words, where there is one.
        scribe: how cells are called.
        num_heads: query heads.
    """

    quantities: tuple[Quantity, ...]
    values: Values
    tokens: tuple[str, ...] = ()
    vocabulary: tuple[str, ...] = ()
    scribe: Scribe = field(default_factory=Scribe)
    num_heads: int = 1

    def __getitem__(self, name: str) -> Quantity:
        """A quantity by name."""
        return next(quantity for quantity in self.quantities if quantity.name == name)

    def __contains__(self, name: object) -> bool:
        """Whether it is computed here (what is given is not)."""
        return any(quantity.name == name for quantity in self.quantities)

    def arithmetic(self, name: str, index: Index, *, through: Container[str] = ()) -> Arithmetic:
        """How one cell comes about.

        Args:
            name: the quantity.
            index: the cell.
            through: quantities the reader does not see: where one only passes a number on, its arithmetic is added.
        """
        if name not in self:  # given: it comes from nowhere
            return Arithmetic(self.cell(name, index), (), float(self.values[name][index]))
        target, stages = self.cell(name, index), self._stages(name, index)
        value, source = float(self.values[name][index]), self._source(name, index)
        while source is not None and source[0] in through and source[0] in self:
            stages = (*stages, *self._stages(*source))
            source = self._source(*source)
        return Arithmetic(target, stages, value)

    def _stages(self, name: str, index: Index) -> tuple[Expression, ...]:
        quantity = self[name]
        return quantity.operation.stages([self.values[each] for each in quantity.inputs], index, self.scribe)

    def _source(self, name: str, index: Index) -> tuple[str, Index] | None:
        quantity = self[name]
        passes = getattr(quantity.operation, "passes", None)
        return None if passes is None else passes([self.values[each] for each in quantity.inputs], index)

    def cell(self, name: str, index: Index) -> Expression:
        """A cell's name; the head is left out, it stands above the matrix."""
        return self.scribe.cell(name, *(index[1:] if len(index) == 3 else index))


def computed(quantities: Sequence[Quantity], given: Values) -> dict[str, Tensor]:
    """The values of what is given and of all quantities."""
    values = dict(given)
    for quantity in quantities:
        values[quantity.name] = quantity.make(values)
    return values
