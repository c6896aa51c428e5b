"""How sharp a softmax is and how much gradient passes through it: pure functions of weights, queries and keys.

A row of weights a = softmax(u) lies between uniform (equal weight on every key) and one-hot (saturated). Its Jacobian
with respect to the scaled scores u is ∂a/∂u = diag(a) - a aᵀ, which is small for a one-hot row.

`score_statistics` measures both on scores of independent queries and keys under every scale, without a model.
Components of q and k are drawn from N(0, 1). Then q·k has mean 0, variance d_k and fourth moment 3 d_k² + 6 d_k, so a
variance measured on n pairs has a relative standard error of √((2 + 6/d_k) / n).
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vitral.attention import scales, steps
from vitral.core.streams import torch_stream

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


# ---------------------------------------------------------------- independent queries and keys

PURPOSE = "score-statistics"
SCALES = ("none", "sqrt", "linear", "adaptive")
FIXED = ("none", "sqrt", "linear")
"""Scales that are one number, so that a single pair has a scaled score; the adaptive scale needs a row."""
D_KS = (16, 64, 256, 1024)
KEYS = 64
"""Keys of a row."""
CHUNK = 1 << 22
"""Numbers drawn at once: 16 MB."""
BY_ROW = ("entropy_share", "saturated", "sensitivity")
UNKNOWN = {"variance": None, "variance_error": None}
SURE = 3.0
"""Standard errors by which two numbers must differ to be called different."""
LEAST = 1e-30


def expected_variance(scale: str, d_k: int) -> float:
    """Variance of the scaled score of an independent N(0, 1) query and key: d_k, 1 or 1/d_k.

    >>> expected_variance("none", 64), expected_variance("sqrt", 64), expected_variance("linear", 64)
    (64.0, 1.0, 0.015625)
    """
    return {"none": float(d_k), "sqrt": 1.0, "linear": 1 / d_k}[scale]


def score_statistics(pairs: int, rows: int, seed: int) -> dict[str, Any]:
    """Statistics of every scale at every d_k of `D_KS`.

    Args:
        pairs: of query and key for the variances, at each d_k.
        rows: of one query and `KEYS` keys, at each d_k.
        seed: of the draws.

    Returns:
        `pairs`, `rows`, `keys`, `d_ks`, and `scales`: for each scale, lists over d_k of `variance` (None for the
        adaptive scale), `entropy_share`, `saturated` and `sensitivity`, each with its standard error as
        `NAME_error`, and `sensitivity_median`.
    """
    by_d_k = [(pair_variances(d_k, pairs, seed), row_statistics(d_k, rows, seed)) for d_k in D_KS]
    statistics: dict[str, dict[str, list[Any]]] = {}
    for scale in SCALES:
        numbers = [by_row[scale] | by_pair.get(scale, UNKNOWN) for by_pair, by_row in by_d_k]
        statistics[scale] = {name: [each[name] for each in numbers] for name in numbers[0]}
    return {"pairs": pairs, "rows": rows, "keys": KEYS, "d_ks": list(D_KS), "scales": statistics}


def pair_variances(d_k: int, pairs: int, seed: int) -> dict[str, dict[str, float]]:
    """Variance of the scaled scores of `pairs` pairs, each query and key used once, with its standard error.

    The standard error is √((m₄ - m₂²) / n), from the scores' own second and fourth central moments.
    """
    stream = torch_stream(seed, PURPOSE, "pairs", d_k)
    pieces: list[Tensor] = []
    for size in chunks(pairs, CHUNK // d_k):
        q, k = (torch.randn(size, d_k, generator=stream) for _ in range(2))
        pieces.append((q * k).sum(dim=-1).double())
    scores, one = torch.cat(pieces), torch.ones(1, d_k)
    variances: dict[str, dict[str, float]] = {}
    for scale in FIXED:
        scaled = steps.scale(scores[None], scales.factor_of(scale, one, one, None))[0]
        centred = scaled - scaled.mean()
        second, fourth = float(centred.square().mean()), float(centred.pow(4).mean())
        error = math.sqrt((fourth - second**2) / pairs)
        variances[scale] = {"variance": second * pairs / (pairs - 1), "variance_error": error}
    return variances


def row_statistics(d_k: int, rows: int, seed: int) -> dict[str, dict[str, float]]:
    """Means over rows, each of one query and `KEYS` keys of its own, with their standard errors (`NAME_error`)."""
    stream = torch_stream(seed, PURPOSE, "rows", d_k)
    pieces: dict[str, list[dict[str, Tensor]]] = {scale: [] for scale in SCALES}
    for size in chunks(rows, max(1, CHUNK // (d_k * KEYS))):
        q = torch.randn(size, 1, d_k, generator=stream)
        k = torch.randn(size, KEYS, d_k, generator=stream)
        for scale, kept in pieces.items():
            kept.append(statistics_of_rows(q, k, scale))
    statistics: dict[str, dict[str, float]] = {}
    for scale, kept in pieces.items():
        numbers = {name: torch.cat([piece[name] for piece in kept]).double() for name in BY_ROW}
        means = {name: float(values.mean()) for name, values in numbers.items()}
        errors = {f"{name}_error": float(values.std()) / math.sqrt(rows) for name, values in numbers.items()}
        statistics[scale] = means | errors | {"sensitivity_median": float(numbers["sensitivity"].median())}
    return statistics


def statistics_of_rows(
    q: Float[Tensor, "rows 1 d_head"], k: Float[Tensor, "rows source d_head"], scale: str
) -> dict[str, Float[Tensor, " rows"]]:
    """The numbers of `BY_ROW` of each row, computed by the steps of attention itself."""
    factor = scales.factor_of(scale, q, k, None)
    weights = steps.normalise(steps.scale(steps.score(q, k), factor)[:, 0])
    s = torch.as_tensor(factor, dtype=q.dtype).expand(len(q), 1, 1)[:, 0, 0]
    return {
        "entropy_share": entropy_share(weights, float(k.shape[-2])),
        "saturated": saturated(weights).to(q.dtype),
        "sensitivity": query_sensitivity(q[:, 0], k, weights, s, adaptive=scale == "adaptive"),
    }


def change(values: Sequence[float]) -> float:
    """The last value over the first, both kept away from zero."""
    first, last = (max(value, LEAST) for value in (values[0], values[-1]))
    return last / first


def chunks(total: int, most: int) -> list[int]:
    """Sizes that sum to `total`, none above `most`."""
    return [min(most, total - begin) for begin in range(0, total, most)]
