"""Taps: record or replace named activations of a computation.

A model calls `x = tap(name, x)` at each named point. The silent tap returns x; a recorder stores it; an editor may
return a replacement. Taps leave no state in the model.
"""

from collections.abc import Callable, Iterable, Mapping

from torch import Tensor


class Tap:
    """The silent tap: requests no activation and changes none."""

    @property
    def asked(self) -> frozenset[str]:
        """The activations that are requested by name; a model refuses one that it does not have."""
        return frozenset()

    def wants_any(self, names: Iterable[str]) -> bool:
        """Whether any of these names is requested; a model uses it to choose an execution that computes them."""
        return not self.asked.isdisjoint(names)

    def within(self, scope: str) -> "Tap":
        """This tap for a submodule: it puts `scope.` before each name."""
        return self if self is SILENT else _Scoped(self, scope)

    def __call__(self, name: str, value: Tensor) -> Tensor:
        """Pass one activation to the tap; return the value to continue with."""
        return value


SILENT = Tap()


class Recorder(Tap):
    """Stores activations by full name: all of them, or a selection."""

    def __init__(self, names: Iterable[str] | None = None) -> None:
        """Store the activations `names`, or all if None."""
        self.names = None if names is None else frozenset(names)
        self.kept: dict[str, Tensor] = {}

    @property
    def asked(self) -> frozenset[str]:
        """The names, if not all are stored."""
        return self.names or frozenset()

    def wants_any(self, names: Iterable[str]) -> bool:
        """Whether one of `names` is stored."""
        return self.names is None or super().wants_any(names)

    def __call__(self, name: str, value: Tensor) -> Tensor:
        """Store `value` if its name is selected."""
        if self.names is None or name in self.names:
            self.kept[name] = value
        return value


class Editor(Tap):
    """Replaces activations: each edit is a function of one activation, by full name."""

    def __init__(self, edits: Mapping[str, Callable[[Tensor], Tensor]]) -> None:
        """Store the edits."""
        self.edits = dict(edits)

    @property
    def asked(self) -> frozenset[str]:
        """The names that are edited."""
        return frozenset(self.edits)

    def __call__(self, name: str, value: Tensor) -> Tensor:
        """The edited value, or the value unchanged."""
        return self.edits[name](value) if name in self.edits else value


class InTurn(Tap):
    """Several taps, each of which receives what the one before it returns: an editor before a recorder, for example."""

    def __init__(self, *taps: Tap) -> None:
        """Store the taps in their order."""
        self.taps = taps

    @property
    def asked(self) -> frozenset[str]:
        """The names of all taps."""
        return frozenset[str]().union(*(tap.asked for tap in self.taps))

    def wants_any(self, names: Iterable[str]) -> bool:
        """Whether one of the taps requests one of `names`."""
        asked = list(names)
        return any(tap.wants_any(asked) for tap in self.taps)

    def __call__(self, name: str, value: Tensor) -> Tensor:
        """The value that the last tap returns."""
        for tap in self.taps:
            value = tap(name, value)
        return value


class _Scoped(Tap):
    def __init__(self, tap: Tap, scope: str) -> None:
        self.tap, self.scope = tap, scope

    def wants_any(self, names: Iterable[str]) -> bool:
        return self.tap.wants_any([f"{self.scope}.{name}" for name in names])

    def __call__(self, name: str, value: Tensor) -> Tensor:
        return self.tap(f"{self.scope}.{name}", value)
