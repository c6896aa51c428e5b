"""Tensors as plain data: rounded, finite, None where there is no number."""

import math
from typing import Any

from jaxtyping import Float
from torch import Tensor

DIGITS = 6
"""Significant digits of a single number, decimal places of a list."""


def number(value: float | Float[Tensor, ""]) -> float | None:
    """One number to `DIGITS` significant digits; None if it is not finite.

    >>> number(0.12345678), number(1.5e-9), number(float("nan"))
    (0.123457, 1.5e-09, None)
    """
    plain = float(value)
    return float(f"{plain:.{DIGITS}g}") if math.isfinite(plain) else None


def numbers(values: Float[Tensor, "..."]) -> Any:
    """Nested lists of the values to `DIGITS` decimal places; None in place of what is not finite.

    >>> import torch
    >>> numbers(torch.tensor([[0.25, float("inf")]]))
    [[0.25, None]]
    """
    values = values.detach().cpu().double()
    plain = values.numpy().round(DIGITS).tolist()
    return plain if bool(values.isfinite().all()) else _finite(plain)


def _finite(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_finite(each) for each in plain]
    return plain if math.isfinite(plain) else None
