"""Packages whose public names are imported when they are first asked for: what needs no PyTorch imports none."""

import gc
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any


@contextmanager
def uncollected() -> Generator[None]:
    """Pause the search for unreachable cycles: importing PyTorch makes many objects and hardly any garbage.

    What was made meanwhile is then taken for old, so that the next search, of what is new, is short.

    >>> with uncollected():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()  # into the oldest generation
            gc.enable()


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package (PEP 562).

    Args:
        package: its `__name__`.
        homes: public name -> the module of the package that has it.

    >>> lazily("vitral.core", {"minus": "lazy"})("plus")
    Traceback (most recent call last):
    AttributeError: module 'vitral.core' has no attribute 'plus'
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return get
