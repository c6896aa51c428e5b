"""A sheet: a computation as a list of quantities, each computed from earlier ones by one operation.

A walkthrough shows the values of a sheet; a check applies its operations to an author's numbers as well.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from vitral.explanation.formulas.notation import Equation, Expression, Name, Product, Sum, renamed
from vitral.explanation.operations import CellNamer, Index, Operation
from vitral.explanation.steps import Arithmetic

Values = Mapping[str, Tensor]
SINGLE = ("choice", "total")
"""Axes of quantities that may be a single number, named without a place."""


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
        names: quantities that formulas write by another name, as with the number of their block.
    """

    quantities: tuple[SheetQuantity, ...]
    values: Values
    tokens: tuple[str, ...] = ()
    vocabulary: tuple[str, ...] = ()
    namer: CellNamer = field(default_factory=CellNamer)
    num_heads: int = 1
    names: Mapping[str, Name] = field(default_factory=dict)

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
        value = float(self.values[name][index])
        if name not in self:
            return Arithmetic(self.cell(name, index), (), value)
        chain = [(name, index)]
        source = self._source(name, index)
        while source is not None and source[0] in through and source[0] in self:
            chain.append(source)
            source = self._source(*source)
        stages = tuple(stage for link in chain for stage in self._written("stages", *link))
        before = tuple(equation for link in chain for equation in self._written("before", *link))
        word = self._namer.words([int(value)]) if getattr(self[name].operation, "chooses", False) else None
        return Arithmetic(self.cell(name, index), renamed(stages, self.names), value, renamed(before, self.names), word)

    def formula(self, name: str) -> Equation:
        """The general formula of a quantity, complete: with gain, bias, and the definitions of its letters."""
        quantity = self[name]
        operation = quantity.operation
        further = getattr(operation, "after", None)
        after = () if further is None else further(name)
        sides = (Name(name, below=getattr(operation, "subscript", "")), self._with_biases(quantity))
        return renamed(Equation(sides, after=after), self.names)

    def _with_biases(self, quantity: SheetQuantity) -> Expression:
        formula = quantity.operation.formula()
        biases: list[Name] = []
        for name in quantity.inputs:
            if name.endswith("_gain") and bool((self.values[name] != 1).any()):
                formula = Product((Name("g"), formula))
            elif name.endswith("_bias") and bool((self.values[name] != 0).any()):
                biases.append(Name("b"))
            elif name.startswith("b_"):
                mark = name.removeprefix("b_")
                biases.append(Name("b", above=mark.upper() if len(mark) == 1 else mark))
        return Sum((formula, *biases)) if biases else formula

    @property
    def _namer(self) -> CellNamer:
        return replace(self.namer, vocabulary=self.vocabulary)

    def _written(self, part: str, name: str, index: Index) -> tuple[Any, ...]:
        """The stages of a cell, or the equations before them."""
        quantity = self[name]
        write = getattr(quantity.operation, part, None)
        return () if write is None else write([self.values[each] for each in quantity.inputs], index, self._namer)

    def _source(self, name: str, index: Index) -> tuple[str, Index] | None:
        quantity = self[name]
        passes = getattr(quantity.operation, "passes", None)
        return None if passes is None else passes([self.values[each] for each in quantity.inputs], index)

    def cell(self, name: str, index: Index) -> Expression:
        """The name of a cell, without its head, which the matrix's label shows; a single number has no place."""
        if name in self and self[name].axes[-1] in SINGLE and self.values[name].numel() == 1:
            return renamed(Name(name), self.names)
        return renamed(self.namer.cell(name, *(index[1:] if len(index) == 3 else index)), self.names)


def computed(quantities: Sequence[SheetQuantity], given: Values) -> dict[str, Tensor]:
    """The given values and those of all quantities."""
    values = dict(given)
    for quantity in quantities:
        values[quantity.name] = quantity.make(values)
    return values
