"""A computation as a tree: names of quantities, constants, and calls of functions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Reference:
    """A quantity by name."""

    name: str


@dataclass(frozen=True)
class Constant:
    """A number, or a table of numbers as nested tuples."""

    value: float | tuple[Any, ...]

    @classmethod
    def of(cls, values: Tensor) -> "Constant":
        """The constant with these values; a mask becomes ones and zeros."""
        return cls(_tuples(values.double().tolist()))


@dataclass(frozen=True)
class Call:
    """A function of `FUNCTIONS`, or `BUILT_IN`, with its arguments.

    Attributes:
        function: its name, as "matmul".
        arguments: trees, whose values are tensors.
        settings: whole numbers: the axis of a softmax, the indices of a slice; None for an open end.
    """

    function: str
    arguments: tuple["Tree", ...]
    settings: tuple[int | None, ...] = ()


Tree = Reference | Constant | Call
Path = tuple[int, ...]
"""The place of a node: the index of the argument at each level; empty for the root."""


def _tuples(values: Any) -> Any:
    return tuple(map(_tuples, values)) if isinstance(values, list) else values


def nodes(tree: Tree, path: Path = ()) -> Iterator[tuple[Path, Tree]]:
    """Every node with its place, the root first."""
    yield path, tree
    if isinstance(tree, Call):
        for place, argument in enumerate(tree.arguments):
            yield from nodes(argument, (*path, place))


def references(tree: Tree) -> tuple[str, ...]:
    """The names of the quantities in a tree, each once, from left to right."""
    return tuple(dict.fromkeys(node.name for _, node in nodes(tree) if isinstance(node, Reference)))


def replaced(tree: Tree, path: Path, node: Tree) -> Tree:
    """The tree with another node at a place."""
    if not path:
        return node
    assert isinstance(tree, Call)
    first, *rest = path
    arguments = list(tree.arguments)
    arguments[first] = replaced(arguments[first], tuple(rest), node)
    return Call(tree.function, tuple(arguments), tree.settings)


def substituted(tree: Tree, filled: Mapping[Tree, Tree]) -> Tree:
    """The tree with other nodes in place of some, by node."""
    if tree in filled:
        return filled[tree]
    if isinstance(tree, Call):
        return Call(tree.function, tuple(substituted(each, filled) for each in tree.arguments), tree.settings)
    return tree
