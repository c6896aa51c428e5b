"""The value of a tree, and its shape and cost before anything is computed."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.explanation.expressions.built_in import BUILT_IN
from vitral.explanation.expressions.functions import FUNCTIONS, GRADIENT
from vitral.explanation.expressions.tree import Call, Constant, Reference, Tree

MOST_ELEMENTS = 10**6
"""Largest number of elements of one tensor of an expression."""
MOST_OPERATIONS = 10**8
"""Largest number of multiplications of an expression."""

COMPUTED = FUNCTIONS | BUILT_IN
Values = Mapping[str, Tensor]
Instead = Callable[[str, Sequence[Tensor], Sequence[int | None]], Tensor | None]
"""Computes a call of a function in another way, or returns None."""


def shape_of(tree: Tree, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The shape of an expression's value, from shapes alone.

    Raises:
        UsageError: an unknown name, shapes that do not fit, or a computation that is too large.
    """
    return measured(tree, shapes)[0]


def measured(tree: Tree, shapes: Mapping[str, tuple[int, ...]]) -> tuple[tuple[int, ...], int]:
    """The shape of an expression's value, and the number of its multiplications, from shapes alone.

    Raises:
        UsageError: as `shape_of`.
    """
    return _measured(tree, tuple((name, tuple(shape)) for name, shape in shapes.items()))


@lru_cache(maxsize=4096)  # a check evaluates the same expression many times, a search many expressions
def _measured(tree: Tree, shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> tuple[tuple[int, ...], int]:
    counter = _Counter({name: torch.empty(shape, dtype=torch.float64, device="meta") for name, shape in shapes})
    return tuple(counter.value(tree).shape), counter.operations


def evaluate(tree: Tree, values: Values, instead: Instead | None = None) -> Tensor:
    """The value of an expression, float64.

    Args:
        tree: the expression.
        values: of the quantities in it.
        instead: computes some of the functions in another way, as by hand.

    Raises:
        UsageError: as `shape_of`.
    """
    shape_of(tree, {name: tuple(value.shape) for name, value in values.items()})
    return _Computer(values, instead).value(tree)


def compute(tree: Tree, values: Values) -> Tensor:
    """The value of a tree of known shape and cost, such as that of a built-in operation."""
    return _Computer(values).value(tree)


class _Computer:
    def __init__(self, values: Values, instead: Instead | None = None) -> None:
        self.values, self.instead = values, instead

    def value(self, tree: Tree) -> Tensor:
        match tree:
            case Constant(number):
                return torch.tensor(number, dtype=torch.float64)
            case Reference(name):
                if name not in self.values:
                    raise UsageError("{name}: is not known here; give it, or compute it in an earlier step", name=name)
                return self.values[name]
            case Call(function, arguments, settings):
                return self.called(function, [self.value(argument) for argument in arguments], settings)

    def called(self, function: str, arguments: list[Tensor], settings: tuple[int | None, ...]) -> Tensor:
        if function == GRADIENT:
            raise UsageError("grad(loss, name) can only be a step or part of a step")
        other = None if self.instead is None else self.instead(function, arguments, settings)
        if other is not None:
            return other
        return COMPUTED[function].compute(arguments, settings)


class _Counter(_Computer):
    """Computes shapes, and counts elements and multiplications."""

    def __init__(self, values: Values) -> None:
        super().__init__(values)
        self.operations = 0

    def value(self, tree: Tree) -> Tensor:
        return super().value(tree).to("meta")

    def called(self, function: str, arguments: list[Tensor], settings: tuple[int | None, ...]) -> Tensor:
        try:
            made = super().called(function, arguments, settings)
        except (RuntimeError, IndexError, ValueError):
            shapes = ", ".join(str(list(argument.shape)) for argument in arguments)
            raise UsageError(
                "{function} of {shapes}: the shapes do not fit", function=function, shapes=shapes
            ) from None
        inner = arguments[0].shape[-1] if function == "matmul" and arguments[0].dim() else 1
        self.operations += made.numel() * inner + sum(argument.numel() for argument in arguments)
        if made.numel() > MOST_ELEMENTS or self.operations > MOST_OPERATIONS:
            raise UsageError(
                "{function}: {n:,} numbers in one step; a worked example is smaller", function=function, n=made.numel()
            )
        return made


def from_the_end(tree: Tree, shapes: Mapping[str, tuple[int, ...]]) -> Tree:
    """The tree with axes counted from the last, so that quantities may have further axes before their own."""
    match tree:
        case Call(function, arguments, settings):
            if settings and settings[0] is not None and settings[0] >= 0 and FUNCTIONS[function].setting == "axis":
                settings = (settings[0] - len(shape_of(arguments[0], shapes)), *settings[1:])
            return Call(function, tuple(from_the_end(each, shapes) for each in arguments), settings)
    return tree
