"""A computation as a tree: names of quantities, constants, and calls of functions."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor


class Leaf:
    """A tree that calls nothing."""

    function = ""
    arguments: tuple["Tree", ...] = ()
    settings: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Reference(Leaf):
    """A quantity by name."""

    name: str


@dataclass(frozen=True, eq=False)
class Table:
    """The numbers of a constant that is no single number; equal tables have equal numbers."""

    numbers: Tensor

    def __eq__(self, other: object) -> bool:
        """Whether the numbers are equal."""
        return isinstance(other, Table) and torch.equal(self.numbers, other.numbers)

    def __hash__(self) -> int:
        """Of the shape."""
        return hash(self.numbers.shape)


@dataclass(frozen=True)
class Constant(Leaf):
    """A number, or a table of numbers; formulas write `symbol` for it, as d_k or M."""

    value: float | Table
    symbol: str = ""

    @classmethod
    def of(cls, values: Tensor, symbol: str = "") -> "Constant":
        """The constant with these values; a mask becomes ones and zeros."""
        values = values.double()
        return cls(Table(values) if values.dim() else float(values), symbol)


@dataclass(frozen=True)
class Call:
    """A primitive of `PRIMITIVES`, or a function of `DEFINITIONS`, with its arguments.

    Attributes:
        function: its name, as "matmul".
        arguments: trees, whose values are tensors.
        settings: an axis, the indices of a slice (None for an open end), the name of an aside.
    """

    function: str
    arguments: tuple["Tree", ...]
    settings: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        """Compute the hash once: trees of gradients are deep."""
        object.__setattr__(self, "_hash", hash((self.function, self.arguments, self.settings)))

    def __hash__(self) -> int:
        """The hash of a tree is that of its parts."""
        return self._hash  # pyright: ignore


Tree = Reference | Constant | Call


def nodes(tree: Tree) -> Iterator[Tree]:
    """Every node, the root first."""
    yield tree
    for argument in tree.arguments:
        yield from nodes(argument)


def references(tree: Tree) -> tuple[str, ...]:
    """The names of the quantities in a tree, each once, from left to right."""
    return tuple(dict.fromkeys(node.name for node in nodes(tree) if isinstance(node, Reference)))


def mapped(tree: Tree, change: Callable[[Tree], Tree | None]) -> Tree:
    """The tree with nodes exchanged, from the root down; `change` returns None for what stays."""
    changed = change(tree)
    if changed is None and isinstance(tree, Call):
        return replace(tree, arguments=tuple(mapped(argument, change) for argument in tree.arguments))
    return tree if changed is None else changed


def substituted(tree: Tree, filled: Mapping[Tree, Tree]) -> Tree:
    """The tree with other nodes in place of some, by node."""
    return mapped(tree, filled.get)
