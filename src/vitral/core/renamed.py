"""Former names that keep working."""

import warnings
from importlib import import_module
from types import ModuleType
from typing import Any


def renamed(former: str, name: str) -> None:
    """Emit a DeprecationWarning at the line that used a former name: the caller of the calling function."""
    warnings.warn(f"{former} is now called {name}", DeprecationWarning, stacklevel=3)


class FormerModule(ModuleType):
    """A module under its former name: its contents are those of the module that it is now."""

    def __init__(self, former: str, name: str) -> None:
        """Nothing is imported before a name of it is asked for."""
        super().__init__(former)
        self.now = name

    def __getattr__(self, name: str) -> Any:
        """A public name of the module, with a warning at the line that asked for it."""
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        found = getattr(import_module(self.now), name)
        renamed(self.__name__, self.now)
        return found
