"""The value of a tree, and its shape and cost before anything is computed."""

from collections.abc import Callable, Mapping
from functools import lru_cache

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.explanation.expressions.definitions import DEFINITIONS, DIRECT, expanded
from vitral.explanation.expressions.parser import FOLDS, FUNCTIONS, GRADIENT
from vitral.explanation.expressions.primitives import PRIMITIVES
from vitral.explanation.expressions.tree import Call, Constant, Reference, Table, Tree, nodes

MOST_ELEMENTS = 10**6
"""Largest number of elements of one tensor of an expression."""

Values = Mapping[str, Tensor]
Hook = Callable[[Call, list[Tensor]], Tensor | None]
"""Computes a call of a primitive in another way, from the values of its arguments, or returns None."""


def compute(tree: Tree, values: Values, hook: Hook | None = None, cache: dict[Tree, Tensor] | None = None) -> Tensor:
    """The value of a tree of known shape and cost.

    Args:
        tree: the computation.
        values: of the quantities in it.
        hook: changes what people compute on the way, as by rounding.
        cache: values of parts that are known, to which those of all other parts are added.
    """
    cache = {} if cache is None else cache
    cached = cache.get(tree)
    if cached is not None:
        return cached
    match tree:
        case Constant(Table(numbers)):
            value = numbers
        case Constant(number):
            value = torch.tensor(number, dtype=torch.float64)
        case Reference(name):
            if name not in values:
                raise UsageError("{name}: is not known here; give it, or compute it in an earlier step", name=name)
            value = values[name]
        case Call(function, arguments, settings) if function in DIRECT and hook is None:
            value = DIRECT[function](*(compute(argument, values, hook, cache) for argument in arguments), *settings)
        case Call(function) if function in DEFINITIONS:
            value = compute(expanded(tree), values, hook, cache)
        case Call(function, arguments, settings):
            if function == GRADIENT:
                raise UsageError("grad(loss, name) can only be a step or part of a step")
            parts = [compute(argument, values, hook, cache) for argument in arguments]
            other = None if hook is None else hook(tree, parts)
            value = PRIMITIVES[function].value(*parts, *settings) if other is None else other
    cache[tree] = value
    return value


@lru_cache(maxsize=4096)
def every(tree: Tree) -> tuple[Call, ...]:
    """Every call in a tree and in the definitions that it uses."""
    calls = tuple(node for node in nodes(tree) if isinstance(node, Call))
    return calls + tuple(node for call in calls if call.function in DEFINITIONS for node in every(expanded(call)))


def call_of(tree: Tree, function: str) -> Call | None:
    """The first call of a function in a tree."""
    return next((call for call in every(tree) if call.function == function), None)


def shape_of(tree: Tree, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The shape of an expression's value, from shapes alone.

    Raises:
        UsageError: an unknown name, shapes that do not fit, or a computation that is too large.
    """
    return _shape_of(tree, tuple((name, tuple(shape)) for name, shape in shapes.items()))


@lru_cache(maxsize=4096)  # a check evaluates the same expression many times, a search many expressions
def _shape_of(tree: Tree, shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> tuple[int, ...]:
    without_numbers = {name: torch.empty(shape, dtype=torch.float64, device="meta") for name, shape in shapes}
    return tuple(compute(tree, without_numbers, _sized).shape)


def _sized(call: Call, parts: list[Tensor]) -> Tensor:
    """A call's value, of tensors without numbers.

    Raises:
        UsageError: shapes that do not fit, or a value that is too large.
    """
    try:
        value = PRIMITIVES[call.function].value(*parts, *call.settings)
    except (RuntimeError, IndexError, ValueError):
        shapes = ", ".join(str(list(part.shape)) for part in parts)
        raise UsageError(
            "{function} of {shapes}: the shapes do not fit", function=call.function, shapes=shapes
        ) from None
    if value.numel() > MOST_ELEMENTS:
        raise UsageError(
            "{function}: {n:,} numbers in one step; a worked example is smaller",
            function=call.function,
            n=value.numel(),
        )
    return value.to("meta")  # of constants alone it has numbers


def from_the_end(tree: Tree, shapes: Mapping[str, tuple[int, ...]]) -> Tree:
    """The tree with axes counted from the last, so that quantities may have further axes before their own."""
    match tree:
        case Call(function, arguments, settings):
            has_axis = function in (*FOLDS, "pick") or (function in FUNCTIONS and FUNCTIONS[function].setting == "axis")
            if settings and has_axis and settings[0] is not None and settings[0] >= 0:
                settings = (settings[0] - len(shape_of(arguments[0], shapes)), *settings[1:])
            return Call(function, tuple(from_the_end(argument, shapes) for argument in arguments), settings)
    return tree
