"""Taps: record or replace named activations of a computation.

A model calls `x = tap(name, x)` at each named point. The silent tap returns x; a recorder stores it; an editor may
return a replacement. Taps leave no state in the model.
"""

from collections.abc import Callable, Iterable, Mapping

from torch import Tensor


class Tap:
    """The silent tap: requests no activation and changes none.

    Attributes:
        asked: the activations that are requested by name; a model refuses one that it does not have.
        wants_all: whether all that a model has are requested.
    """

    asked: frozenset[str] = frozenset()
    wants_all = False

    def wants_any(self, names: Iterable[str]) -> bool:
        """Whether any of these names is requested; a model uses it to choose an execution that computes them."""
        return self.wants_all or not self.asked.isdisjoint(names)

    def within(self, scope: str) -> "Tap":
        """This tap for a submodule: it puts `scope.` before each name."""
        return self if self is SILENT else _Scoped(self, f"{scope}.")

    def __call__(self, name: str, value: Tensor) -> Tensor:
        """Pass one activation to the tap; return the value to continue with."""
        return value

    def __repr__(self) -> str:
        """Its class, the same in every process."""
        return f"{type(self).__name__}()"


SILENT = Tap()


class Recorder(Tap):
    """Stores activations by full name: all of them, or a selection."""

    def __init__(self, names: Iterable[str] | None = None) -> None:
        """Store the activations `names`, or all if None."""
        self.asked, self.wants_all = frozenset(names or ()), names is None
        self.kept: dict[str, Tensor] = {}

    def __call__(self, name: str, value: Tensor) -> Tensor:
        """Store `value` if its name is selected."""
        if self.wants_all or name in self.asked:
            self.kept[name] = value
        return value


class Editor(Tap):
    """Replaces activations: each edit is a function of one activation, by full name."""

    def __init__(self, edits: Mapping[str, Callable[[Tensor], Tensor]]) -> None:
        """Store the edits."""
        self.edits, self.asked = dict(edits), frozenset(edits)

    def __call__(self, name: str, value: Tensor) -> Tensor:
        """The edited value, or the value unchanged."""
        return self.edits[name](value) if name in self.edits else value


class InTurn(Tap):
    """Several taps, each of which receives what the one before it returns: an editor before a recorder, for example."""

    def __init__(self, *taps: Tap) -> None:
        """Store the taps in their order."""
        self.taps, self.wants_all = taps, any(tap.wants_all for tap in taps)
        self.asked = frozenset[str]().union(*(tap.asked for tap in taps))

    def __call__(self, name: str, value: Tensor) -> Tensor:
        """The value that the last tap returns."""
        for tap in self.taps:
            value = tap(name, value)
        return value


class _Scoped(Tap):
    def __init__(self, tap: Tap, scope: str) -> None:
        self.tap, self.scope, self.wants_all = tap, scope, tap.wants_all
        self.asked = frozenset(name.removeprefix(scope) for name in tap.asked if name.startswith(scope))

    def __call__(self, name: str, value: Tensor) -> Tensor:
        return self.tap(self.scope + name, value)
