"""One attention, two executions: fused for speed, traced for looking inside. Same arguments, same meaning."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from vitral.core.errors import UsageError
from vitral.core.taps import SILENT, Tap

from vitral.attention import masks, scales, steps
from vitral.attention.masks import Mask


@dataclass(frozen=True)
class Steps:
    """Every step of one attention computation, by the names of `vitral.core.names.ATTENTION_STEPS`.

    Attributes:
        q: queries, [batch, heads, time, d_head].
        k: keys, [batch, heads, source, d_head].
        v: values, [batch, heads, source, d_value].
        scores: q kᵀ, [batch, heads, time, source].
        scaled: scores times the scale.
        masked: scaled plus the bias, -inf where looking is not allowed.
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

    There may be fewer or more queries than keys; under masks that speak of positions the queries are the last
    `time` of the `source` positions. With fewer key-value heads than query heads, each serves a group of them
    (Ainslie et al. 2023). A row in which everything is masked gives zeros.

    Args:
        q: queries, usually [batch, heads, time, d_head].
        k: keys, [batch, kv_heads, source, d_head].
        v: values, [batch, kv_heads, source, d_value].
        mask: "causal", "bidirectional", a `Mask`, a boolean tensor (True means allowed), or None for all.
        scale: "none", "sqrt", "linear", "adaptive", a number, or a tensor that broadcasts to [..., time, 1].
        bias: added to the scaled scores, broadcasts to [batch, heads, time, source].
        dropout: probability with which a weight is set to zero; 0 outside training.

    Raises:
        UsageError: shapes that do not fit, an unknown mask or scale.

    >>> q = k = v = torch.eye(2)
    >>> attend(q, k, v, scale="none")[0].tolist()
    [1.0, 0.0]
    """
    k, v = _one_per_query_head(q, k), _one_per_query_head(q, v)
    chosen = masks.as_mask(mask)
    time, source = q.shape[-2], k.shape[-2]
    if isinstance(chosen, masks.Causal) and time == 1:
        chosen = masks.Bidirectional()  # the last position sees every key
    plainly_causal = isinstance(chosen, masks.Causal) and time == source and bias is None
    unmasked = isinstance(chosen, masks.Bidirectional)
    allowed = None if unmasked or (plainly_causal and scale != "adaptive") else chosen.allowed(time, source, q.device)
    factor = scales.factor_of(scale, q, k, allowed)
    if isinstance(factor, Tensor):
        q, factor = q * factor, 1.0
    seen = None
    if allowed is not None and not (chosen.sees_itself and time <= source):
        # A kernel makes what it likes of a row without keys: let such rows see all, then blank them.
        seen = allowed.any(dim=-1, keepdim=True)
        allowed = allowed | ~seen
    z = functional.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=None if plainly_causal else _additive(allowed, bias, q.dtype),
        dropout_p=dropout,
        is_causal=plainly_causal,
        scale=factor,
    )
    return z if seen is None else z.masked_fill(~seen, 0.0)


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
    """The same attention as `attend`, one step at a time, every step kept.

    Arguments and errors are those of `attend`, and `attend_traced(...).z` equals `attend(...)` to rounding; `tap` is
    shown each step from the scores on, and may replace it before the next.
    """
    k, v = _one_per_query_head(q, k), _one_per_query_head(q, v)
    allowed = masks.as_mask(mask).allowed(q.shape[-2], k.shape[-2], q.device)
    scores = tap("scores", steps.score(q, k))
    scaled = tap("scaled", steps.scale(scores, scales.factor_of(scale, q, k, allowed)))
    masked = tap("masked", steps.mask(scaled if bias is None else scaled + bias, allowed))
    weights = tap("weights", steps.normalise(masked))
    z = steps.weigh(functional.dropout(weights, dropout, training=dropout > 0), v)
    return Steps(q, k, v, scores, scaled, masked, weights, z)


def _one_per_query_head(q: Tensor, keys_or_values: Tensor) -> Tensor:
    """Repeat key-value heads so that each query head has one."""
    heads, kv_heads = (tensor.shape[-3] if tensor.dim() > 2 else 1 for tensor in (q, keys_or_values))
    if q.dim() != keys_or_values.dim() or kv_heads == 0 or heads % kv_heads:
        raise UsageError(
            f"attention: queries of shape {tuple(q.shape)} do not fit keys or values of {tuple(keys_or_values.shape)}"
        )
    return keys_or_values if heads == kv_heads else keys_or_values.repeat_interleave(heads // kv_heads, dim=-3)


def _additive(allowed: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """The mask for the fused kernel: boolean alone, or the bias with -inf where looking is not allowed."""
    if bias is None:
        return allowed
    return bias.to(dtype) if allowed is None else bias.to(dtype).masked_fill(~allowed, -math.inf)
