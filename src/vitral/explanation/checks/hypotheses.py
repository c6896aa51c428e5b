"""Hypotheses: the numbers that a printed quantity has after a slip in it, or in an unprinted step before it."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.explanation.checks.author import Author
from vitral.explanation.checks.edits import Edit, edits, scales
from vitral.explanation.checks.rounding import RoundingRule
from vitral.explanation.checks.slips import Slip
from vitral.explanation.examples.schema import WORDS
from vitral.explanation.expressions import Call, Reference, Tree, call_of, compute, references, substituted
from vitral.explanation.recipe import SheetQuantity, Values

MOST_CELLS = 150
"""In larger quantities, rows of other positions are tried only in the printed quantity."""
MOST_NUMBERS = 500_000
"""Numbers of the hypotheses that are made at once."""
MOST_ENTRIES = 400
"""In larger tables, no entry is supposed to be copied wrongly."""
FIT = 8.0
"""Bits of a number that is chosen to fit."""
WIDTHS = {"q": "d_k", "k": "d_k", "scores": "n", "x": "d_model", "attn_norm": "d_model", "resid_pre": "d_model"}
"""Symbols of the widths by which scores may be divided, by quantity."""
FAILURES = (RuntimeError, IndexError, ValueError, UsageError, AssertionError)
"""Shapes that do not fit, or probabilities that are none."""

Results = Iterator[tuple[Slip, Tensor]]
"""Slips with the values of a quantity under each."""


class HypothesisGenerator:
    """Makes the hypotheses about one quantity, from one computation of its inputs."""

    def __init__(self, author: Author, rule: RoundingRule, target: SheetQuantity, base: Values) -> None:
        """Keep the computation.

        Args:
            author: of the sheet.
            rule: of rounding in steps that are not printed.
            target: the quantity that is compared.
            base: the values of the computation that the author may have continued from.
        """
        self.author, self.rule, self.target, self.base = author, rule, target, base
        self.sheet, self.known = author.sheet, dict[Tree, Tensor]()
        self.shapes = {name: tuple(value.shape) for name, value in base.items()}
        self.order = {quantity.name: index for index, quantity in enumerate(self.sheet.quantities)}
        self.steps = [target]
        for quantity in reversed(self.sheet.quantities[: self.order[target.name]]):
            if quantity.name not in author.claimed and any(quantity.name in step.inputs for step in self.steps):
                self.steps.append(quantity)
        self.inputs = tuple(dict.fromkeys(name for step in self.steps for name in step.inputs))

    @property
    def key(self) -> tuple[object, ...]:
        """What the hypotheses depend on."""
        return (len(self.steps) > 1 and self.rule, *(self.base[name].numpy().tobytes() for name in self.inputs))

    def all(self, printed: Tensor) -> Iterator[tuple[list[Slip], Tensor]]:
        """Every hypothesis, in families, [slips, *shape]; some are chosen to fit what is printed."""
        for step in self.steps:
            yield from self.carried(step, self.edited(step))
            if self.target.name in WORDS:
                return
        for step in self.steps:
            yield from self.carried(step, self.other_rows(step))
        for family in (self.terms(), self.fitted(printed)):
            yield from self.carried(self.target, family)
        for name in self.inputs:
            yield from self.from_table(name)

    # From a step to the printed quantity.

    def carried(self, step: SheetQuantity, slips: Iterable[tuple[Slip, Tensor]]) -> Iterator[tuple[list[Slip], Tensor]]:
        """The printed quantity, from values of a step that are made one by one."""
        waiting = iter(slips)
        size = max(1, MOST_NUMBERS // max(self.base[quantity.name].numel() for quantity in self.steps))
        while piece := list(itertools.islice(waiting, size)):
            values = torch.stack([value for _, value in piece])
            if step is not self.target:
                shown = self.author.carried(self.rule, step, values)
                values = self.many(step.name, shown, self.chain(step.name))
            yield [slip for slip, _ in piece], values

    def many(self, name: str, tables: Tensor, chain: Sequence[SheetQuantity]) -> Tensor:
        """The last of some steps from many values of another quantity."""

        def run(value: Tensor) -> Tensor:
            values = {**self.base, name: value}
            for step in chain:
                made = self.rule.make(step, values, self.author.printed[step.name].unit)
                values[step.name] = made if step is self.target else self.author.carried(self.rule, step, made)
            return values[chain[-1].name]

        def run_or_nan(value: Tensor) -> Tensor:
            try:
                return run(value)
            except FAILURES:
                return torch.full_like(self.base[chain[-1].name], torch.nan)

        try:
            return torch.vmap(run)(tables)
        except FAILURES:  # a step that cannot be computed for many at once
            return torch.stack([run_or_nan(value) for value in tables])

    def chain(self, name: str) -> list[SheetQuantity]:
        """The steps from a quantity on to the printed one, in the order of the computation."""
        reached, chain = {name}, []
        for quantity in reversed(self.steps):
            if quantity.name != name and reached & set(quantity.inputs):
                reached.add(quantity.name)
                chain.append(quantity)
        return chain

    # Slips in one step.

    def value_of(self, tree: Tree) -> Tensor | None:
        """The value of a tree; None where shapes do not fit or a number is none."""
        try:
            value = compute(tree, self.base, cache=self.known)
        except FAILURES:
            return None
        return None if bool(value.isnan().any()) else value

    def edited(self, step: SheetQuantity) -> Results:
        """The values of a step under each edit that changes them."""
        unedited = self.base[step.name]
        seen: set[Tree] = set()
        for edit in self.edits(step):
            if edit.tree not in seen:
                seen.add(edit.tree)
                value = self.value_of(edit.tree)
                if value is not None and value.shape == unedited.shape and not torch.equal(value, unedited):
                    yield Slip(edit.kind, step.name, edit.values), value

    def edits(self, step: SheetQuantity) -> Iterator[Edit]:
        """The edits of a step's tree, with what is known then."""
        own = self.order[step.name]
        shapes = {name: shape for name, shape in self.shapes.items() if self.order.get(name, -1) < own}
        composed = step.tree
        for _ in range(2):
            below = [  # those computed from a quantity of the same shape, as masked from scaled
                name
                for name in references(composed)
                if name in self.sheet and any(self.shapes[of] == self.shapes[name] for of in self.sheet[name].inputs)
            ]
            composed = substituted(composed, {Reference(name): self.sheet[name].tree for name in below})
        yield from edits(step.name, step.tree, shapes, composed)
        for first, second in itertools.combinations(map(Reference, step.inputs), 2):
            if shapes[first.name] == shapes[second.name]:
                values = {"first": first.name, "second": second.name}
                yield Edit("operands-exchanged", substituted(step.tree, {first: second, second: first}), values)
        if step.name == "scaled":
            yield from scales({width: shapes[name][-1] for name, width in WIDTHS.items() if name in shapes})
        for name in ("x", "attn_norm", "resid_pre", "token_embedding") if step.name == "scores" else ():
            if name in shapes:
                x = Call("lifted", (Reference(name),))
                product = Call("matmul", (x, Call("transpose", (x,))))
                yield Edit("operand-other", product, {"expected": "q", "used": name})

    def other_rows(self, step: SheetQuantity) -> Results:
        """A row, or a column of scores, computed from that of another position."""
        faultless = self.base[step.name]
        if (
            call_of(step.tree, "matmul") is None
            or faultless.dim() < 2
            or (step is not self.target and faultless.numel() > MOST_CELLS)
        ):
            return
        grains = (("row", 0), ("column", -1)) if step.axes[-1] == "source" else (("row", 0),)
        for grain, operand in grains:
            turned = faultless if grain == "row" else faultless.mT
            for other, row in itertools.permutations(range(turned.shape[-2]), 2):
                changed = turned.clone()
                changed[..., row, :] = turned[..., other, :]
                slip = Slip("other-row", step.name, {"row": (step.inputs[operand], other)}, grain)
                yield slip, changed if grain == "row" else changed.mT

    def terms(self) -> Results:
        """One term of a sum missing, doubled, with the wrong sign, or added in place of multiplied, in one cell."""
        faultless, product, name = self.base[self.target.name], call_of(self.target.tree, "matmul"), self.target.name
        if self.target.is_share:  # the sum lacks a term: the same one in every row, or the last or first not 0
            size, seen = faultless.shape[-1], faultless > 0
            columns = torch.arange(size)
            last = columns == (columns * seen).argmax(dim=-1, keepdim=True)
            first = columns == seen.double().argmax(dim=-1, keepdim=True)
            for term, lost in [*((term, columns == term) for term in range(size)), (size - 1, last), (0, first)]:
                rest = 1 - (faultless * lost).sum(dim=-1, keepdim=True)
                yield Slip("term-dropped", name, {"term": term}), torch.where(rest > 0, faultless / rest, faultless)
        left, right = (None, None) if product is None else map(self.value_of, product.arguments)
        if left is None or right is None or left.shape[-1] * faultless.numel() > 4 * MOST_NUMBERS:
            return
        for term in range(left.shape[-1]):
            a, b = left[..., term, None], right[..., term, None, :]
            terms = a * b
            if terms.numel() != faultless.numel():
                return
            added = torch.where(terms != 0, a + b - terms, 0.0)
            for kind, change in (("dropped", -terms), ("doubled", terms), ("sign", -2 * terms), ("added", added)):
                yield Slip(f"term-{kind}", name, {"term": term}, "cell"), faultless + change.reshape(faultless.shape)

    def fitted(self, printed: Tensor) -> Results:
        """A wrong factor of the scores or a wrong total of the weights, whatever it is, found from what is printed."""
        step, known, faultless = self.target, printed.isfinite(), self.base[self.target.name]
        if step.is_share:
            seen = known & (faultless > 0) & (printed > 0)
            total = (faultless * seen).sum(-1, keepdim=True) / (printed * seen).sum(-1, keepdim=True).clamp(min=1e-9)
            factors = torch.where((seen.sum(-1, keepdim=True) > 1) & (total > 0), total, 1.0)
            rows = int(((factors - 1).abs() > 1e-3).sum())
            yield Slip("total-wrong", step.name, {}, "row", FIT * rows), faultless / factors
            x = step.outer.arguments[0]
            entries = self.value_of(x)
            if entries is not None and bool(seen.any()):
                factor = _factor(entries, printed, seen)
                scaled = torch.where(entries.isfinite(), entries * factor, entries)
                value = compute(substituted(step.tree, {x: Reference("entries")}), {"entries": scaled})
                yield Slip("temperature", step.name, {"factor": f"{factor:.3g}"}, cost=FIT), value
        elif step.name == "scaled":
            scores = self.base[step.inputs[0]]
            seen = known & scores.isfinite()
            factor = float((printed[seen] * scores[seen]).sum() / scores[seen].square().sum().clamp(min=1e-12))
            yield Slip("scale-other", step.name, {"scale": f"{factor:.4g}"}, cost=FIT), scores * factor

    # Slips in what is given or computed before.

    def from_table(self, name: str) -> Iterator[tuple[list[Slip], Tensor]]:
        """A table that is changed in a step that reads it."""
        is_step = any(name == step.name for step in self.steps)
        changes = [
            change for change in _changed(name, self.base[name]) if not is_step or change[0].kind == "head-other"
        ]
        for step in self.steps if changes else ():
            if name in step.inputs:
                values = self.many(name, torch.stack([table for _, table in changes]), [step])
                slips = (replace(slip, step=step.name) for slip, _ in changes)
                yield from self.carried(step, zip(slips, values, strict=True))


def _factor(entries: Tensor, weights: Tensor, seen: Tensor) -> float:
    """The factor of the entries of which the powers of e fit weights best: log weights are linear in it."""
    share = torch.where(seen, weights, 0.0)
    share = share / share.sum(-1, keepdim=True).clamp(min=1e-12)

    def centred(x: Tensor) -> Tensor:
        x = torch.where(seen, x, 0.0)
        return torch.where(seen, x - (share * x).sum(-1, keepdim=True), 0.0)

    x, y = centred(entries), centred(torch.where(seen, weights, 1.0).log())
    return float((share**2 * x * y).sum() / (share**2 * x * x).sum().clamp(min=1e-12))


def _changed(name: str, table: Tensor) -> Results:
    """A table with the matrix of one head in place of another's, or with an entry read as a neighbour or negative."""
    for head, other in itertools.permutations(range(len(table)), 2) if table.dim() == 3 else ():
        changed = table.clone()
        changed[head] = table[other]
        yield Slip("head-other", name, {"head": head, "other": other, "table": name}), changed
    indices = itertools.product(*map(range, table.shape)) if table.dim() > 0 and table.numel() <= MOST_ENTRIES else ()
    for index in indices:
        used = {-float(table[index])}
        for axis, step in itertools.product(range(max(0, table.dim() - 2), table.dim()), (1, -1)):
            if 0 <= index[axis] + step < table.shape[axis]:
                used.add(float(table[(*index[:axis], index[axis] + step, *index[axis + 1 :])]))
        for number in sorted(used - {float(table[index])}):
            changed = table.clone()
            changed[index] = number
            yield Slip("copied-wrong", name, {"table": name, "index": index, "used": number}, "row"), changed
