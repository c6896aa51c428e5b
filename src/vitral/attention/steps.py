"""The named steps of attention, each a pure function (Vaswani et al. 2017, §3.2).

    projection     q = x W_Q,  k = x W_K,  v = x W_V
    scoring        scores = q kᵀ
    scaling        scaled = scores · s
    masking        masked = scaled (+ bias), -inf where the mask forbids
    normalisation  weights = softmax(masked)
    weighting      z = weights v

The axes are `batch heads time source d_head`. Every function works on the last two or three axes, so the number of
leading axes is free.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def project(
    x: Float[Tensor, "*batch time d_model"], weight: Float[Tensor, "width d_model"], bias: Tensor | None = None
) -> Float[Tensor, "*batch time width"]:
    """One linear map of every position: x Wᵀ + b, `weight` stored as PyTorch stores it, [out, in]."""
    return torch.nn.functional.linear(x, weight, bias)


def split_heads(x: Float[Tensor, "*batch time width"], num_heads: int) -> Float[Tensor, "*batch heads time d_head"]:
    """Split the last axis into heads of equal width and move the heads before the time axis."""
    return x.reshape(*x.shape[:-1], num_heads, x.shape[-1] // num_heads).transpose(-2, -3)


def merge_heads(z: Float[Tensor, "*batch heads time d_head"]) -> Float[Tensor, "*batch time width"]:
    """Concatenate the heads: the inverse of `split_heads`."""
    return z.transpose(-2, -3).flatten(-2)


def score(
    q: Float[Tensor, "*batch time d_head"], k: Float[Tensor, "*batch source d_head"]
) -> Float[Tensor, "*batch time source"]:
    """The dot product of every query with every key: scores = q kᵀ."""
    return q @ k.transpose(-1, -2)


def scale(
    scores: Float[Tensor, "*batch time source"], factor: float | Float[Tensor, "..."]
) -> Float[Tensor, "*batch time source"]:
    """Multiply the scores; `factor` is one number, or one per head or query, shaped [..., time or 1, 1]."""
    return scores * factor


def mask(
    scaled: Float[Tensor, "*batch time source"],
    allowed: Bool[Tensor, "..."],
    fill: float = -math.inf,
) -> Float[Tensor, "*batch time source"]:
    """Write `fill` where a query may not attend to a key.

    With -inf the weight is exactly zero, and masking commutes with any positive scale. With a finite `fill` (such as
    the common -1e9) neither is true: a fully masked row then attends uniformly.
    """
    return scaled.masked_fill(~allowed, fill)


def normalise(masked: Float[Tensor, "*batch time source"]) -> Float[Tensor, "*batch time source"]:
    """Softmax over the keys; a fully masked row has zero weights.

    weights_ij = exp(masked_ij - max_j masked_ij) / Σ_j exp(masked_ij - max_j masked_ij)
    """
    empty = (masked == -math.inf).all(dim=-1, keepdim=True)
    # Softmax of a row of -inf is NaN, and so is its gradient: replace the row by zeros, then zero the result.
    return torch.softmax(masked.masked_fill(empty, 0.0), dim=-1).masked_fill(empty, 0.0)


def weigh(
    weights: Float[Tensor, "*batch time source"], v: Float[Tensor, "*batch source d_value"]
) -> Float[Tensor, "*batch time d_value"]:
    """The weighted mean of the values visible to each query: z = weights v."""
    return weights @ v
