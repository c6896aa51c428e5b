"""Former names that keep working."""

import warnings


def renamed(former: str, name: str) -> None:
    """Emit a DeprecationWarning at the line that used a former name: the caller of the calling function."""
    warnings.warn(f"{former} is now called {name}", DeprecationWarning, stacklevel=3)
