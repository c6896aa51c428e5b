"""Taps: how a computation shows its named activations, and lets them be replaced, without being rewritten.

A model calls `x = tap(name, x)` at each named point. The silent tap gives x back; a recorder keeps it; an editor
may give back something else. Nothing is left behind in the model.
"""

from collections.abc import Callable, Iterable, Mapping

from torch import Tensor


class Tap:
    """The silent tap: wants nothing, changes nothing."""

    def wants_any(self, names: Iterable[str]) -> bool:
        """Whether any of these names is asked for; lets a model choose the execution that has them."""
        return False

    def within(self, scope: str) -> "Tap":
        """The same tap, seen from inside a part whose names begin with `scope`."""
        return self

    def __call__(self, name: str, value: Tensor) -> Tensor:
        """Show one activation; gives back what the computation shall go on with."""
        return value


SILENT = Tap()


class Recorder(Tap):
    """Keeps activations by full name, all of them or a chosen few."""

    def __init__(self, names: Iterable[str] | None = None) -> None:
        """Keep `names`, or everything if None."""
        self.names = None if names is None else frozenset(names)
        self.kept: dict[str, Tensor] = {}

    def wants_any(self, names: Iterable[str]) -> bool:
        """Whether one of `names` is to be kept."""
        return self.names is None or not self.names.isdisjoint(names)

    def within(self, scope: str) -> Tap:
        """A view of this recorder that puts `scope.` before each name."""
        return _Scoped(self, scope)

    def __call__(self, name: str, value: Tensor) -> Tensor:
        """Keep `value` if its name was asked for."""
        if self.names is None or name in self.names:
            self.kept[name] = value
        return value


class Editor(Tap):
    """Replaces activations: each edit is a function of one activation, by full name."""

    def __init__(self, edits: Mapping[str, Callable[[Tensor], Tensor]]) -> None:
        """Keep the edits."""
        self.edits = dict(edits)

    def wants_any(self, names: Iterable[str]) -> bool:
        """Whether one of `names` is edited."""
        return any(name in self.edits for name in names)

    def within(self, scope: str) -> Tap:
        """A view of this editor that puts `scope.` before each name."""
        return _Scoped(self, scope)

    def __call__(self, name: str, value: Tensor) -> Tensor:
        """The edited value, or the value itself."""
        return self.edits[name](value) if name in self.edits else value


class _Scoped(Tap):
    """A tap seen from inside a part."""

    def __init__(self, tap: Tap, scope: str) -> None:
        self.tap, self.scope = tap, scope

    def wants_any(self, names: Iterable[str]) -> bool:
        return self.tap.wants_any([f"{self.scope}.{name}" for name in names])

    def within(self, scope: str) -> Tap:
        return _Scoped(self.tap, f"{self.scope}.{scope}")

    def __call__(self, name: str, value: Tensor) -> Tensor:
        return self.tap(f"{self.scope}.{name}", value)
