"""Tensors as plain data: rounded, finite, None where there is no number; results of such data; means of many passes."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vitral.core.shown import Shown, Tabular

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

    >>> numbers(torch.tensor([[0.25, float("inf")]]))
    [[0.25, None]]
    """
    values = values.detach().cpu().double()
    plain = values.numpy().round(DIGITS).tolist()
    return plain if bool(values.isfinite().all()) else rounded(plain)


def rounded(plain: Any) -> Any:
    """Plain data with every fraction as `number` gives it.

    >>> rounded({"loss": [1, 0.12345678, float("inf")]})
    {'loss': [1, 0.123457, None]}
    """
    if isinstance(plain, dict):
        return {key: rounded(value) for key, value in plain.items()}
    if isinstance(plain, list):
        return [rounded(value) for value in plain]
    return number(plain) if isinstance(plain, float) else plain


@dataclass(frozen=True, repr=False)
class PlainResult(Shown, Tabular):
    """A result that has all of its numbers as plain data.

    Attributes:
        found: the plain data.
    """

    found: dict[str, Any]

    def plain(self) -> dict[str, Any]:
        """Everything as plain data, ready for JSON."""
        return self.found


class RunningMean:
    """The weighted mean of several means; bit-equal to the only one if there is one."""

    def __init__(self) -> None:
        """No mean yet."""
        self.value, self.weight = torch.zeros(()), 0

    def add(self, mean: Float[Tensor, "*shape"], weight: int) -> None:
        """Include the mean of `weight` further values, at least one."""
        self.weight += weight
        share = weight / self.weight
        self.value = mean if share == 1 else self.value + (mean - self.value) * share
