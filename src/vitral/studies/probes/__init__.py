"""Probes: what studies measure besides the loss. A module of this package is one; its `PROBE` says all of it."""

from importlib import import_module
from pkgutil import iter_modules

from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.studies.probe import Probe


def probe_names() -> list[str]:
    """The names of all probes."""
    return [module.name.replace("_", "-") for module in iter_modules(__path__)]


def probe_named(name: str) -> Probe:
    """The probe of that name.

    Raises:
        UsageError: there is none; the nearest name is offered.
    """
    if name not in (known := probe_names()):
        raise UsageError("probes: none is called {name!r}, {suggestion}", name=name, suggestion=nearest(name, known))
    return import_module(f"{__name__}.{name.replace('-', '_')}").PROBE
