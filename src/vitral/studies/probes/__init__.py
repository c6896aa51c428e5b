"""Probes: what studies measure besides the loss, by name."""

from importlib import import_module
from typing import Any

from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.studies.design import BUDGETS
from vitral.studies.probe import Probe

OF_RUNS: dict[str, tuple[Any, ...]] = {
    "amounts": ("data_scaling", 4, 8, 20),
    "attention-sinks": ("attention_sinks", 2, 5, 20),
    "by-position": ("by_position", 3, 8, 10),
    "context": ("context", 2, 4, 20),
    "few-shot": ("few_shot", 3, 6, 20),
    "forgetting": ("forgetting", 1, 2, 8),
    "gradients": ("gradients", 1, 1, 2),
    "head-patterns": ("head_patterns", 4, 10, 30),
    "in-context": ("in_context", 3, 6, 20),
    "induction": ("induction", 3, 5, 15),
    "meaning": ("meaning", 8, 20, 30),
    "passes": ("passes",),
    "rates": ("rates", 0.1, 0.1, 0.1),
    "recall": ("recall", 1, 1, 3),
    "related-words": ("related_words",),
    "saturation": ("saturation", 2, 6, 20),
    "scaling-fit": ("scaling_fit", 0.1, 0.1, 0.1),
    "strategies": ("strategies", 12, 45, 120),
    "text-units": ("text_units", 1, 1, 1),
    "uses": ("uses", 8, 25, 90),
    "written-words": ("written_words", 2, 3, 15),
}
"""Name -> module, in which it has `measure` and `view`, imported when asked for; seconds by budget, see `Probe`."""
OF_STUDY: dict[str, tuple[Any, ...]] = {
    "coordinate-check": ("coordinate_check", 3, 3, 20),
    "copying": ("copying", 22, 120, 400),
    "cost-by-length": ("cost", 15, 60, 200),
    "one-token-floor": ("one_token_floor", 1, 1, 1),
    "retrieval": ("retrieval", 150, 900, 6000),
    "score-statistics": ("scores", 12, 30, 120),
}


def probe_named(name: str) -> Probe:
    """The probe of that name.

    Raises:
        UsageError: there is none; the nearest name is offered.
    """
    known = OF_RUNS | OF_STUDY
    if name not in known:
        raise UsageError("probes: none is called {name!r}, {suggestion}", name=name, suggestion=nearest(name, known))
    home, *seconds = known[name]
    found = import_module(f"{__name__}.{home}")
    return Probe(name, found.measure, found.view, dict(zip(BUDGETS, seconds, strict=False)), name in OF_RUNS)
