"""Dropout (Srivastava et al. 2014): during training, each number is zero with a probability."""

import torch
from torch import Tensor, nn
from torch.nn import functional

LEVELS = 2**16


def drop_out(x: Tensor, rate: float, training: bool = True) -> Tensor:
    """Set each element of `x` to zero with probability `rate`, and divide the others by `1 - rate`.

    PyTorch draws one number at a time on the CPU. Here four elements share 64 random bits, which takes a quarter of the
    time; the rate is therefore rounded to a multiple of 1/65,536, and the elements that stay are divided by exactly
    the probability with which they stay. Accelerators and compiled models use PyTorch's kernels.

    Args:
        x: any shape.
        rate: probability of a zero, from 0 to 1.
        training: False returns `x`.

    Returns:
        A tensor of the shape and the dtype of `x`. Random numbers come from PyTorch's global generator.
    """
    dropped = round(LEVELS * rate)
    if not training or x.device.type != "cpu" or torch.compiler.is_compiling() or not 0 < dropped < LEVELS:
        return functional.dropout(x, rate, training)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    levels = words.view(torch.int16)[: x.numel()].view(x.shape)
    kept = torch.ge(levels, dropped - LEVELS // 2, out=torch.empty(x.shape, dtype=x.dtype))
    return x * kept.mul_(LEVELS / (LEVELS - dropped))


class Dropout(nn.Dropout):
    """`drop_out` as a module: the identity outside training."""

    def forward(self, input: Tensor) -> Tensor:
        """`drop_out` of `input`, of any shape."""
        return drop_out(input, self.p, self.training)
