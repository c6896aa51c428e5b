"""The unit of a claimed number: one step of the last digit that its author writes."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Unit:
    """The digits of one claimed quantity.

    Attributes:
        decimals: digits after the point.
        significant: significant digits, if the author counts those; None if the decimals count.
    """

    decimals: int
    significant: int | None = None

    def of(self, values: Tensor) -> Tensor:
        """One unit of the last digit of each number."""
        if self.significant is None:
            return torch.full_like(values, 10.0**-self.decimals)
        sizes = values.abs().nan_to_num(posinf=0.0).clamp(min=1e-300)
        return 10.0 ** (sizes.log10().add(1e-12).floor() - self.significant + 1).clamp(min=-self.decimals)

    def decimals_of(self, value: float) -> int:
        """The digits after the point of one number in this unit."""
        if self.significant is None:
            return self.decimals
        return max(0, -round(math.log10(float(self.of(torch.tensor([value], dtype=torch.float64))))))
