"""How sharp a softmax is and how much gradient passes through it: pure functions of weights, queries and keys.

A row of weights a = softmax(u) lies between uniform (equal weight on every key) and one-hot (saturated). Its Jacobian
with respect to the scaled scores u is ∂a/∂u = diag(a) - a aᵀ, which is small for a one-hot row.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

SATURATED = 0.99
"""A row is saturated if its largest weight is above this."""


def entropy_share(
    weights: Float[Tensor, "*batch source"], visible: Float[Tensor, "..."] | float
) -> Float[Tensor, "*batch"]:
    """Entropy of each row of weights as a share of its maximum: -Σ a ln a / ln n over the n visible keys.

    1 for uniform weights, 0 for one-hot weights; NaN where one key is visible.

    Args:
        weights: rows that sum to one.
        visible: number of visible keys, of each row or of all.

    >>> entropy_share(torch.tensor([0.5, 0.5, 0.0, 0.0]), 4.0).item()
    0.5
    """
    entropy = torch.special.entr(weights).sum(dim=-1)
    return entropy / torch.as_tensor(visible, dtype=weights.dtype, device=weights.device).log()


def saturated(weights: Float[Tensor, "*batch source"]) -> Bool[Tensor, "*batch"]:
    """Whether the largest weight of each row is above `SATURATED`."""
    return weights.amax(dim=-1) > SATURATED


def jacobian_norm(weights: Float[Tensor, "*batch source"]) -> Float[Tensor, "*batch"]:
    """Frobenius norm of each row's softmax Jacobian J = diag(a) - a aᵀ.

        ‖J‖² = Σ a² - 2 Σ a³ + (Σ a²)²

    √(n - 1) / n for n uniform weights, 1/2 (the maximum) for two equal weights, 0 for one-hot weights.

    >>> jacobian_norm(torch.tensor([0.5, 0.5, 0.0])).item()
    0.5
    """
    squares = weights.square().sum(dim=-1)
    cubes = weights.pow(3).sum(dim=-1)
    return (squares - 2 * cubes + squares.square()).clamp(min=0).sqrt()


def query_sensitivity(
    q: Float[Tensor, "*batch d_head"],
    k: Float[Tensor, "*batch source d_head"],
    weights: Float[Tensor, "*batch source"],
    factor: Float[Tensor, "*#batch"],
    *,
    adaptive: bool = False,
) -> Float[Tensor, "*batch"]:
    """Frobenius norm of ∂a/∂q, the derivative of a row of weights with respect to its query.

        ∂a/∂q = J · ∂u/∂q,   ∂u/∂q = s K                                  for a constant scale s, u = s K q
                             ∂u/∂q = s K - s³/n · x (x - x̄)ᵀ K,  x = K q  for the adaptive scale s = 1/σ(x)

    Args:
        q: one query for each row.
        k: the n visible keys.
        weights: of the row, softmax(s K q).
        factor: s of each row.
        adaptive: whether s is the adaptive scale, which depends on q.
    """
    s = factor[..., None, None]
    moved = s * k
    if adaptive:
        x = (k @ q[..., None]).squeeze(-1)
        centred = x - x.mean(dim=-1, keepdim=True)
        moved = moved - s**3 / x.shape[-1] * x[..., None] * (centred[..., None, :] @ k)
    through = weights[..., None] * (moved - weights[..., None, :] @ moved)
    return through.square().sum(dim=(-2, -1)).sqrt()


def mutual_information(attended: Float[Tensor, "*batch time source"]) -> Float[Tensor, "*batch"]:
    """Mutual information of query position and attended key position, in bits (Shannon 1948).

        I = 1/T Σ_i Σ_j p(j | i) log₂ (p(j | i) / p(j)),   p(j) = 1/T Σ_i p(j | i)

    The query position i is uniform over T. 0 if all queries have the same weights, log₂ T if each attends to one key of
    its own.

    Args:
        attended: p(j | i), rows that sum to one.

    >>> mutual_information(torch.eye(4)).item()
    2.0
    """
    time = attended.shape[-2]
    outer = torch.special.entr(attended.mean(dim=-2)).sum(dim=-1)
    inner = torch.special.entr(attended).sum(dim=(-2, -1)) / time
    return (outer - inner).clamp(min=0) / math.log(2)
