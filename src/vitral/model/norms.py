"""Normalisation layers, and their placement in a block.

LayerNorm  g · (x - mean(x)) / √(var(x) + ε) + b       Ba et al. 2016, eq. 4
RMSNorm    g · x / √(mean(x²) + ε)                     Zhang & Sennrich 2019, eq. 4
pre-norm   x + f(norm(x))                              Xiong et al. 2020
post-norm  norm(x + f(x))                              Vaswani et al. 2017, §3.1
parallel   x + f(norm(x)) + g(norm(x)), in `model/block.py` (Wang & Komatsuzaki 2021)
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.core.modules import own_module
from vitral.core.parts import OwnPart
from vitral.core.taps import SILENT, Tap
from vitral.model.config import NORM_EPSILON, ModelConfig

Stream = Float[Tensor, "batch time d_model"]
Sublayer = Callable[[Tensor], Tensor]
Combine = Callable[[Tensor, Tensor], Tensor]
Wiring = Callable[[Tensor, Sublayer, Sublayer, Combine, Tap, str], Tensor]
"""Arguments: the stream, the norm, the sublayer, the residual rule, a tap, the sublayer's name ("attn" or "mlp")."""


def build_norm(norm_type: str | OwnPart, width: int, *, bias: bool, epsilon: float = NORM_EPSILON) -> nn.Module:
    """A LayerNorm or RMSNorm of `width`, or a registered norm; RMSNorm has no bias."""
    if isinstance(norm_type, OwnPart):
        return own_module(norm_type, norm_type.make(width))
    if norm_type == "rmsnorm":
        return nn.RMSNorm(width, eps=epsilon)
    return nn.LayerNorm(width, eps=epsilon, bias=bias)


def norm_of(config: ModelConfig) -> nn.Module:
    """A norm of the stream as the configuration describes it."""
    return build_norm(config.norm_type, config.d_model, bias=config.biases.norm, epsilon=config.epsilon)


def pre_norm(
    x: Stream, norm: Sublayer, sublayer: Sublayer, combine: Combine, tap: Tap = SILENT, name: str = "sublayer"
) -> Stream:
    """The sublayer reads the normalised stream, tapped as `{name}_norm`: x + f(norm(x))."""
    return combine(x, sublayer(tap(f"{name}_norm", norm(x))))


def post_norm(
    x: Stream, norm: Sublayer, sublayer: Sublayer, combine: Combine, tap: Tap = SILENT, name: str = "sublayer"
) -> Stream:
    """The stream is normalised after each sublayer, the sum tapped as `{name}_sum`: norm(x + f(x))."""
    return norm(tap(f"{name}_sum", combine(x, sublayer(x))))


def no_norm(
    x: Stream, norm: Sublayer, sublayer: Sublayer, combine: Combine, tap: Tap = SILENT, name: str = "sublayer"
) -> Stream:
    """`norm` is not used: x + f(x)."""
    return combine(x, sublayer(x))


def with_residual(x: Stream, output: Stream) -> Stream:
    """Add the sublayer's output to the stream."""
    return torch.add(x, output)


def without_residual(x: Stream, output: Stream) -> Stream:
    """Replace the stream by the sublayer's output."""
    return output


WIRINGS: dict[str, Wiring] = {"pre": pre_norm, "post": post_norm, "none": no_norm}
"""The wiring of each value of `model.norm`."""
