"""Normalisation of each position's vector, and where it stands in a block.

LayerNorm  g · (x - mean(x)) / √(var(x) + ε) + b       Ba et al. 2016, eq. 4
RMSNorm    g · x / √(mean(x²) + ε)                     Zhang & Sennrich 2019, eq. 4
pre-norm   x + f(norm(x))                              Xiong et al. 2020
post-norm  norm(x + f(x))                              Vaswani et al. 2017, §3.1
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.core.taps import SILENT, Tap

Stream = Float[Tensor, "batch time d_model"]
Part = Callable[[Tensor], Tensor]
Combine = Callable[[Tensor, Tensor], Tensor]
Wiring = Callable[[Tensor, Part, Part, Combine, Tap, str], Tensor]
"""Arguments: the stream, the norm, the sublayer, the residual rule, a tap, the sublayer's name ("attn" or "mlp")."""


def build_norm(norm_type: str, width: int, *, bias: bool) -> nn.Module:
    """A LayerNorm (ε = 1e-5) or RMSNorm (ε = 1e-5) of `width`; RMSNorm has no bias."""
    if norm_type == "rmsnorm":
        return nn.RMSNorm(width, eps=1e-5)
    return nn.LayerNorm(width, bias=bias)


def pre_norm(x: Stream, norm: Part, part: Part, combine: Combine, tap: Tap = SILENT, name: str = "part") -> Stream:
    """The sublayer reads the normalised stream, tapped as `{name}_norm`: x + f(norm(x))."""
    return combine(x, part(tap(f"{name}_norm", norm(x))))


def post_norm(x: Stream, norm: Part, part: Part, combine: Combine, tap: Tap = SILENT, name: str = "part") -> Stream:
    """The stream is normalised after each sublayer, the sum tapped as `{name}_sum`: norm(x + f(x))."""
    return norm(tap(f"{name}_sum", combine(x, part(x))))


def no_norm(x: Stream, norm: Part, part: Part, combine: Combine, tap: Tap = SILENT, name: str = "part") -> Stream:
    """`norm` is not used: x + f(x)."""
    return combine(x, part(x))


def with_residual(x: Stream, output: Stream) -> Stream:
    """The part's output is added to the stream."""
    return torch.add(x, output)


def without_residual(x: Stream, output: Stream) -> Stream:
    """The part's output takes the stream's place."""
    return output


WIRINGS: dict[str, Wiring] = {"pre": pre_norm, "post": post_norm, "none": no_norm}
"""The wiring of each value of `model.norm`."""
