"""Vitral: a small-Transformer laboratory with glass walls.

>>> import vitral
>>> run = vitral.train("my.txt")                    # doctest: +SKIP
>>> run.generate("ROMEO:")                          # doctest: +SKIP
>>> run.trace("To be")["blocks.0.attn.weights"]     # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitral.attention import attend, attend_traced
    from vitral.lab import (
        Run,
        check,
        configure,
        continue_run,
        count,
        exercise,
        load,
        presets,
        register,
        resume,
        study,
        survey,
        train,
    )

__all__ = [
    "Run",
    "attend",
    "attend_traced",
    "check",
    "configure",
    "continue_run",
    "count",
    "exercise",
    "load",
    "presets",
    "register",
    "resume",
    "study",
    "survey",
    "train",
]
__version__ = "0.1.0"

_ATTENTION = ("attend", "attend_traced")


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that `import vitral` costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'vitral' has no attribute {name!r}")
    return getattr(import_module("vitral.attention" if name in _ATTENTION else "vitral.lab"), name)


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted([*globals(), *__all__])
