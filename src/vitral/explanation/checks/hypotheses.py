"""Hypotheses: the numbers that a printed quantity has after a slip in it, or in an unprinted step before it."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeGuard

import torch
from torch import Tensor

from vitral.explanation.checks.edits import Edit, Editor, moved
from vitral.explanation.checks.slips import GENERIC
from vitral.explanation.checks.special_edits import special_edits
from vitral.explanation.checks.way import Way, value_of
from vitral.explanation.expressions import Call, Reference, Tree, nodes, references, substituted
from vitral.explanation.operations import Linear, Output, Project, Score, Weigh
from vitral.explanation.sheet import SheetQuantity

WORDS = ("greedy", "beam")
"""Quantities whose numbers are indices of words."""
MOST_CELLS = 150
"""In larger quantities, slips of single cells and rows of other positions are tried only in the printed quantity."""
MOST_NUMBERS = 500_000
"""Numbers of the hypotheses that are made at once."""
MOST_IN_ROWS = 100_000
"""Cells times rows of a step in which an edit is tried in single rows."""
MOST_ENTRIES = 400
"""In larger tables, no entry is supposed to be copied wrongly."""


@dataclass(frozen=True)
class Supposed:
    """A slip that is supposed.

    Attributes:
        kind: one of `slips.KINDS`.
        step: where it is made.
        places: placeholders of its phrase.
        grain: how far it reaches: "all", a "row", a "column" or a "cell".
        partial: whether it is made in one row of an unprinted step, though it is one of all rows by its nature.
    """

    kind: str
    step: str
    places: Mapping[str, object]
    grain: str = "all"
    partial: bool = False


@dataclass(frozen=True)
class Hypotheses:
    """Slips with the printed quantity under each, [hypotheses, *shape]."""

    supposed: list[Supposed]
    made: Tensor


class Supposer(Way):
    """Makes the hypotheses about one quantity, from one computation of its inputs."""

    def all(self) -> Iterator[Hypotheses]:
        """Every hypothesis, in families."""
        if self.target.name in WORDS:
            yield from self.edited(self.target)
            return
        for step in self.steps:
            yield from self.edited(step)
            yield from self.rows(step)
            yield from self.terms(step)
        yield from self.rows_of_matrices()
        yield from self.copied()
        yield from self.exchanged()

    def outcome(self, step: SheetQuantity | str, supposed: list[Supposed], made: Tensor) -> Hypotheses:
        """The printed quantity, from many values of a step or of what is given."""
        name = step if isinstance(step, str) else step.name
        if name == self.target.name:
            return Hypotheses(supposed, made)
        made = made if isinstance(step, str) else self.work.carried(step, made)
        return Hypotheses(supposed, self.many(self.chain(name), name, self.target.name, made))

    @cached_property
    def at_once(self) -> int:
        """How many hypotheses are made at once."""
        return max(1, MOST_NUMBERS // max(self.base[step.name].numel() for step in self.steps))

    def outcomes(self, step: SheetQuantity | str, supposed: list[Supposed], made: Tensor) -> Iterator[Hypotheses]:
        """The printed quantity, from many values of a step or of what is given, in pieces."""
        for start in range(0, len(supposed), self.at_once):
            piece = slice(start, start + self.at_once)
            yield self.outcome(step, supposed[piece], made[piece])

    def gathered(self, step: SheetQuantity, made: Iterable[tuple[Supposed, Tensor]]) -> Iterator[Hypotheses]:
        """The same, from values that are made one by one."""
        waiting = iter(made)
        while piece := list(itertools.islice(waiting, self.at_once)):
            yield self.outcome(step, [one for one, _ in piece], torch.stack([value for _, value in piece]))

    # Edits of trees.

    def edits(self, step: SheetQuantity) -> Iterator[Edit]:
        """The edits of a step's tree, special ones, and functions moved up from the steps below."""
        tree = self.tree(step)
        editor = self.before(step)
        yield from special_edits(step.operation, step.inputs, self.base)
        yield from self.skipped(step, tree)
        yield from editor.edits(tree, type(step.operation).__name__)
        composed = tree
        for _ in range(2):
            inner: dict[Tree, Tree] = {Reference(name): self.tree(self.sheet[name]) for name in self.below(composed)}
            composed = substituted(composed, inner)
            yield from moved(composed)

    def before(self, step: SheetQuantity) -> Editor:
        """Edits with what is known when a step is computed."""
        own = self.order[step.name]
        return Editor({name: shape for name, shape in self.shapes.items() if self.order.get(name, -1) < own})

    def below(self, tree: Tree) -> list[str]:
        """The quantities in a tree that are computed from others of the same shape, as masked from scaled."""
        return [
            name
            for name in references(tree)
            if name in self.sheet and any(self.shapes[each] == self.shapes[name] for each in self.sheet[name].inputs)
        ]

    def skipped(self, step: SheetQuantity, tree: Tree) -> Iterator[Edit]:
        """The input of a printed input in its place: the printed step was not used."""
        for name in step.inputs:
            if name in self.sheet and name in self.claimed:
                below = self.sheet[name]
                for edit in self.before(below).edits(self.tree(below), type(below.operation).__name__):
                    if not isinstance(edit.tree, Reference) or edit.kind in (*GENERIC, "operand-other"):
                        continue
                    if self.shapes[edit.tree.name] == self.shapes[name]:
                        yield Edit(edit.kind, substituted(tree, {Reference(name): edit.tree}), edit.places)

    def edited(self, step: SheetQuantity) -> Iterator[Hypotheses]:
        """The edits of a step."""
        usual = self.base[step.name]
        yield from self.gathered(step, self.edit_values(step))
        if step is not self.target and usual.dim() > 1 and usual.numel() * usual.shape[-2] <= MOST_IN_ROWS:
            made = list(self.edit_values(step))
            if made and usual.shape[-2] > 1:
                yield from self.in_rows(step, [one for one, _ in made], torch.stack([value for _, value in made]))

    def edit_values(self, step: SheetQuantity) -> Iterator[tuple[Supposed, Tensor]]:
        """The values of a step under each edit that changes them."""
        usual = self.base[step.name]
        seen: set[Tree] = set()
        for edit in self.edits(step):
            if edit.tree in seen:
                continue
            seen.add(edit.tree)
            value = value_of(edit.tree, self.base)
            if value is not None and value.shape == usual.shape and not torch.equal(value, usual):
                yield Supposed(edit.kind, step.name, edit.places), value

    def in_rows(self, step: SheetQuantity, supposed: Sequence[Supposed], made: Tensor) -> Iterator[Hypotheses]:
        """Edits of an unprinted step that are made in one row only, of all heads or of one."""
        usual = self.base[step.name]
        local = [Supposed(one.kind, one.step, one.places, "row", True) for one in supposed]
        for part in _rows(usual):
            mixed = usual.expand_as(made).clone()
            mixed[(slice(None), *part)] = made[(slice(None), *part)]
            yield from self.outcomes(step, local, mixed)

    # Rows, terms and entries.

    def rows(self, step: SheetQuantity) -> Iterator[Hypotheses]:
        """A row, or a column of scores, computed from that of another position."""
        usual = self.base[step.name]
        if step is not self.target and usual.numel() > MOST_CELLS:
            return
        known = not step.inputs or step.inputs[0] not in self.sheet or step.inputs[0] in self.claimed
        if not isinstance(step.operation, Project | Score) and not (
            step is self.target and known and isinstance(step.operation, Linear | Weigh | Output)
        ):
            return
        for axis, grain in ((-2, "row"), (-1, "column"))[: 2 if isinstance(step.operation, Score) else 1]:
            made = self.other_rows(step, axis, grain)
            yield from self.gathered(step, made if axis == -2 else ((one, value.mT) for one, value in made))

    def other_rows(self, step: SheetQuantity, axis: int, grain: str) -> Iterator[tuple[Supposed, Tensor]]:
        """A step with a row of another position in place of every row, or, if it is not printed, of one."""
        turned = self.base[step.name] if axis == -2 else self.base[step.name].mT
        for place in range(turned.shape[-2]):
            other = turned[..., place : place + 1, :].expand_as(turned)
            row = {"row": (_row_of(step, axis), place)}
            if step is self.target:
                yield Supposed("other-row", step.name, row, grain), other
                continue
            for part in _rows(turned):
                if not torch.equal(turned[part], other[part]):
                    mixed = turned.clone()
                    mixed[part] = other[part]
                    yield Supposed("other-row", step.name, row, "row", partial=part[0] is not ...), mixed

    def rows_of_matrices(self) -> Iterator[Hypotheses]:
        """A row of another table in place of a row of the quantity, a query, a key or a value."""
        if self.base[self.target.name].dim() > 1:
            yield from self.gathered(self.target, self.table_rows())

    def table_rows(self) -> Iterator[tuple[Supposed, Tensor]]:
        """The quantity with each row of each table of the same width."""
        usual, target = self.base[self.target.name], self.target
        operands = [self.base[name] for name in target.inputs]
        mixes = isinstance(target.operation, Score | Weigh)
        width = operands[-1].shape[-1] if mixes else usual.shape[-1]
        for name, shape in self.before(target).shapes.items():
            if len(shape) < 2 or shape[-1] != width or math.prod(shape) > MOST_ENTRIES:
                continue
            table = self.base[name] if len(shape) == usual.dim() else self.base[name].expand(*usual.shape[:-2], *shape)
            if len(usual) % len(table) if usual.dim() == 3 else table.dim() != 2:
                continue
            table = table.repeat_interleave(len(usual) // len(table), dim=0) if usual.dim() == 3 else table
            for place in range(shape[-2]):
                for grain, value in self.with_row(table[..., place : place + 1, :], operands):
                    one = Supposed("other-row", target.name, {"row": (name, place)}, grain, partial=True)
                    yield one, value.expand_as(usual)

    def with_row(self, row: Tensor, operands: Sequence[Tensor]) -> Iterator[tuple[str, Tensor]]:
        """The quantity with a row, [..., 1, width], in place of one of its own or of an operand."""
        if isinstance(self.target.operation, Score):
            q, k = operands
            yield "column", q @ row.mT
            yield "row", row @ k.repeat_interleave(len(q) // len(k), dim=0).mT
        elif isinstance(self.target.operation, Weigh):
            weights, v = operands
            shared = v.repeat_interleave(len(weights) // len(v), dim=0)
            for place in range(shared.shape[-2]):
                change = weights[..., place : place + 1] * (row - shared[..., place : place + 1, :])
                yield "row", self.base[self.target.name] + change
        else:
            yield "row", row

    def terms(self, step: SheetQuantity) -> Iterator[Hypotheses]:
        """One term of a sum of products missing, doubled, with the wrong sign, or added in place of multiplied."""
        product = next((node for _, node in nodes(self.tree(step)) if _is_product(node)), None)
        usual = self.base[step.name]
        if product is None or (step is not self.target and usual.numel() > MOST_CELLS):
            return
        left, right = (value_of(each, self.base) for each in product.arguments)
        if left is None or right is None:
            return
        if left.shape[-1] * usual.numel() > 4 * MOST_NUMBERS:
            return
        a, b = left.movedim(-1, 0)[..., None], right.movedim(-2, 0)[..., None, :]
        shape = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        a, b = (each.expand(len(each), *shape, *each.shape[-2:]) for each in (_lifted(a, shape), _lifted(b, shape)))
        terms = a * b
        changes = {
            "term-dropped": -terms,
            "term-doubled": terms,
            "term-sign": -2 * terms,
            "term-added": torch.where(terms != 0, a + b - terms, 0.0),
        }
        for kind, change in changes.items():
            change = change.reshape(len(terms), *usual.shape) if change[0].numel() == usual.numel() else None
            if change is None:
                continue
            supposed = [Supposed(kind, step.name, {"term": term}, "cell") for term in range(len(terms))]
            if step is self.target:
                yield from self.outcomes(step, supposed, usual + change)
                continue
            cells = torch.eye(usual.numel(), dtype=usual.dtype).reshape(-1, 1, *usual.shape)
            every = (usual + cells * change).flatten(0, 1)
            yield from self.outcomes(step, [*supposed] * usual.numel(), every)

    def copied(self) -> Iterator[Hypotheses]:
        """One entry of what the steps are computed from, copied wrongly in one step or in all."""
        for name in self.leaves:
            table = self.base[name]
            if table.dim() < 1 or table.numel() > MOST_ENTRIES:
                continue
            cells, changed = [], []
            for index in itertools.product(*map(range, table.shape)):
                for used in _miscopied(table, index):
                    other = table.clone()
                    other[index] = used
                    changed.append(other)
                    cells.append({"table": name, "index": index, "used": float(used)})
            if not changed:
                continue
            tables = torch.stack(changed)
            readers = [step for step in self.steps if name in step.inputs]
            for step in readers:
                for start in range(0, len(cells), self.at_once):
                    piece = slice(start, start + self.at_once)
                    supposed = [Supposed("copied-wrong", step.name, cell, "row") for cell in cells[piece]]
                    yield self.outcome(step, supposed, self.many([step], name, step.name, tables[piece]))
            if len(readers) > 1:
                supposed = [Supposed("copied-wrong", name, cell, "row") for cell in cells]
                yield from self.outcomes(name, supposed, tables)

    def exchanged(self) -> Iterator[Hypotheses]:
        """Two quantities of the same shape exchanged for each other."""
        for first, second in itertools.combinations(self.leaves, 2):
            if self.shapes[first] == self.shapes[second]:
                swapped = {**self.base, first: self.base[second], second: self.base[first]}
                for step in reversed(self.ordered):
                    value = value_of(self.tree(step), swapped)
                    swapped[step.name] = self.base[step.name] if value is None else value
                places = {"first": first, "second": second}
                supposed = Supposed("operands-exchanged", self.target.name, places)
                yield Hypotheses([supposed], swapped[self.target.name][None])


def _rows(usual: Tensor) -> Iterator[tuple[Any, ...]]:
    """The rows of a quantity, as indices: of all heads, and of each if there are several."""
    for row in range(usual.shape[-2]):
        yield (..., row, slice(None))
        if usual.dim() == 3 and len(usual) > 1:
            yield from ((head, row, slice(None)) for head in range(len(usual)))


def _is_product(node: Tree) -> TypeGuard[Call]:
    return isinstance(node, Call) and node.function == "matmul"


def _lifted(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A tensor with axes of heads, where it has none."""
    return x.reshape(len(x), *(1,) * (len(shape) - (x.dim() - 3)), *x.shape[1:])


def _row_of(step: SheetQuantity, axis: int) -> str:
    """The quantity whose row is taken: q or k of the scores, the first input of all others."""
    return step.inputs[-1 if axis == -1 else 0] if step.inputs else step.name


def _miscopied(table: Tensor, index: tuple[int, ...]) -> Iterator[Tensor]:
    """What an entry may be read as: a neighbour, the other sign."""
    value = table[index]
    seen = {float(value)}
    for axis in range(max(0, table.dim() - 2), table.dim()):
        for step in (1, -1):
            place = index[axis] + step
            if 0 <= place < table.shape[axis]:
                other = table[(*index[:axis], place, *index[axis + 1 :])]
                if float(other) not in seen:
                    seen.add(float(other))
                    yield other
    if float(-value) not in seen:
        yield -value
