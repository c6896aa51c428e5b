"""Normalisation layers, and their placement in a block.

LayerNorm  g · (x - mean(x)) / √(var(x) + ε) + b       Ba et al. 2016, eq. 4
RMSNorm    g · x / √(mean(x²) + ε)                     Zhang & Sennrich 2019, eq. 4
pre-norm   x + f(norm(x))                              Xiong et al. 2020
post-norm  norm(x + f(x))                              Vaswani et al. 2017, §3.1
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

Stream = Float[Tensor, "batch time d_model"]
Sublayer = Callable[[Tensor], Tensor]
Wiring = Callable[[Tensor, Sublayer, Sublayer, Callable[[Tensor, Tensor], Tensor]], Tensor]


def build_norm(norm_type: str, width: int, *, bias: bool) -> nn.Module:
    """A LayerNorm (ε = 1e-5) or RMSNorm (ε = 1e-5) of `width`; RMSNorm has no bias."""
    if norm_type == "rmsnorm":
        return nn.RMSNorm(width, eps=1e-5)
    return nn.LayerNorm(width, bias=bias)


def pre_norm(x: Stream, norm: Sublayer, sublayer: Sublayer, combine: Callable[[Tensor, Tensor], Tensor]) -> Stream:
    """Normalise the input of the sublayer; the stream itself is not normalised: x + f(norm(x))."""
    return combine(x, sublayer(norm(x)))


def post_norm(x: Stream, norm: Sublayer, sublayer: Sublayer, combine: Callable[[Tensor, Tensor], Tensor]) -> Stream:
    """Normalise the stream after each sublayer: norm(x + f(x))."""
    return norm(combine(x, sublayer(x)))


def with_residual(x: Stream, output: Stream) -> Stream:
    """Add the sublayer's output to the stream."""
    return torch.add(x, output)


def without_residual(x: Stream, output: Stream) -> Stream:
    """Replace the stream by the sublayer's output."""
    return output


WIRINGS: dict[str, Wiring] = {"pre": pre_norm, "post": post_norm, "none": pre_norm}
"""Wirings by value of `model.norm`; "none" is pre-norm with the identity as norm."""
