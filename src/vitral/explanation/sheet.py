"""A sheet: a computation as a list of named quantities, each an expression of earlier ones.

A walkthrough shows the values of a sheet; a check computes its expressions from an author's numbers as well.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from torch import Tensor

from vitral.core.graphs import Plain, graph_of
from vitral.core.taps import SILENT, Tap
from vitral.explanation.examples.schema import AXES, AXES_OF_RANK
from vitral.explanation.expressions import Tree
from vitral.explanation.formulas.notation import Equation, Expression, Name, renamed
from vitral.explanation.readings.layout import Conventions
from vitral.explanation.readings.writing import Writer
from vitral.explanation.recipe import Architecture, SheetQuantity, Values
from vitral.explanation.rows import CellNamer
from vitral.explanation.steps import Arithmetic

Index = tuple[int, ...]
SINGLE = ("choice", "total", "one")
"""Axes of quantities that may be a single number: without labels, and named without an index."""


@dataclass(frozen=True)
class Sheet:
    """A computation.

    Attributes:
        quantities: in order; each after its inputs.
        values: float64 tensors by name: the given ones and every quantity.
        tokens: labels of the positions.
        vocabulary: the words of the vocabulary, if there is one.
        first: the number of the first row and column: 1 in worked examples, as on paper; 0 for tensors.
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
    first: int = 1
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

    def axes(self, name: str) -> tuple[str, ...]:
        """Names of the axes of a quantity; the first of three is that of the heads."""
        axes, rank = self[name].axes if name in self else AXES.get(name, ()), self.values[name].dim()
        axes = axes if len(axes) == rank else AXES_OF_RANK[rank]
        return ("heads", *axes[1:]) if rank == 3 else tuple(axis.replace("heads", "head") for axis in axes)

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Second names of a quantity, as that of a stream which is another quantity unchanged."""
        computed = {id(self.values[quantity.name]): quantity.name for quantity in reversed(self.quantities)}
        given = {name: id(value) for name, value in self.values.items() if name not in self}
        return {name: computed[value] for name, value in given.items() if value in computed}

    @cached_property
    def given_names(self) -> list[str]:
        """Names of the given numbers that are used and shown; gains that are all 1 are neither."""
        used = {name for quantity in self.quantities for name in quantity.inputs}
        computed = {quantity.name for quantity in self.quantities} | set(self.aliases)
        return [name for name in self.values if name in used - computed - self.unit_gains]

    @cached_property
    def unit_gains(self) -> set[str]:
        """Names of the gains that are all 1, which nobody writes."""
        return {name for name, value in self.values.items() if name.endswith("_gain") and bool((value == 1).all())}

    def called(self, name: str) -> str:
        """The quantity as formulas call it."""
        return self.names.get(name, Name(name)).letters

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
        equations = [self._worked(*link) for link in chain]
        before = tuple(aside for equation in equations for aside in equation.before)
        stages = tuple(side for equation in equations for side in equation.sides)
        word = self.namer.words([int(value)]) if self[name].chooses else None
        return Arithmetic(self.cell(name, index), self._renamed(stages), value, self._renamed(before), word)

    def formula(self, name: str) -> Equation:
        """The general formula of a quantity, complete: with gain, bias, and the definitions of its letters."""
        row = self[name].row
        if row is not None:
            return self._renamed(renamed(row.formula(name), self._turned))
        return self._renamed(self.writer.formula(Name(name), self.tree(name)))

    @cached_property
    def writer(self) -> Writer:
        """Writes over the quantities as the author lays them out."""
        seen = {name: self.conventions.seen(name, value) for name, value in self.values.items()}
        return Writer(seen, self.first)

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
    def namer(self) -> CellNamer:
        """Names cells and words."""
        return CellNamer(self.first, self.vocabulary)

    def _worked(self, name: str, index: Index) -> Equation:
        """The right-hand sides of a cell, after the equations of what they use."""
        quantity, tree = self[name], self.tree(name)
        if quantity.row is not None:
            equation = quantity.row.worked([self.values[operand] for operand in quantity.inputs], index, self.namer)
            if equation is not None:
                return renamed(equation, self._turned)
        at, short = self.conventions.index(name, index), quantity.is_free and quantity.derivative is None
        return Equation(self.writer.stages(tree, at, short=short), self.writer.before(tree, at))

    def _source(self, name: str, index: Index) -> tuple[str, Index] | None:
        if self[name].row is not None:
            return None
        origin = self.writer.source(self.tree(name), self.conventions.index(name, index))
        return None if origin is None else (origin[0], self.conventions.index(*origin))

    def cell(self, name: str, index: Index) -> Expression:
        """The name of a cell, without its head, which the matrix's label shows; a single number has no place."""
        if name in self and self[name].axes[-1] in SINGLE and self.values[name].numel() == 1:
            return self._renamed(Name(name))
        index = self.conventions.index(name, index)
        return self._renamed(self.namer.cell(name, *(index[1:] if len(index) == 3 else index)))


def sheet_graph(sheet: Sheet) -> Plain:
    """The graph of a sheet, from what is given to every quantity.

    Raises:
        NotInGraphs: a quantity uses an operation that the interpreter lacks.
    """
    quantities, second = sheet.quantities, sheet.aliases
    computed = {quantity.name for quantity in quantities}
    needed = {second.get(name, name) for quantity in quantities for name in quantity.inputs}
    inputs = {name: value for name, value in sheet.values.items() if name in needed and name not in computed}

    def compute(given: Mapping[str, Tensor], tap: Tap = SILENT) -> None:
        known = dict(given)
        for quantity in quantities:
            values = {name: known[second.get(name, name)] for name in quantity.inputs}
            known[quantity.name] = tap(quantity.name, quantity.make(values))

    return graph_of(compute, inputs)
