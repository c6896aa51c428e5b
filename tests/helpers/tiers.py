"""A long list of parameters in two tiers."""

from collections.abc import Iterable
from typing import Any

import pytest


def few(names: Iterable[Any], step: int = 6) -> list[Any]:
    """Every `step`-th of the parameters is in the quick tier, the others are in the merge tier."""
    return [name if not n % step else pytest.param(name, marks=pytest.mark.merge) for n, name in enumerate(names)]
