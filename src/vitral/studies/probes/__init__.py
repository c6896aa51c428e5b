"""Probes: what studies measure besides the loss, by name."""

from importlib import import_module

from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.studies.probe import Probe

PROBES: dict[str, str] = {
    "amounts": "data_scaling",
    "attention-sinks": "attention_sinks",
    "by-position": "by_position",
    "context": "context",
    "coordinate-check": "coordinate_check",
    "copying": "copying",
    "cost-by-length": "cost",
    "few-shot": "few_shot",
    "forgetting": "forgetting",
    "gradients": "gradients",
    "head-patterns": "head_patterns",
    "in-context": "in_context",
    "induction": "induction",
    "meaning": "meaning",
    "one-token-floor": "one_token_floor",
    "passes": "passes",
    "rates": "rates",
    "recall": "recall",
    "related-words": "related_words",
    "retrieval": "retrieval",
    "saturation": "saturation",
    "scaling-fit": "scaling_fit",
    "score-statistics": "scores",
    "strategies": "strategies",
    "text-units": "text_units",
    "uses": "uses",
    "written-words": "written_words",
}
"""Name -> module, in which the probe has its own name in capitals; imported when asked for."""


def probe_named(name: str) -> Probe:
    """The probe of that name.

    Raises:
        UsageError: there is none; the nearest name is offered.
    """
    if name not in PROBES:
        raise UsageError("probes: none is called {name!r}, {suggestion}", name=name, suggestion=nearest(name, PROBES))
    return getattr(import_module(f"{__name__}.{PROBES[name]}"), name.upper().replace("-", "_"))
