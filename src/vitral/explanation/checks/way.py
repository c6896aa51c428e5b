"""The way from a changed value to a printed quantity: the unprinted steps between, as the author computes them."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.explanation.checks.habits import Habit
from vitral.explanation.checks.units import Unit
from vitral.explanation.expressions import Reference, Tree, compute
from vitral.explanation.sheet import Sheet, SheetQuantity, Values


@dataclass(frozen=True)
class Work:
    """How an author computes unprinted steps.

    Attributes:
        habit: of rounding.
        unit: of a quantity, by name.
    """

    habit: Habit | None = None
    unit: Callable[[str], Unit] = lambda _: Unit(2)

    def make(self, step: SheetQuantity, tree: Tree, values: Values) -> Tensor:
        """A step from these values, before it is rounded."""
        if tree == Reference(step.name):
            return step.make(values)
        if self.habit is None or not self.habit.inside(step):
            return compute(tree, values)
        return self.habit.make(step, values, self.unit(step.name))

    def alike(self, steps: Sequence[SheetQuantity]) -> tuple[object, ...]:
        """What matters of the work for these steps; the last of them is printed."""
        if self.habit is None:
            return ()
        inside = [self.habit.inside(step) for step in steps]
        rounds = (self.habit.carry, self.habit.guards, self.habit.cuts) if self.habit.carry == "steps" else ()
        return (*filter(None, inside), *(rounds if len(steps) > 1 else ()))

    def carried(self, step: SheetQuantity, value: Tensor) -> Tensor:
        """What the author goes on with of an unprinted step."""
        if self.habit is None or self.habit.carry != "steps":
            return value
        unit = self.unit(step.name)
        return self.habit.carried(self.habit.printed(step, value, unit), unit)


class Way:
    """The steps on the way to one quantity, from one computation of its inputs."""

    def __init__(
        self, sheet: Sheet, claimed: Set[str], target: SheetQuantity, base: Values, work: Work | None = None
    ) -> None:
        """Keep the computation.

        Args:
            sheet: the computation.
            claimed: the printed quantities.
            target: the quantity that is compared.
            base: the values of the computation that the author may have continued from.
            work: how the author computes a step; None: exactly.
        """
        self.work = work or Work()
        self.sheet, self.claimed, self.target, self.base = sheet, claimed, target, base
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
        return steps

    @cached_property
    def ordered(self) -> list[SheetQuantity]:
        """These steps in the order of the computation, the quantity first."""
        return sorted(self.steps, key=lambda step: -self.order[step.name])

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """What these steps are computed from: given or printed quantities."""
        own = {step.name for step in self.steps}
        return tuple(dict.fromkeys(name for step in self.steps for name in step.inputs if name not in own))

    def same(self, other: "Way") -> bool:
        """Whether both make the same hypotheses."""
        names = {*self.leaves, *(step.name for step in self.steps)} - {self.target.name}
        if any(not torch.equal(self.base[name], other.base[name]) for name in names):
            return False
        return self.work.alike(self.steps) == other.work.alike(self.steps)

    def tree(self, step: SheetQuantity) -> Tree:
        """The computation of a step; the step itself if its operation has no tree, as a derivative."""
        return step.operation.tree(step.inputs) or Reference(step.name)

    def drift(self, decimals: int) -> Tensor:
        """How far the quantity moves if every unprinted step before it is rounded to so many decimals, or cut."""
        usual = self.base[self.target.name]
        moved = torch.zeros_like(usual)
        for turn in (torch.round, torch.trunc):
            values = dict(self.base)
            for step in reversed(self.ordered):
                made = value_of(self.tree(step), values)
                if made is None:
                    return moved
                values[step.name] = made if step is self.target else turn(made * 10.0**decimals) / 10.0**decimals
            moved = torch.maximum(moved, (values[self.target.name] - usual).abs().nan_to_num())
        return moved

    def many(self, chain: Sequence[SheetQuantity], name: str, target: str, made: Tensor) -> Tensor:
        """A quantity from many values of another one, by the steps between them."""
        trees = [(each, self.tree(each)) for each in chain]

        def run(value: Tensor) -> Tensor:
            values = {**self.base, name: value}
            for each, tree in trees:
                made = self.work.make(each, tree, values)
                values[each.name] = made if each.name == target else self.work.carried(each, made)
            return values[target]

        def alone(value: Tensor) -> Tensor:
            try:
                return run(value)
            except (RuntimeError, UsageError, ValueError):
                return torch.full_like(self.base[target], torch.nan)

        try:
            return torch.vmap(run)(made)
        except (RuntimeError, UsageError, ValueError):  # a step that cannot be computed for many at once
            return torch.stack([alone(value) for value in made])

    def chain(self, name: str) -> list[SheetQuantity]:
        """The steps from a quantity on to the printed one, in the order of the computation."""
        reached, chain = {name}, []
        own = {step.name for step in self.steps}
        for quantity in self.sheet.quantities:
            if quantity.name in own and quantity.name != name and reached & set(quantity.inputs):
                reached.add(quantity.name)
                chain.append(quantity)
        return chain


def value_of(tree: Tree, values: Values) -> Tensor | None:
    """The value of a tree; None where shapes do not fit or a number is none."""
    try:
        made = compute(tree, values)
    except (RuntimeError, IndexError, ValueError, UsageError, AssertionError):
        return None
    return None if bool(made.isnan().any()) else made
