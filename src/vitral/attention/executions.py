"""One attention, two executions with the same arguments and results: fused for speed, traced to see every step."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from vitral.attention import masks, scales, steps
from vitral.attention.masks import Mask
from vitral.core.errors import UsageError
from vitral.core.graphs import is_tracing
from vitral.core.streams import drop_out
from vitral.core.taps import SILENT, Tap

CAUSAL, OPEN = masks.Causal(), masks.Bidirectional()  # the compiler cannot trace how a configuration is made
PLAIN_UP_TO = 512
"""Up to this many keys plain products are faster on the CPU: there the fused kernel's bfloat16 backward is slow."""


@dataclass(frozen=True)
class Steps:
    """Every step of one attention computation, by the names of `vitral.core.names.ATTENTION_STEPS`.

    Attributes:
        q: queries, [batch, heads, time, d_head].
        k: keys, [batch, heads, source, d_head].
        v: values, [batch, heads, source, d_value].
        scores: q kᵀ, [batch, heads, time, source].
        scaled: scores times the scale.
        masked: scaled plus the bias, -inf where the mask forbids.
        weights: softmax of masked over the keys, before dropout.
        z: weighted sums of values, [batch, heads, time, d_value].
    """

    q: Tensor
    k: Tensor
    v: Tensor
    scores: Tensor
    scaled: Tensor
    masked: Tensor
    weights: Tensor
    z: Tensor


def attend(
    q: Float[Tensor, "*batch time d_head"],
    k: Float[Tensor, "*kv_batch source d_head"],
    v: Float[Tensor, "*kv_batch source d_value"],
    *,
    mask: Mask | Tensor | str | None = "causal",
    scale: str | float | Tensor = "sqrt",
    bias: Tensor | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "*batch time d_value"]:
    """Scaled dot-product attention, fused: z = softmax(s q kᵀ + bias + M) v (Vaswani et al. 2017, eq. 1).

    The numbers of queries and keys may differ; masks that depend on positions take the queries to be the last `time`
    of the `source` positions. With fewer key-value heads than query heads, each serves a group of query heads
    (Ainslie et al. 2023). A fully masked row gives zeros.

    Args:
        q: queries, usually [batch, heads, time, d_head].
        k: keys, [batch, kv_heads, source, d_head].
        v: values, [batch, kv_heads, source, d_value].
        mask: "causal", "bidirectional", a `Mask`, a boolean tensor (True means allowed), or None for all.
        scale: "none", "sqrt", "linear", "adaptive", a number, or a tensor that broadcasts to [..., time, 1].
        bias: added to the scaled scores, finite, broadcasts to [batch, heads, time, source].
        dropout: probability with which a weight is set to zero; 0 outside training.

    Raises:
        UsageError: the shapes do not match, or the mask or scale is unknown.

    >>> q = k = v = torch.eye(2)
    >>> attend(q, k, v, scale="none")[0].tolist()
    [1.0, 0.0]
    """
    k, v = _one_per_query_head(q, k, v)
    _require_probability(dropout)
    chosen = masks.as_mask(mask)
    time, source = q.shape[-2], k.shape[-2]
    if isinstance(chosen, masks.Causal) and time == 1:
        chosen = OPEN  # the last position sees every key
    # bool: in a traced graph with symbolic lengths the comparison is a symbol.
    plainly_causal = bool(isinstance(chosen, masks.Causal) and time == source and bias is None)
    unmasked = isinstance(chosen, masks.Bidirectional)
    open_to_all = unmasked or (plainly_causal and scale != "adaptive")
    allowed = None if open_to_all else _fitting("mask", chosen.allowed(time, source, q.device), q, source)
    bias = None if bias is None else _fitting("bias", bias, q, source)
    factor = scales.factor_of(scale, q, k, allowed)
    if isinstance(factor, Tensor):
        q, factor = q * factor, 1.0
    seen = None
    if allowed is not None and not (chosen.sees_itself and time <= source):
        # SDPA is undefined for fully masked rows: unmask them, then zero the output.
        seen = allowed.any(dim=-1, keepdim=True)
        allowed = allowed | ~seen
    added = None if plainly_causal else _additive(allowed, bias, q.dtype)
    z = _fused(q, k, v, attn_mask=added, dropout_p=dropout, is_causal=plainly_causal, scale=factor)
    return z if seen is None else z.masked_fill(~seen, 0.0)


def _fused(
    q: Tensor, k: Tensor, v: Tensor, *, attn_mask: Tensor | None, dropout_p: float, is_causal: bool, scale: float | None
) -> Tensor:
    """PyTorch's fused kernel; on the CPU plain products with dropout, or for bfloat16 with up to `PLAIN_UP_TO` keys."""
    all_bfloat16 = q.dtype == k.dtype == v.dtype == torch.bfloat16  # a cache is in the weights' dtype
    is_plain = dropout_p > 0 or (all_bfloat16 and k.shape[-2] <= PLAIN_UP_TO)
    if not is_plain or q.device.type != "cpu":
        return functional.scaled_dot_product_attention(
            q, k, v, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale
        )
    if is_causal:
        attn_mask = CAUSAL.allowed(q.shape[-2], k.shape[-2])
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros(attn_mask.shape, dtype=q.dtype).masked_fill_(~attn_mask, -math.inf)
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    with torch.autocast("cpu", enabled=False):
        scores = q @ (factor * k).mT
        if attn_mask is not None:
            scores.add_(attn_mask)  # in place: nothing else needs the scores, and they are the largest tensor here
        return drop_out(torch.softmax(scores, dim=-1), dropout_p) @ v


def attend_traced(
    q: Float[Tensor, "*batch time d_head"],
    k: Float[Tensor, "*kv_batch source d_head"],
    v: Float[Tensor, "*kv_batch source d_value"],
    *,
    mask: Mask | Tensor | str | None = "causal",
    scale: str | float | Tensor = "sqrt",
    bias: Tensor | None = None,
    dropout: float = 0.0,
    tap: Tap = SILENT,
) -> Steps:
    """The same attention as `attend`, one step at a time, returning every step.

    Arguments and errors are those of `attend`, and `attend_traced(...).z` equals `attend(...)` up to rounding. `tap`
    receives each step from the scores on, and may replace it before the next.
    """
    k, v = _one_per_query_head(q, k, v)
    _require_probability(dropout)
    time, source = q.shape[-2], k.shape[-2]
    allowed = _fitting("mask", masks.as_mask(mask).allowed(time, source, q.device), q, source)
    scores = tap("scores", steps.score(q, k))
    scaled = tap("scaled", steps.scale(scores, scales.factor_of(scale, q, k, allowed)))
    biased = scaled if bias is None else scaled + _fitting("bias", bias, q, source).to(scaled.dtype)
    masked = tap("masked", steps.mask(biased, allowed))
    weights = tap("weights", steps.normalise(masked))
    z = steps.weigh(drop_out(weights, dropout), v)
    return Steps(q, k, v, scores, scaled, masked, weights, z)


def _one_per_query_head(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Repeat key-value heads so that each query head has one.

    Raises:
        UsageError: the shapes do not match.
    """
    heads, kv_heads = (tensor.shape[-3] if tensor.dim() > 2 else 1 for tensor in (q, k))
    fits = (
        q.dim() == k.dim() == v.dim() >= 2
        and q.shape[-1] == k.shape[-1]
        and k.shape[:-1] == v.shape[:-1]
        and q.shape[:-3] == k.shape[:-3]
        and kv_heads > 0
        and heads % kv_heads == 0
    )
    if not fits:
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in (("q", q), ("k", k), ("v", v)))
        raise UsageError(
            "attention: shapes {shapes} do not fit; q is [..., heads, time, d_head], k and v [..., source, d_head]",
            shapes=shapes,
        )
    groups = heads // kv_heads
    if groups == 1:
        return k, v
    if is_tracing():  # for a length that is not known, PyTorch cannot tell how the repeated heads lie in memory
        served = torch.arange(heads, device=k.device).div(groups, rounding_mode="floor")
        return k.index_select(-3, served), v.index_select(-3, served)
    return k.repeat_interleave(groups, dim=-3), v.repeat_interleave(groups, dim=-3)


def _require_probability(dropout: float) -> None:
    if not 0 <= dropout <= 1:
        raise UsageError("dropout: must be between 0 and 1, not {dropout}", dropout=dropout)


def _fitting(what: str, tensor: Tensor, q: Tensor, source: int) -> Tensor:
    """The tensor, if it broadcasts to the scores.

    Raises:
        UsageError: it does not broadcast, or would enlarge the scores.
    """
    shape = (*q.shape[:-1], source)
    if not scales.broadcasts(tensor, shape):
        raise UsageError(
            "{what}: shape {shape} does not broadcast to scores of {scores}",
            what=what,
            shape=tuple(tensor.shape),
            scores=shape,
        )
    return tensor


def _additive(allowed: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """The mask for the fused kernel: boolean, or the bias with -inf where the mask forbids."""
    if bias is None:
        return allowed
    return bias.to(dtype) if allowed is None else bias.to(dtype).masked_fill(~allowed, -math.inf)
