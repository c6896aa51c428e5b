"""Scores of independent queries and keys under every scale, measured directly, without a model.

Components of q and k are drawn from N(0, 1). Then q·k has mean 0, variance d_k and fourth moment 3 d_k² + 6 d_k, so a
variance measured on n pairs has a relative standard error of √((2 + 6/d_k) / n).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vitral.attention import scales, steps
from vitral.core.streams import torch_stream
from vitral.inspection.softmax import entropy_share, jacobian_norm, query_sensitivity, saturated
from vitral.model import ModelConfig, cost

PURPOSE = "score-statistics"
SCALES = ("none", "sqrt", "linear", "adaptive")
FIXED = ("none", "sqrt", "linear")
"""Scales that are one number, so that a single pair has a scaled score; the adaptive scale needs a row."""
D_KS = (16, 64, 256, 1024)
KEYS = 64
"""Keys of a row."""
CHUNK = 1 << 22
"""Numbers drawn at once: 16 MB."""
BY_ROW = ("row_variance", "entropy_share", "saturated", "jacobian", "sensitivity")
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
        adaptive scale), `row_variance`, `entropy_share`, `saturated`, `jacobian`, `sensitivity` and
        `sensitivity_median`, each with its standard error as `NAME_error`.
    """
    by_d_k = [(pair_variances(d_k, pairs, seed), row_statistics(d_k, rows, seed)) for d_k in D_KS]
    found: dict[str, dict[str, list[Any]]] = {}
    for scale in SCALES:
        numbers = [by_row[scale] | by_pair.get(scale, UNKNOWN) for by_pair, by_row in by_d_k]
        found[scale] = {name: [each[name] for each in numbers] for name in numbers[0]}
    return {"pairs": pairs, "rows": rows, "keys": KEYS, "d_ks": list(D_KS), "scales": found}


def pair_variances(d_k: int, pairs: int, seed: int) -> dict[str, dict[str, float]]:
    """Variance of the scaled scores of `pairs` pairs, each query and key used once, with its standard error.

    The standard error is √((m₄ - m₂²) / n), from the scores' own second and fourth central moments.
    """
    stream = torch_stream(seed, PURPOSE, "pairs", d_k)
    pieces: list[Tensor] = []
    for size in _chunks(pairs, CHUNK // d_k):
        q, k = (torch.randn(size, d_k, generator=stream) for _ in range(2))
        pieces.append((q * k).sum(dim=-1).double())
    scores, one = torch.cat(pieces), torch.ones(1, d_k)
    found: dict[str, dict[str, float]] = {}
    for scale in FIXED:
        scaled = steps.scale(scores[None], scales.factor_of(scale, one, one, None))[0]
        centred = scaled - scaled.mean()
        second, fourth = float(centred.square().mean()), float(centred.pow(4).mean())
        error = math.sqrt((fourth - second**2) / pairs)
        found[scale] = {"variance": second * pairs / (pairs - 1), "variance_error": error}
    return found


def row_statistics(d_k: int, rows: int, seed: int) -> dict[str, dict[str, float]]:
    """Means over rows, each of one query and `KEYS` keys of its own, with their standard errors (`NAME_error`)."""
    stream = torch_stream(seed, PURPOSE, "rows", d_k)
    pieces: dict[str, list[dict[str, Tensor]]] = {scale: [] for scale in SCALES}
    for size in _chunks(rows, max(1, CHUNK // (d_k * KEYS))):
        q = torch.randn(size, 1, d_k, generator=stream)
        k = torch.randn(size, KEYS, d_k, generator=stream)
        for scale, kept in pieces.items():
            kept.append(statistics_of_rows(q, k, scale))
    found: dict[str, dict[str, float]] = {}
    for scale, kept in pieces.items():
        numbers = {name: torch.cat([piece[name] for piece in kept]).double() for name in BY_ROW}
        means = {name: float(values.mean()) for name, values in numbers.items()}
        errors = {f"{name}_error": float(values.std()) / math.sqrt(rows) for name, values in numbers.items()}
        median, error = median_of(numbers["sensitivity"])
        found[scale] = means | errors | {"sensitivity_median": median, "sensitivity_median_error": error}
    return found


def median_of(values: Float[Tensor, " rows"]) -> tuple[float, float]:
    """The (lower) median and its standard error, without assuming a distribution.

    The number of n values below the true median is binomial with standard deviation √n / 2. So the error is half the
    distance between the order statistics of ranks n/2 - √n/2 and n/2 + √n/2.
    """
    ordered, num = values.sort().values, len(values)
    middle, away = (num - 1) / 2, math.sqrt(num) / 2
    low, high = max(0, math.floor(middle - away)), min(num - 1, math.ceil(middle + away))
    return float(ordered[(num - 1) // 2]), float(ordered[high] - ordered[low]) / 2


def statistics_of_rows(
    q: Float[Tensor, "rows 1 d_head"], k: Float[Tensor, "rows source d_head"], scale: str
) -> dict[str, Float[Tensor, " rows"]]:
    """The numbers of `BY_ROW` of each row, computed by the steps of attention itself."""
    factor = scales.factor_of(scale, q, k, None)
    scaled = steps.scale(steps.score(q, k), factor)[:, 0]
    weights = steps.normalise(scaled)
    s = torch.as_tensor(factor, dtype=q.dtype).expand(len(q), 1, 1)[:, 0, 0]
    return {
        "row_variance": scaled.var(dim=-1, unbiased=scale != "adaptive"),
        "entropy_share": entropy_share(weights, float(k.shape[-2])),
        "saturated": saturated(weights).to(q.dtype),
        "jacobian": jacobian_norm(weights),
        "sensitivity": query_sensitivity(q[:, 0], k, weights, s, adaptive=scale == "adaptive"),
    }


def head_costs(base: ModelConfig, vocab_size: int) -> list[dict[str, Any]]:
    """Parameters and training FLOPs per token at each d_k, by the formulas of `vitral.model.counts`.

    Twice: with the base's d_model, where a larger d_k means fewer heads, for every d_k that divides it (`varies` is
    "heads"); and with the base's number of heads, where a larger d_k means a wider model (`varies` is "d_model").
    """
    plain = base.plain() | {"num_kv_heads": None}
    found: list[dict[str, Any]] = []
    for varies in ("heads", "d_model"):
        for d_k in D_KS:
            width = base.d_model if varies == "heads" else base.num_heads * d_k
            if width % d_k:
                continue
            shape = {"d_model": width, "num_heads": width // d_k}
            counted = cost(ModelConfig.parse(plain | shape, "the base"), vocab_size)
            flops = counted.forward_flops + counted.backward_flops
            found.append({"d_k": d_k, "varies": varies, **shape, "parameters": counted.parameters, "flops": flops})
    return found


def least_changed(measured: Mapping[str, Any]) -> list[str]:
    """The fixed scale under which the median ‖∂a/∂q‖ changes least with d_k, then those not distinguishable from it.

    A change is |ln(last / first)|; two are distinguishable if they differ with all values within `SURE` standard errors
    of the measured ones.

    Args:
        measured: as `score_statistics` returns it.
    """
    ranges: dict[str, tuple[float, float]] = {}
    for scale in FIXED:
        numbers = measured["scales"][scale]
        ranges[scale] = change_range(numbers["sensitivity_median"], numbers["sensitivity_median_error"])
    first = min(FIXED, key=lambda scale: abs(math.log(change(measured["scales"][scale]["sensitivity_median"]))))
    return [first, *(scale for scale in FIXED if scale != first and ranges[scale][0] <= ranges[first][1])]


def change_range(values: Sequence[float], errors: Sequence[float]) -> tuple[float, float]:
    """Least and largest |ln(last / first)| with both values within `SURE` standard errors of the measured ones.

    The errors are those of the values, not of their logarithms, since an error can be as large as its value.
    """
    ends = [(values[at] - SURE * errors[at], values[at] + SURE * errors[at]) for at in (0, -1)]
    low, high = change((ends[0][1], ends[1][0])), change((ends[0][0], ends[1][1]))
    furthest = max(abs(math.log(low)), abs(math.log(high)))
    return (0.0 if low <= 1 <= high else min(abs(math.log(low)), abs(math.log(high)))), furthest


def change(values: Sequence[float]) -> float:
    """The last value over the first, both kept away from zero."""
    first, last = (max(value, LEAST) for value in (values[0], values[-1]))
    return last / first


def _chunks(total: int, most: int) -> list[int]:
    """Sizes that sum to `total`, none above `most`."""
    return [len(each) for each in torch.arange(total).split(most)]
