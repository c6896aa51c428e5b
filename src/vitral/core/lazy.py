"""Packages whose public names are imported when they are first asked for: what needs no PyTorch imports none."""

import ast
import gc
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
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


def lazily(package: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package (PEP 562), whose names are those that it imports `if TYPE_CHECKING`.

    >>> lazily("vitral.core")("plus")
    Traceback (most recent call last):
    AttributeError: module 'vitral.core' has no attribute 'plus'
    """

    @cache
    def homes() -> dict[str, str]:
        tree = ast.parse(Path(str(sys.modules[package].__file__)).read_bytes())
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        return {name.name: str(node.module) for node in imports for name in node.names}

    def get(name: str) -> Any:
        if name.startswith("__") or name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        attribute = getattr(import_module(homes()[name]), name)
        setattr(sys.modules[package], name, attribute)
        return attribute

    return get
