"""Free steps of a worked example: reading them, and computing them between the steps of the recipe."""

import math
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.explanation.examples.faults import at
from vitral.explanation.examples.names import hint
from vitral.explanation.examples.reader import Reader
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

    def __init__(self, reader: Reader, values: dict[str, Tensor], num_heads: int) -> None:
        """Resolve the names.

        Args:
            reader: of the file, with its steps.
            values: those of all quantities known so far; the steps' are added.
            num_heads: query heads.
        """
        self.reader, self.values, self.one_head = reader, values, num_heads == 1
        self.steps: dict[str, tuple[str, Tree]] = {}
        self.computed: list[SheetQuantity] = []
        self.derivatives: dict[tuple[str, str], str] = {}
        for label, tree in reader.steps.items():
            name = reader.name(label)
            with at("steps", label):
                if name in self.steps:
                    raise UsageError("is a step twice, by two names")
                if name in values:
                    raise UsageError("is given too; a quantity is given or computed")
            self.steps[name] = label, tree

    def quantities(self, recipe_again: Callable[[], Iterable[SheetQuantity]]) -> tuple[SheetQuantity, ...]:
        """All quantities in order: those of the recipe as soon as they can be computed, and the steps.

        Args:
            recipe_again: computes what the recipe can compute now.

        Raises:
            UsageError: names the line and the step.
        """
        self.computed += recipe_again()
        for name, (label, tree) in self.steps.items():
            with at("steps", label):
                self._solve(name, tree)
            self.computed += recipe_again()
        return tuple(self.computed)

    def _solve(self, name: str, tree: Tree) -> None:
        tree = substituted(
            tree, {Reference(operand): Reference(self.reader.name(operand)) for operand in references(tree)}
        )
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
                raise UsageError("{name}: is computed in a later step", name=self.steps[name][0])
            hints = hint(name, [*self.values, *AXES])
            raise UsageError("{name}: is not known here ({hint})", name=name, hint=hints)

    def _compute(self, name: str, tree: Tree) -> None:
        names = references(tree)
        self._require(*names)
        tree = substituted(tree, {Reference(operand): self.seen(operand) for operand in names})
        shapes = {operand: tuple(self.values[operand].shape) for operand in names}
        shape = shape_of(tree, shapes)
        axes = self.form(name, tree, shape)
        tree = from_the_end(tree, shapes)
        tree = Call("transpose", (tree,)) if self.reader.conventions.turned(name) else tree
        for _axis in range(len(axes) - len(shape)):
            tree = Call("lifted", (tree,))
        quantity = SheetQuantity(name, axes, tree, is_free=True)
        value = quantity.make(self.values)
        if bool(value.isnan().any()) or bool((value == math.inf).any()):
            raise UsageError("a cell is not a finite number, as 1/0 or the logarithm of a negative number")
        self._keep(quantity, value)

    def seen(self, name: str) -> Tree:
        """A quantity as expressions see it: with one head without the axis of heads, and as the author lays it out."""
        tree: Tree = Reference(name)
        if self.one_head and self.values[name].dim() == 3 and len(self.values[name]) == 1:
            tree = Call("head", (tree,))
        return Call("transpose", (tree,)) if self.reader.conventions.turned(name) else tree

    def form(self, name: str, tree: Tree, shape: tuple[int, ...]) -> tuple[str, ...]:
        """The names of the axes of a step's value, at least one."""
        if name not in AXES:
            if len(shape) > 3:
                raise UsageError("its value has {n} axes; at most 3", n=len(shape))
            return self.axes(tree, shape)
        axes = self.axes_of(name)
        missing = len(axes) - len(shape)
        if missing and not (missing == 1 and self.one_head and axes[0] == "heads"):
            raise UsageError(
                "this name is that of a quantity with {expected} axes, but its value has {n}; choose another name",
                expected=len(axes) - (axes[0] == "heads" and self.one_head),
                n=len(shape),
            )
        return axes

    def axes_of(self, name: str) -> tuple[str, ...]:
        """Names of the axes of a quantity."""
        axes = next((quantity.axes for quantity in self.computed if quantity.name == name), ())
        axes = axes or AXES.get(name) or AXES_OF_RANK[self.values[name].dim()]
        return tuple(axis.replace("kv_heads", "heads") for axis in axes)

    def axes(self, tree: Tree, shape: tuple[int, ...]) -> tuple[str, ...]:
        """Names of the axes, for the labels of rows and columns: those of the quantity it is like."""
        plain = AXES_OF_RANK[len(shape)]

        def named(node: Tree) -> tuple[str, ...]:
            match node:
                case Reference(name):
                    return self.axes_of(name)
                case Call("head", (inside,)):
                    return named(inside)[1:]
                case Call("matmul", (left, right)):
                    return (*named(left)[:-1], *named(right)[-1:])
                case Call("transpose", (inside,)):
                    return (*named(inside)[:-2], *named(inside)[-2:][::-1])
                case Call("pick" | "concat" | "row" | "column" | "one_hot" | "cross_entropy"):
                    return ()
                case Call(function, arguments, settings):
                    if settings and function not in BY_ROWS:
                        return ()
                    return max(map(named, arguments), key=len)
            return ()

        axes = named(tree)
        return axes if len(axes) == len(plain) and axes[0] != "one" else plain

    def _differentiate(self, name: str, of: str, by: str) -> None:
        self._require(of, by)
        if self.values[of].numel() != 1:
            raise UsageError("grad({of}, {by}): {of} is no single number; take a sum or a mean", of=of, by=by)
        trees = {quantity.name: quantity.tree for quantity in self.computed}
        between = _between(trees, of, by)
        if any(quantity.derivative for quantity in self.computed if quantity.name in between):
            raise UsageError("grad({of}, {by}): {of} depends on a derivative; only one grad", of=of, by=by)
        known = {below: derivative for (above, below), derivative in self.derivatives.items() if above == of}
        tree = gradient(trees, self.values, of, by, known)
        quantity = SheetQuantity(name, self.axes_of(by), tree, is_free=True, derivative=(of, by))
        value = quantity.make(self.values).expand(self.values[by].shape)
        if not bool(value.isfinite().all()):
            raise UsageError("grad({of}, {by}): a cell is not a finite number", of=of, by=by)
        self.derivatives[of, by] = name
        self._keep(quantity, value)

    def _keep(self, quantity: SheetQuantity, value: torch.Tensor) -> None:
        self.values[quantity.name] = value
        self.computed.append(quantity)


def _between(trees: Mapping[str, Tree], of: str, by: str) -> set[str]:
    """The quantities between two, without the second.

    Raises:
        UsageError: the first does not depend on the second.
    """
    after = {by}
    for name, tree in trees.items():
        after |= {name} if not after.isdisjoint(references(tree)) else set()
    if of == by or of not in after or of not in trees:
        raise UsageError("grad({of}, {by}): {of} does not depend on {by}", of=of, by=by)
    needed = {of}
    for name in reversed(list(trees)):
        needed |= set(references(trees[name])) & after if name in needed else set()
    return needed - {by}
