"""A sheet: a computation as a list of named quantities, each an expression of earlier ones.

A walkthrough shows the values of a sheet; a check computes its expressions from an author's numbers as well.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from torch import Tensor

from vitral.explanation.architecture import Architecture
from vitral.explanation.expressions import Tree, compute, references
from vitral.explanation.formulas.notation import Equation, Expression, Name, renamed
from vitral.explanation.readings.layout import Conventions
from vitral.explanation.readings.writing import Writer
from vitral.explanation.rows.base import CellNamer, Row
from vitral.explanation.steps import Arithmetic

Index = tuple[int, ...]
Values = Mapping[str, Tensor]
SINGLE = ("choice", "total", "one")
"""Axes of quantities that may be a single number, named without a place."""


@dataclass(frozen=True)
class SheetQuantity:
    """One named quantity.

    Attributes:
        name: as in `vitral.core.names`, without the block's prefix and "attn.".
        axes: names of its axes, as ("heads", "time", "source").
        tree: computes it from other quantities.
        row: its own words, where the tree does not say them.
        is_free: whether it is a step of the author's.
        derivative: of a gradient, the names of the number and of the quantity.
    """

    name: str
    axes: tuple[str, ...]
    tree: Tree
    row: Row | None = None
    is_free: bool = False
    derivative: tuple[str, str] | None = None

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The quantities that it is computed from, in order."""
        return references(self.tree)

    def make(self, values: Values) -> Tensor:
        """Compute the quantity from the values of its inputs."""
        return compute(self.tree, values)


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
        sources: labels of the keys, if they are another sequence than the queries.
        conventions: how the author lays matrices out.
        architecture: mask, scale and the other parts.
    """

    quantities: tuple[SheetQuantity, ...]
    values: Values
    tokens: tuple[str, ...] = ()
    vocabulary: tuple[str, ...] = ()
    namer: CellNamer = field(default_factory=CellNamer)
    num_heads: int = 1
    names: Mapping[str, Name] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    conventions: Conventions = field(default_factory=Conventions)
    architecture: Architecture = field(default_factory=Architecture)

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
        stages = tuple(stage for link in chain for stage in self._stages(*link))
        before = tuple(equation for link in chain for equation in self._before(*link))
        row = self[name].row
        word = self._namer.words([int(value)]) if row is not None and row.chooses else None
        return Arithmetic(self.cell(name, index), self._renamed(stages), value, self._renamed(before), word)

    def formula(self, name: str) -> Equation:
        """The general formula of a quantity, complete: with gain, bias, and the definitions of its letters."""
        quantity = self[name]
        if quantity.row is None:
            return self._renamed(self.writer.formula(Name(name), self.tree(name)))
        row = quantity.row
        made = Equation((Name(name, below=row.subscript), row.formula()), after=row.after(name))
        return self._renamed(renamed(made, self._turned))

    @cached_property
    def writer(self) -> Writer:
        """Writes over the quantities as the author lays them out."""
        seen = {name: self.conventions.seen(name, value) for name, value in self.values.items()}
        return Writer(seen, first=self.namer.first, heads=self.num_heads)

    def tree(self, name: str) -> Tree:
        """The tree of a quantity over the quantities as the author lays them out."""
        return self.conventions.laid_out(name, self[name].tree)

    def _renamed(self, part: Any) -> Any:
        """With the names of this sheet, as those with the number of a block."""

        def change(name: Name) -> Name:
            other = self.names.get(name.letters)
            return name if other is None else replace(name, letters=other.letters, above=other.above + name.above)

        return renamed(part, change) if self.names else part

    def _turned(self, name: Name) -> Name:
        """The name of the same cell in a matrix that the author writes transposed."""
        first, comma, second = name.below.partition(",")
        return replace(name, below=f"{second},{first}") if comma and self.conventions.turned(name.letters) else name

    @property
    def _namer(self) -> CellNamer:
        return replace(self.namer, vocabulary=self.vocabulary)

    def _stages(self, name: str, index: Index) -> tuple[Expression, ...]:
        quantity = self[name]
        if quantity.row is not None:
            inputs = [self.values[each] for each in quantity.inputs]
            made = quantity.row.stages(inputs, index, self._namer)
            if made is not None:
                return renamed(made, self._turned)
        index = self.conventions.index(name, index)
        return self.writer.stages(self.tree(name), index, short=quantity.is_free and quantity.derivative is None)

    def _before(self, name: str, index: Index) -> tuple[Equation, ...]:
        quantity = self[name]
        if quantity.row is not None:
            inputs = [self.values[each] for each in quantity.inputs]
            return renamed(quantity.row.before(inputs, index, self._namer), self._turned)
        return self.writer.before(self.tree(name), self.conventions.index(name, index))

    def _source(self, name: str, index: Index) -> tuple[str, Index] | None:
        if self[name].row is not None:
            return None
        found = self.writer.source(self.tree(name), self.conventions.index(name, index))
        return None if found is None else (found[0], self.conventions.index(*found))

    def cell(self, name: str, index: Index) -> Expression:
        """The name of a cell, without its head, which the matrix's label shows; a single number has no place."""
        if name in self and self[name].axes[-1] in SINGLE and self.values[name].numel() == 1:
            return self._renamed(Name(name))
        index = self.conventions.index(name, index)
        return self._renamed(self.namer.cell(name, *(index[1:] if len(index) == 3 else index)))


def computed(quantities: Sequence[SheetQuantity], given: Values) -> dict[str, Tensor]:
    """The given values and those of all quantities."""
    values = dict(given)
    for quantity in quantities:
        values[quantity.name] = quantity.make(values)
    return values
