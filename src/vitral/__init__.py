"""Vitral: a small-Transformer laboratory with glass walls.

>>> import vitral
>>> run = vitral.train("my.txt")                    # doctest: +SKIP
>>> print(vitral.generate(run, "ROMEO:"))           # doctest: +SKIP
>>> vitral.evaluate("runs/my").to_pandas()          # doctest: +SKIP
>>> run.trace("To be")["blocks.0.attn.weights"]     # doctest: +SKIP
"""

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitral.app.facade.ask import chat, evaluate, fill, generate, inspect, load, why
    from vitral.app.facade.carry import bundle, export, import_, open_, serve
    from vitral.app.facade.explain import check, exercise, explain, grade
    from vitral.app.facade.look import (
        count,
        doctor,
        forecast,
        list_examples,
        list_names,
        list_presets,
        list_studies,
        list_texts,
        list_words,
        list_zoo,
        set_language,
        survey,
    )
    from vitral.app.facade.study import compare, demo, study
    from vitral.app.facade.train import continue_, resume, train
    from vitral.app.run import Run
    from vitral.attention import attend, attend_traced
    from vitral.core.errors import Interrupted, StorageError, TrainingStopped, UsageError, VitralError
    from vitral.core.parts import register
    from vitral.report.runs import list_runs
    from vitral.training.configuration import configure, presets

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
    "chat",
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
    "fill",
    "forecast",
    "generate",
    "grade",
    "import_",
    "inspect",
    "list_examples",
    "list_names",
    "list_presets",
    "list_runs",
    "list_studies",
    "list_texts",
    "list_words",
    "list_zoo",
    "load",
    "open_",
    "presets",
    "register",
    "resume",
    "serve",
    "set_language",
    "study",
    "survey",
    "train",
    "why",
]
__version__ = "0.1.0"

if "OMP_WAIT_POLICY" not in os.environ:
    # Before PyTorch is loaded: its threads wait for each other by a short spin, then asleep. By default they spin for
    # milliseconds, which beside another busy program takes several times as long (docs/internals/experiments.md).
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

_MODULES = {
    "app.facade.ask": "chat evaluate fill generate inspect load why",
    "app.facade.carry": "bundle export import_ open_ serve",
    "app.facade.explain": "check exercise explain grade",
    "app.facade.look": (
        "count doctor forecast list_examples list_names list_presets list_studies list_texts list_words list_zoo "
        "set_language survey"
    ),
    "app.facade.study": "compare demo study",
    "app.facade.train": "continue_ resume train",
    "app.run": "Run",
    "attention": "attend attend_traced",
    "core.errors": "Interrupted StorageError TrainingStopped UsageError VitralError",
    "core.parts": "register",
    "report.runs": "list_runs",
    "training.configuration": "configure presets",
}
_BARE = {"configure", "list_runs", "register"}
"""Functions of lower rooms, whose arguments are validated here."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that `import vitral` costs nothing."""
    module = next((module for module, names in _MODULES.items() if name in names.split()), None)
    if module is None:
        raise AttributeError(f"module 'vitral' has no attribute {name!r}")
    from vitral.app.arguments import validated
    from vitral.core.lazy import uncollected

    with uncollected():
        found = getattr(import_module(f"vitral.{module}"), name)
        return globals().setdefault(name, validated(found) if name in _BARE else found)


class _Face(ModuleType):
    """The package, whose operations `compare`, `doctor` and `forecast` are not hidden by the rooms of these names."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face


def __dir__() -> list[str]:
    """The public names, for completion."""
    return [*__all__, "__version__"]
