"""Probes: what studies measure besides the loss. The `PROBES` of each module of this package say all of them."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.studies.probe import Probe


@cache
def probes() -> dict[str, Probe]:
    """All probes by their names."""
    modules = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
    return {probe.name: probe for module in modules for probe in module.PROBES}


def probe_named(name: str) -> Probe:
    """The probe of that name.

    Raises:
        UsageError: there is none; the nearest name is offered.
    """
    if name not in probes():
        raise UsageError("probes: none is called {name!r}, {suggestion}", name=name, suggestion=nearest(name, probes()))
    return probes()[name]
