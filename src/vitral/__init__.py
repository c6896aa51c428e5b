"""Vitral: a small-Transformer laboratory with glass walls.

>>> import vitral
>>> run = vitral.train("my.txt")                    # doctest: +SKIP
>>> run.generate("ROMEO:")                          # doctest: +SKIP
>>> run.trace("To be")["blocks.0.attn.weights"]     # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitral.api import Run, check, configure, load, presets, train
    from vitral.attention import attend, attend_traced

__all__ = ["Run", "attend", "attend_traced", "check", "configure", "load", "presets", "train"]
__version__ = "0.1.0"

_HOMES = {
    "Run": "vitral.api",
    "check": "vitral.api",
    "configure": "vitral.api",
    "load": "vitral.api",
    "presets": "vitral.api",
    "train": "vitral.api",
    "attend": "vitral.attention",
    "attend_traced": "vitral.attention",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that `import vitral` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'vitral' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted([*globals(), *__all__])
