"""Free steps of a worked example: reading them, and computing them between the steps of the recipe."""

import keyword
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.explanation.examples.names import Names, hint
from vitral.explanation.examples.schema import AXES
from vitral.explanation.expressions import (
    Call,
    Reference,
    Tree,
    from_the_end,
    measured,
    nodes,
    parse,
    references,
    replaced,
    substituted,
)
from vitral.explanation.expressions.definitions import BY_ROWS
from vitral.explanation.expressions.evaluation import MOST_OPERATIONS
from vitral.explanation.expressions.parser import FUNCTIONS, GRADIENT, NAMES
from vitral.explanation.readings.gradients import gradient
from vitral.explanation.readings.layout import Conventions
from vitral.explanation.sheet import SheetQuantity

Refuse = Callable[..., UsageError]
"""Makes the error for a complaint and the keys of a place in the file."""
MOST_STEPS = 100
AXES_OF_RANK = (("one",), ("columns",), ("rows", "columns"), ("heads", "rows", "columns"))
_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)?")


@dataclass(frozen=True)
class FreeStep:
    """A step as written.

    Attributes:
        keys: its name in the file.
        text: the expression.
        tree: the expression; its names are those of the file.
    """

    keys: tuple[str, ...]
    text: str
    tree: Tree

    @property
    def name(self) -> str:
        """Its name in the file."""
        return ".".join(self.keys)

    @property
    def mentions(self) -> tuple[str, ...]:
        """Its name and those in the expression."""
        return (self.name, *references(self.tree))


def read_steps(table: Mapping[tuple[str, ...], Any], refuse: Refuse) -> tuple[FreeStep, ...]:
    """The steps of a file.

    Raises:
        UsageError: too many, a name that is none, or text that is no expression; names the line and the step.
    """
    if len(table) > MOST_STEPS:
        raise refuse(_("steps: {n} of them; at most {most}", n=len(table), most=MOST_STEPS), "steps")
    steps = []
    for keys, text in table.items():
        name, path = ".".join(keys), ("steps", *keys)
        if not _is_name(name):
            complaint = _(
                "step {name!r}: a name has letters, digits and underscores, and is no word of the language", name=name
            )
            raise refuse(complaint, *path)
        if not isinstance(text, str):
            complaint = _('step {name}: expected an expression in quotes, as {name} = "q @ k.T"', name=name)
            raise refuse(complaint, *path)
        try:
            steps.append(FreeStep(keys, text, parse(text)))
        except UsageError as error:
            raise refuse(_("step {name}: {complaint}", name=name, complaint=str(error)), *path) from None
    return tuple(steps)


def _is_name(name: str) -> bool:
    """Whether expressions can mention it."""
    words = {*FUNCTIONS, *NAMES, GRADIENT}
    plain = unicodedata.normalize("NFKC", name) == name and _NAME.fullmatch(name)
    return bool(plain) and len(name) <= 40 and name not in words and not any(map(keyword.iskeyword, name.split(".")))


class StepSolver:
    """Computes the steps of one file in order."""

    def __init__(
        self,
        steps: Iterable[FreeStep],
        known: Names,
        values: dict[str, Tensor],
        num_heads: int,
        refuse: Refuse,
        conventions: Conventions,
    ) -> None:
        """Resolve the names.

        Args:
            steps: as written.
            known: returns the quantity that a name stands for.
            values: those of all quantities known so far; the steps' are added.
            num_heads: query heads.
            refuse: makes errors.
            conventions: how the author lays matrices out.
        """
        self.conventions = conventions
        steps = list(steps)
        self.steps = {known(step.name): step for step in steps}
        self.known, self.values, self.one_head, self.refuse = known, values, num_heads == 1, refuse
        self.made: list[SheetQuantity] = []
        self.derivatives: dict[tuple[str, str], str] = {}
        self.operations = 0
        for step in steps:
            if self.steps[known(step.name)] is not step:
                raise self.complaint(step, _("is a step twice, by two names"))
            if known(step.name) in values:
                raise self.complaint(step, _("is given too; a quantity is given or computed"))

    @property
    def names(self) -> set[str]:
        """The quantities that steps compute."""
        return set(self.steps)

    def complaint(self, step: FreeStep, complaint: str) -> UsageError:
        """An error that names the line and the step."""
        return self.refuse(_("step {name}: {complaint}", name=step.name, complaint=complaint), "steps", *step.keys)

    def quantities(self, recipe_again: Callable[[], Iterable[SheetQuantity]]) -> tuple[SheetQuantity, ...]:
        """All quantities in order: those of the recipe as soon as they can be computed, and the steps.

        Args:
            recipe_again: computes what the recipe can compute now.

        Raises:
            UsageError: names the line and the step.
        """
        self.made += recipe_again()
        for name, step in self.steps.items():
            try:
                self._solve(name, step)
            except UsageError as error:
                raise self.complaint(step, str(error)) from None
            self.made += recipe_again()
        return tuple(self.made)

    def _solve(self, name: str, step: FreeStep) -> None:
        tree = self.named(step.tree)
        while (found := next(_gradients(tree), None)) is not None:
            path, of, by = found
            whole = name if path == () else f"{GRADIENT}({of}, {by})"
            if path == () or (of, by) not in self.derivatives:
                self._differentiate(whole, of, by)
            if path == ():
                return
            tree = replaced(tree, path, Reference(self.derivatives[of, by]))
        self._compute(name, tree)

    def named(self, tree: Tree) -> Tree:
        """The tree with the names of quantities in place of the author's."""
        match tree:
            case Reference(name):
                return Reference(self.known(name))
            case Call(function, arguments, settings):
                return Call(function, tuple(map(self.named, arguments)), settings)
        return tree

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
        seen: dict[Tree, Tree] = {Reference(each): self.seen(each) for each in names}
        shapes = {each: self.shape(each) for each in names}
        shape, operations = measured(tree, shapes)
        self.operations += operations
        if self.operations > MOST_OPERATIONS:
            raise UsageError("all steps together are too large a computation; a worked example is smaller")
        rank, axes = self.form(name, tree, shape)
        is_turned = self.conventions.turned(name)
        tree = from_the_end(tree, shapes)
        made = substituted(tree, seen)
        made = Call("transpose", (made,)) if is_turned else made
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
        return Call("transpose", (made,)) if self.conventions.turned(name) else made

    def shape(self, name: str) -> tuple[int, ...]:
        """Its shape there."""
        shape = tuple(self.values[name].shape)
        shape = shape[1:] if self.one_head and len(shape) == 3 and shape[0] == 1 else shape
        return self.conventions.index(name, shape)

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
                    found = axes.get(name) or AXES.get(name) or AXES_OF_RANK[self.values[name].dim()]
                    found = found[1:] if self.one_head and len(found) == 3 else found
                    return self.conventions.index(name, found)
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
        if not after.isdisjoint(references(tree)):
            after.add(name)
    needed = {of}
    for name in reversed(list(sheet)):
        if name in needed and name in after:
            needed |= set(references(sheet[name]))
    if of == by or of not in after or of not in sheet:
        raise UsageError("grad({of}, {by}): {of} does not depend on {by}", of=of, by=by)
    return (needed & after) - {by}


def _gradients(tree: Tree) -> Iterator[tuple[tuple[int, ...], str, str]]:
    """Each grad of a tree: its place, the number and the quantity."""
    for path, node in nodes(tree):
        match node:
            case Call("grad", (Reference(of), Reference(by))):
                yield path, of, by
            case _:
                pass
