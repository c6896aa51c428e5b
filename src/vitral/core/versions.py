"""The versions that a report of a problem needs."""

import platform
from importlib import metadata


def versions() -> str:
    """The versions of Vitral, Python and PyTorch in one line; nothing heavy is imported."""
    return f"Vitral {installed('vitral')}, Python {platform.python_version()}, PyTorch {installed('torch')}"


def installed(package: str) -> str:
    """The version of a package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
