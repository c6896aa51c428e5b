"""Vitral: a small-Transformer laboratory with glass walls.

>>> import vitral
>>> run = vitral.train("my.txt")                    # doctest: +SKIP
>>> print(vitral.generate(run, "ROMEO:"))           # doctest: +SKIP
>>> vitral.evaluate("runs/my").to_pandas()          # doctest: +SKIP
>>> run.trace("To be")["blocks.0.attn.weights"]     # doctest: +SKIP
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitral.app import (
        Run,
        bundle,
        check,
        compare,
        configure,
        continue_,
        count,
        demo,
        doctor,
        evaluate,
        exercise,
        explain,
        export,
        forecast,
        generate,
        grade,
        import_,
        inspect,
        list_examples,
        list_presets,
        list_runs,
        list_studies,
        list_texts,
        load,
        open_,
        presets,
        register,
        resume,
        set_language,
        study,
        survey,
        train,
    )
    from vitral.attention import attend, attend_traced
    from vitral.core.errors import Interrupted, StorageError, TrainingStopped, UsageError, VitralError

__all__ = [
    "Interrupted",
    "Run",
    "StorageError",
    "TrainingStopped",
    "UsageError",
    "VitralError",
    "attend",
    "attend_traced",
    "bundle",
    "check",
    "compare",
    "configure",
    "continue_",
    "count",
    "demo",
    "doctor",
    "evaluate",
    "exercise",
    "explain",
    "export",
    "forecast",
    "generate",
    "grade",
    "import_",
    "inspect",
    "list_examples",
    "list_presets",
    "list_runs",
    "list_studies",
    "list_texts",
    "load",
    "open_",
    "presets",
    "register",
    "resume",
    "set_language",
    "study",
    "survey",
    "train",
]
__version__ = "0.1.0"

_ELSEWHERE = {
    **dict.fromkeys(("attend", "attend_traced"), "vitral.attention"),
    **dict.fromkeys(
        ("Interrupted", "StorageError", "TrainingStopped", "UsageError", "VitralError"), "vitral.core.errors"
    ),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that `import vitral` costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'vitral' has no attribute {name!r}")
    return getattr(import_module(_ELSEWHERE.get(name, "vitral.app")), name)


class _Face(ModuleType):
    """The package, whose operations `compare`, `doctor` and `forecast` are not hidden by the rooms of these names."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted([*globals(), *__all__])
