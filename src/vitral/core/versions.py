"""The versions that a report of a problem needs."""

import platform
from importlib import metadata

from vitral import __version__


def versions() -> str:
    """The versions of Vitral, Python and PyTorch in one line; nothing heavy is imported."""
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = "not installed"
    return f"Vitral {__version__}, Python {platform.python_version()}, PyTorch {torch}"
