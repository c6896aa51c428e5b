"""Free steps of a worked example: reading them, and computing them between the steps of the recipe."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.explanation.examples.given import FreeStep, Given, in_step
from vitral.explanation.examples.names import hint
from vitral.explanation.examples.schema import AXES, AXES_OF_RANK
from vitral.explanation.expressions import (
    Call,
    Reference,
    Tree,
    from_the_end,
    mapped,
    references,
    shape_of,
    substituted,
)
from vitral.explanation.expressions.definitions import BY_ROWS
from vitral.explanation.expressions.parser import GRADIENT
from vitral.explanation.readings.gradients import gradient
from vitral.explanation.recipe import SheetQuantity


class StepSolver:
    """Computes the steps of one file in order."""

    def __init__(self, given: Given, values: dict[str, Tensor], num_heads: int) -> None:
        """Resolve the names.

        Args:
            given: of the file, with its steps.
            values: those of all quantities known so far; the steps' are added.
            num_heads: query heads.
        """
        self.given, self.values, self.one_head, known = given, values, num_heads == 1, given.name
        self.steps: dict[str, FreeStep] = {}
        self.made: list[SheetQuantity] = []
        self.derivatives: dict[tuple[str, str], str] = {}
        for step in given.steps:
            with in_step(step.name, step.path):
                if known(step.name) in self.steps:
                    raise UsageError("is a step twice, by two names")
                if known(step.name) in values:
                    raise UsageError("is given too; a quantity is given or computed")
            self.steps[known(step.name)] = step

    def quantities(self, recipe_again: Callable[[], Iterable[SheetQuantity]]) -> tuple[SheetQuantity, ...]:
        """All quantities in order: those of the recipe as soon as they can be computed, and the steps.

        Args:
            recipe_again: computes what the recipe can compute now.

        Raises:
            UsageError: names the line and the step.
        """
        self.made += recipe_again()
        for name, step in self.steps.items():
            with in_step(step.name, step.path):
                self._solve(name, step)
            self.made += recipe_again()
        return tuple(self.made)

    def _solve(self, name: str, step: FreeStep) -> None:
        names: dict[Tree, Tree] = {Reference(each): Reference(self.given.name(each)) for each in references(step.tree)}
        tree = substituted(step.tree, names)
        match tree:
            case Call("grad", (Reference(of), Reference(by))):
                self._differentiate(name, of, by)
            case _:
                self._compute(name, mapped(tree, self._derivative))

    def _derivative(self, node: Tree) -> Tree | None:
        """The name of a derivative inside an expression, which becomes a quantity of its own."""
        match node:
            case Call("grad", (Reference(of), Reference(by))):
                if (of, by) not in self.derivatives:
                    self._differentiate(f"{GRADIENT}({of}, {by})", of, by)
                return Reference(self.derivatives[of, by])
        return None

    def _require(self, *names: str) -> None:
        for name in names:
            if name in self.values:
                continue
            if name in self.steps:
                raise UsageError("{name}: is computed in a later step", name=self.steps[name].name)
            hints = hint(name, [*self.values, *AXES])
            raise UsageError("{name}: is not known here ({hint})", name=name, hint=hints)

    def _compute(self, name: str, tree: Tree) -> None:
        names = references(tree)
        self._require(*names)
        tree = substituted(tree, {Reference(each): self.seen(each) for each in names})
        shapes = {each: tuple(self.values[each].shape) for each in names}
        shape = shape_of(tree, shapes)
        rank, axes = self.form(name, tree, shape)
        made = from_the_end(tree, shapes)
        made = Call("transpose", (made,)) if self.given.conventions.turned(name) else made
        for _axis in range(rank - len(shape)):
            made = Call("lifted", (made,))
        quantity = SheetQuantity(name, axes, made, is_free=True)
        value = quantity.make(self.values)
        if bool(value.isnan().any()) or bool((value == math.inf).any()):
            raise UsageError("a cell is not a finite number, as 1/0 or the logarithm of a negative number")
        self._keep(quantity, value)

    def seen(self, name: str) -> Tree:
        """A quantity as expressions see it: with one head without the axis of heads, and as the author lays it out."""
        made: Tree = Reference(name)
        if self.one_head and self.values[name].dim() == 3 and len(self.values[name]) == 1:
            made = Call("head", (made,))
        return Call("transpose", (made,)) if self.given.conventions.turned(name) else made

    def form(self, name: str, tree: Tree, shape: tuple[int, ...]) -> tuple[int, tuple[str, ...]]:
        """The number of axes, at least one, and their names."""
        if name not in AXES:
            if len(shape) > 3:
                raise UsageError("its value has {n} axes; at most 3", n=len(shape))
            return max(1, len(shape)), self.axes(tree, shape)
        axes = AXES[name]
        missing = len(axes) - len(shape)
        if missing and not (missing == 1 and self.one_head and axes[0] in ("heads", "kv_heads")):
            raise UsageError(
                "this name is that of a quantity with {expected} axes, but its value has {n}; choose another name",
                expected=len(axes) - (axes[0] in ("heads", "kv_heads") and self.one_head),
                n=len(shape),
            )
        axes = tuple(axis.replace("kv_heads", "heads") for axis in axes)
        return len(axes), axes

    def axes(self, tree: Tree, shape: tuple[int, ...]) -> tuple[str, ...]:
        """Names of the axes, for the labels of rows and columns: those of the quantity it is like."""
        plain = AXES_OF_RANK[len(shape)]
        axes = {quantity.name: quantity.axes for quantity in self.made}

        def known(node: Tree) -> tuple[str, ...]:
            match node:
                case Reference(name):
                    return axes.get(name) or AXES.get(name) or AXES_OF_RANK[self.values[name].dim()]
                case Call("head", (inside,)):
                    return known(inside)[1:]
                case Call("matmul", (left, right)):
                    return (*known(left)[:-1], *known(right)[-1:])
                case Call("transpose", (inside,)):
                    return (*known(inside)[:-2], *known(inside)[-2:][::-1])
                case Call("pick" | "concat" | "row" | "column" | "one_hot" | "cross_entropy"):
                    return ()
                case Call(function, arguments, settings):
                    if settings and function not in BY_ROWS:
                        return ()
                    return max(map(known, arguments), key=len)
            return ()

        made = known(tree)
        return made if len(made) == len(plain) and made[0] != "one" else plain

    def _differentiate(self, name: str, of: str, by: str) -> None:
        self._require(of, by)
        if self.values[of].numel() != 1:
            raise UsageError("grad({of}, {by}): {of} is no single number; take a sum or a mean", of=of, by=by)
        sheet = {each.name: each.tree for each in self.made}
        if any(each.derivative for each in self.made if each.name in _on_the_way(sheet, of, by)):
            raise UsageError("grad({of}, {by}): {of} depends on a derivative; only one grad", of=of, by=by)
        known = {below: made for (above, below), made in self.derivatives.items() if above == of}
        tree = gradient(sheet, self.values, of, by, known)
        quantity = SheetQuantity(name, (), tree, is_free=True, derivative=(of, by))
        value = quantity.make(self.values).expand(self.values[by].shape)
        if not bool(value.isfinite().all()):
            raise UsageError("grad({of}, {by}): a cell is not a finite number", of=of, by=by)
        axes = next((each.axes for each in self.made if each.name == by), AXES.get(by) or AXES_OF_RANK[value.dim()])
        axes = tuple(axis.replace("kv_heads", "heads") for axis in axes)
        self.derivatives[of, by] = name
        self._keep(replace(quantity, axes=axes), value)

    def _keep(self, quantity: SheetQuantity, value: torch.Tensor) -> None:
        self.values[quantity.name] = value
        self.made.append(quantity)


def _on_the_way(sheet: Mapping[str, Tree], of: str, by: str) -> set[str]:
    """The quantities between two, without the second.

    Raises:
        UsageError: the first does not depend on the second.
    """
    after = {by}
    for name, tree in sheet.items():
        after |= {name} if not after.isdisjoint(references(tree)) else set()
    if of == by or of not in after or of not in sheet:
        raise UsageError("grad({of}, {by}): {of} does not depend on {by}", of=of, by=by)
    needed = {of}
    for name in reversed(list(sheet)):
        needed |= set(references(sheet[name])) & after if name in needed else set()
    return needed - {by}
