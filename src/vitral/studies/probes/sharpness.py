"""How sharp attention is and how much gets through it backwards: pure functions of weights, queries and keys.

A row of weights a = softmax(u) lies between uniform (every key alike) and one-hot (saturated). What a change of the
scaled scores u does to the weights is the softmax Jacobian, ∂a/∂u = diag(a) - a aᵀ: small in a row that is one-hot.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

SATURATED = 0.99
"""A row whose largest weight is above this is called saturated."""


def entropy_share(
    weights: Float[Tensor, "*batch source"], visible: Float[Tensor, "..."] | float
) -> Float[Tensor, "*batch"]:
    """Entropy of rows of weights as a share of the most there can be: -Σ a ln a / ln n over the n visible keys.

    1 where the weights are uniform, 0 where they are one-hot; not a number where one key is visible.

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

    √(n - 1) / n for n uniform weights, 1/2 (the most) where two keys share everything, 0 for one-hot weights.

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
    """Frobenius norm of ∂a/∂q, what a move of the query does to its weights.

        ∂a/∂q = J · ∂u/∂q,   ∂u/∂q = s K                                  for a constant scale s, u = s K q
                             ∂u/∂q = s K - s³/n · x (x - x̄)ᵀ K,  x = K q  for the adaptive scale s = 1/σ(x)

    Args:
        q: one query for each row.
        k: the n keys it sees.
        weights: of the row, softmax(s K q).
        factor: s of each row.
        adaptive: whether s depends on q as the adaptive scale does.
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
    """Bits that the query's position and the attended key's position tell about one another (Shannon 1948).

        I = 1/T Σ_i Σ_j p(j | i) log₂ (p(j | i) / p(j)),   p(j) = 1/T Σ_i p(j | i)

    The query's position i is uniform over T. 0 where all positions look at the same places, log₂ T where each looks at
    one place of its own.

    Args:
        attended: p(j | i), rows that sum to one.

    >>> mutual_information(torch.eye(4)).item()
    2.0
    """
    time = attended.shape[-2]
    outer = torch.special.entr(attended.mean(dim=-2)).sum(dim=-1)
    inner = torch.special.entr(attended).sum(dim=(-2, -1)) / time
    return (outer - inner).clamp(min=0) / math.log(2)
