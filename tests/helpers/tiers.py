"""A long list of parameters in two tiers."""

from collections.abc import Iterable
from typing import Any

import pytest


def few(names: Iterable[Any], step: int = 6) -> list[Any]:
    """Every `step`-th of the parameters is in the quick tier, the others are in the merge tier."""
    rows = ((n, name if isinstance(name, tuple) else (name,)) for n, name in enumerate(names))
    return [pytest.param(*row, marks=() if n % step == 0 else pytest.mark.merge) for n, row in rows]
