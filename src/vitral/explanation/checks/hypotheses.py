"""Hypotheses: the numbers that a printed quantity has after a slip in it, or in an unprinted step before it."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.explanation.checks.edits import Edit, edits, scales
from vitral.explanation.checks.rounding import RoundingRule, is_softmax
from vitral.explanation.checks.slips import GENERIC
from vitral.explanation.checks.units import Unit
from vitral.explanation.expressions import Call, Reference, Tree, compute, nodes, references, substituted
from vitral.explanation.sheet import Sheet, SheetQuantity, Values

WORDS = ("greedy", "beam")
"""Quantities whose numbers are indices of words."""
MOST_CELLS = 150
"""In larger quantities, slips of single cells and rows of other positions are tried only in the printed quantity."""
MOST_NUMBERS = 500_000
"""Numbers of the hypotheses that are made at once."""
MOST_ENTRIES = 400
"""In larger tables, no entry is supposed to be copied wrongly."""
FAILURES = (RuntimeError, IndexError, ValueError, UsageError, AssertionError)
"""Shapes that do not fit, or probabilities that are none."""


EXACT = RoundingRule()


@dataclass(frozen=True)
class Supposed:
    """A slip that is supposed.

    Attributes:
        kind: one of `slips.KINDS`.
        step: where it is made.
        places: placeholders of its phrase.
        grain: how far it reaches: "all", a "row", a "column" or a "cell".
        cost: bits of what was chosen to fit the numbers.
    """

    kind: str
    step: str
    places: Mapping[str, object]
    grain: str = "all"
    cost: float = 0.0


@dataclass(frozen=True)
class Work:
    """How an author computes unprinted steps.

    Attributes:
        rule: of rounding.
        unit: of a quantity, by name.
    """

    rule: RoundingRule = EXACT
    unit: Callable[[str], Unit] = lambda _: Unit(2)

    def make(self, step: SheetQuantity, values: Values) -> Tensor:
        """A step from these values, before it is rounded."""
        return self.rule.make(step, values, self.unit(step.name))

    def carried(self, step: SheetQuantity, value: Tensor) -> Tensor:
        """What the author goes on with of an unprinted step."""
        if self.rule.carry not in ("steps", "float16"):
            return value
        unit = self.unit(step.name)
        return self.rule.carried(self.rule.printed(step, value, unit), unit)


Made = Iterator[tuple[list[Supposed], Tensor]]
"""Slips with the quantity under each, [slips, *shape]."""


class Supposer:
    """Makes the hypotheses about one quantity, from one computation of its inputs."""

    def __init__(self, sheet: Sheet, claimed: Set[str], target: SheetQuantity, base: Values, work: Work) -> None:
        """Keep the computation.

        Args:
            sheet: the computation.
            claimed: the printed quantities.
            target: the quantity that is compared.
            base: the values of the computation that the author may have continued from.
            work: how the author computes a step.
        """
        self.sheet, self.claimed, self.target, self.base, self.work = sheet, claimed, target, base, work
        self.shapes = {name: tuple(value.shape) for name, value in base.items()}
        self.order = {quantity.name: place for place, quantity in enumerate(sheet.quantities)}

    @cached_property
    def steps(self) -> list[SheetQuantity]:
        """The quantity and the unprinted ones that it is computed from, the quantity first."""
        steps, waiting = [self.target], list(self.target.inputs)
        while waiting:
            name = waiting.pop()
            if name in self.sheet and name not in self.claimed and self.sheet[name] not in steps:
                steps.append(self.sheet[name])
                waiting += self.sheet[name].inputs
        return sorted(steps, key=lambda step: -self.order[step.name])

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """What these steps are computed from: given or printed quantities."""
        own = {step.name for step in self.steps}
        return tuple(dict.fromkeys(name for step in self.steps for name in step.inputs if name not in own))

    def same(self, other: "Supposer") -> bool:
        """Whether both make the same hypotheses."""
        if any(not torch.equal(self.base[name], other.base[name]) for name in self.leaves):
            return False
        return all(torch.equal(self.base[step.name], other.base[step.name]) for step in self.steps[1:]) and (
            self.work.rule == other.work.rule or len(self.steps) == 1
        )

    def all(self, printed: Tensor) -> Made:
        """Every hypothesis, in families; some are chosen to fit what is printed."""
        if self.target.name in WORDS:
            yield from self.carried(self.target, self.edited(self.target))
            return
        for step in self.steps:
            yield from self.carried(step, self.edited(step))
            yield from self.carried(step, self.other_rows(step))
            yield from self.carried(step, self.terms(step))
        yield from self.carried(self.target, self.fitted(printed))
        for name in (*self.leaves, *(step.name for step in self.steps[1:])):
            yield from self.from_tables(name)
        yield from self.carried(self.target, self.exchanged())

    # From a step to the printed quantity.

    def carried(self, step: SheetQuantity, made: Iterable[tuple[Supposed, Tensor]]) -> Made:
        """The printed quantity, from values of a step that are made one by one."""
        waiting = iter(made)
        size = max(1, MOST_NUMBERS // max(self.base[each.name].numel() for each in self.steps))
        while piece := list(itertools.islice(waiting, size)):
            values = torch.stack([value for _, value in piece])
            if step is not self.target:
                values = self.many(step.name, self.work.carried(step, values))
            yield [one for one, _ in piece], values

    def many(self, name: str, made: Tensor, steps: Sequence[SheetQuantity] | None = None) -> Tensor:
        """The printed quantity from many values of another one, by the unprinted steps between them, or by these."""
        chain = self.chain(name) if steps is None else steps

        def run(value: Tensor) -> Tensor:
            values = {**self.base, name: value}
            for each in chain:
                made = self.work.make(each, values)
                values[each.name] = made if each is self.target else self.work.carried(each, made)
            return values[chain[-1].name]

        def alone(value: Tensor) -> Tensor:
            try:
                return run(value)
            except FAILURES:
                return torch.full_like(self.base[chain[-1].name], torch.nan)

        try:
            return torch.vmap(run)(made)
        except FAILURES:  # a step that cannot be computed for many at once
            return torch.stack([alone(value) for value in made])

    def chain(self, name: str) -> list[SheetQuantity]:
        """The steps from a quantity on to the printed one, in the order of the computation."""
        reached, chain = {name}, []
        for quantity in reversed(self.steps):
            if quantity.name != name and reached & set(quantity.inputs):
                reached.add(quantity.name)
                chain.append(quantity)
        return chain

    # Slips in one step.

    def edited(self, step: SheetQuantity) -> Iterator[tuple[Supposed, Tensor]]:
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

    def edits(self, step: SheetQuantity) -> Iterator[Edit]:
        """The edits of a step's tree, with what is known then; and a printed input left out."""
        own = self.order[step.name]
        shapes = {name: shape for name, shape in self.shapes.items() if self.order.get(name, -1) < own}
        composed = step.tree
        for _ in range(2):
            below = [name for name in references(composed) if name in self.sheet and self.is_like_an_input(name)]
            composed = substituted(composed, {Reference(name): self.sheet[name].tree for name in below})
        yield from edits(step.name, step.tree, shapes, composed)
        if step.name == "scaled":
            of = {"q": "d_k", "k": "d_k", "scores": "n", "x": "d_model", "attn_norm": "d_model", "resid_pre": "d_model"}
            widths = {width: shapes[name][-1] for name, width in of.items() if name in shapes}
            yield from scales(Reference("scores"), widths)
        for name in ("x", "attn_norm", "resid_pre", "token_embedding") if step.name == "scores" else ():
            if name in shapes:
                x = Call("lifted", (Reference(name),))
                made = Call("matmul", (x, Call("transpose", (x,))))
                yield Edit("operand-other", made, {"expected": "q", "used": name})
        for name in step.inputs:
            if name in self.sheet and name in self.claimed:
                for edit in edits(name, self.sheet[name].tree, {}):
                    alike = isinstance(edit.tree, Reference) and self.shapes[edit.tree.name] == self.shapes[name]
                    if alike and edit.kind not in GENERIC:
                        yield Edit(edit.kind, substituted(step.tree, {Reference(name): edit.tree}), edit.places)

    def is_like_an_input(self, name: str) -> bool:
        """Whether a quantity is computed from one of the same shape, as masked from scaled."""
        return any(self.shapes[each] == self.shapes[name] for each in self.sheet[name].inputs)

    def other_rows(self, step: SheetQuantity) -> Iterator[tuple[Supposed, Tensor]]:
        """A row, or a column of scores, computed from that of another position."""
        usual = self.base[step.name]
        product = _product(step.tree)
        if product is None or usual.dim() < 2 or (step is not self.target and usual.numel() > MOST_CELLS):
            return
        columns = step.axes[-1] == "source"
        for axis, grain in ((-2, "row"), (-1, "column"))[: 1 + columns]:
            turned = usual if axis == -2 else usual.mT
            of = step.inputs[-1 if axis == -1 else 0]
            for place, row in itertools.permutations(range(turned.shape[-2]), 2):
                made = turned.clone()
                made[..., row, :] = turned[..., place, :]
                yield Supposed("other-row", step.name, {"row": (of, place)}, grain), made if axis == -2 else made.mT

    def terms(self, step: SheetQuantity) -> Iterator[tuple[Supposed, Tensor]]:
        """One term of a sum missing, doubled, with the wrong sign, or added in place of multiplied, in one cell."""
        usual, product = self.base[step.name], _product(step.tree)
        if is_softmax(step):
            yield from self.short_totals(step)
        if product is None or (step is not self.target and usual.numel() > MOST_CELLS):
            return
        left, right = (value_of(each, self.base) for each in product.arguments)
        if left is None or right is None or left.shape[-1] * usual.numel() > 4 * MOST_NUMBERS:
            return
        for term in range(left.shape[-1]):
            a, b = left[..., term, None], right[..., term, None, :]
            each = a * b
            if each.numel() != usual.numel():
                return
            changes = {
                "term-dropped": -each,
                "term-doubled": each,
                "term-sign": -2 * each,
                "term-added": torch.where(each != 0, a + b - each, 0.0),
            }
            for kind, change in changes.items():
                supposed = Supposed(kind, step.name, {"term": term}, "cell")
                change = change.reshape(usual.shape)
                if step is self.target:
                    yield supposed, usual + change
                    continue
                for place in range(usual.numel()):
                    made = usual.clone()
                    made.view(-1)[place] += change.reshape(-1)[place]
                    yield supposed, made

    def short_totals(self, step: SheetQuantity) -> Iterator[tuple[Supposed, Tensor]]:
        """The sum of a softmax lacks a term: the same one in every row, or the last or first that is not 0."""
        weights = self.base[step.name]
        size, seen = weights.shape[-1], weights > 0
        columns = torch.arange(size)
        last = columns == (columns * seen).argmax(dim=-1, keepdim=True)
        first = columns == seen.double().argmax(dim=-1, keepdim=True)
        for term, lost in [*((term, columns == term) for term in range(size)), (size - 1, last), (0, first)]:
            rest = 1 - (weights * lost).sum(dim=-1, keepdim=True)
            yield Supposed("term-dropped", step.name, {"term": term}), torch.where(rest > 0, weights / rest, weights)

    def fitted(self, printed: Tensor) -> Iterator[tuple[Supposed, Tensor]]:
        """A wrong factor of the scores or a wrong total of the weights, whatever it is, found from what is printed."""
        step, known = self.target, printed.isfinite()
        if is_softmax(step):
            true, seen = self.base[step.name], known & (self.base[step.name] > 0) & (printed > 0)
            total = (true * seen).sum(-1, keepdim=True) / (printed * seen).sum(-1, keepdim=True).clamp(min=1e-9)
            factors = torch.where((seen.sum(-1, keepdim=True) > 1) & (total > 0), total, 1.0)
            rows = int(((factors - 1).abs() > 1e-3).sum())
            yield Supposed("total-wrong", step.name, {}, "row", FIT * rows), true / factors
            [x] = step.tree.arguments[:1] if isinstance(step.tree, Call) else [step.tree]
            entries = value_of(x, self.base)
            if entries is not None and bool(seen.any()):
                factor = _factor(entries, printed, seen)
                made = torch.where(entries.isfinite(), entries * factor, entries)
                value = compute(substituted(step.tree, {x: Reference("entries")}), {"entries": made})
                yield Supposed("temperature", step.name, {"factor": f"{factor:.3g}"}, cost=FIT), value
        elif step.name == "scaled":
            scores = self.base[step.inputs[0]]
            seen = known & scores.isfinite()
            factor = float((printed[seen] * scores[seen]).sum() / scores[seen].square().sum().clamp(min=1e-12))
            yield Supposed("scale-other", step.name, {"scale": f"{factor:.4g}"}, cost=FIT), scores * factor

    # Slips in what is given or printed before.

    def from_tables(self, name: str) -> Made:
        """A table that is changed in one step that reads it, or in all."""
        made = _changed(name, self.base[name])
        changed = [each for each in made if name in self.leaves or each[0].kind == "head-other"]
        if not changed:
            return
        tables = torch.stack([table for _, table in changed])
        readers = [step for step in self.steps if name in step.inputs]
        for step in readers:
            values = self.many(name, tables, [step])
            yield from self.carried(
                step, ((replace(one, step=step.name), value) for (one, _), value in zip(changed, values, strict=True))
            )
        if len(readers) > 1:
            yield [one for one, _ in changed], self.many(name, tables)

    def exchanged(self) -> Iterator[tuple[Supposed, Tensor]]:
        """Two quantities of the same shape exchanged for each other."""
        for first, second in itertools.combinations(self.leaves, 2):
            if self.shapes[first] == self.shapes[second]:
                values = {**self.base, first: self.base[second], second: self.base[first]}
                for step in reversed(self.steps):
                    value = value_of(step.tree, values)
                    values[step.name] = self.base[step.name] if value is None else value
                places = {"first": first, "second": second}
                yield Supposed("operands-exchanged", self.target.name, places), values[self.target.name]


FIT = 8.0
"""Bits of a number that is chosen to fit."""


def value_of(tree: Tree, values: Values) -> Tensor | None:
    """The value of a tree; None where shapes do not fit or a number is none."""
    try:
        made = compute(tree, values)
    except FAILURES:
        return None
    return None if bool(made.isnan().any()) else made


def _factor(entries: Tensor, weights: Tensor, seen: Tensor) -> float:
    """The factor of the entries with which their softmax fits weights best: log weights are linear in it."""
    share = torch.where(seen, weights, 0.0)
    share = share / share.sum(-1, keepdim=True).clamp(min=1e-12)

    def centred(x: Tensor) -> Tensor:
        x = torch.where(seen, x, 0.0)
        return torch.where(seen, x - (share * x).sum(-1, keepdim=True), 0.0)

    x, y = centred(entries), centred(torch.where(seen, weights, 1.0).log())
    return float((share**2 * x * y).sum() / (share**2 * x * x).sum().clamp(min=1e-12))


def _product(tree: Tree) -> Call | None:
    return next((node for _, node in nodes(tree) if isinstance(node, Call) and node.function == "matmul"), None)


def _changed(name: str, table: Tensor) -> Iterator[tuple[Supposed, Tensor]]:
    """A table with the matrix of one head in place of another's, or with an entry read as a neighbour or negative."""
    for head, other in itertools.permutations(range(len(table)), 2) if table.dim() == 3 else ():
        made = table.clone()
        made[head] = table[other]
        yield Supposed("head-other", name, {"head": head, "other": other, "table": name}), made
    for index in (
        itertools.product(*map(range, table.shape)) if table.dim() > 0 and table.numel() <= MOST_ENTRIES else ()
    ):
        seen = {float(table[index])}
        neighbours = [
            (*index[:axis], index[axis] + step, *index[axis + 1 :])
            for axis in range(max(0, table.dim() - 2), table.dim())
            for step in (1, -1)
            if 0 <= index[axis] + step < table.shape[axis]
        ]
        for used in (*(float(table[place]) for place in neighbours), -float(table[index])):
            if used not in seen:
                seen.add(used)
                made = table.clone()
                made[index] = used
                yield Supposed("copied-wrong", name, {"table": name, "index": index, "used": used}, "row"), made
