"""The versions that a report of a problem needs."""

import platform
from contextlib import suppress
from importlib import metadata

from vitral.core.language import _


def versions() -> str:
    """The versions of Vitral, Python and PyTorch in one line; nothing heavy is imported."""
    vitral, torch = (installed(package) or _("not installed") for package in ("vitral", "torch"))
    return f"Vitral {vitral}, Python {platform.python_version()}, PyTorch {torch}"


def installed(package: str) -> str | None:
    """The version of a package; None if it is not installed."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None
