"""The versions that a report of a problem needs."""

import platform
from importlib import metadata

from vitral.core.language import _


def versions() -> str:
    """The versions of Vitral, Python and PyTorch in one line; nothing heavy is imported."""
    return f"Vitral {_installed('vitral')}, Python {platform.python_version()}, PyTorch {_installed('torch')}"


def _installed(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return _("not installed")
