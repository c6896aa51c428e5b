"""Multi-head attention: projection, heads in parallel, concatenation, output projection."""

import math
from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from vitral.attention import steps
from vitral.attention.executions import attend, attend_traced
from vitral.attention.masks import Mask, OwnMask, Padding
from vitral.attention.scales import ScaleConfig, build_scale
from vitral.core.errors import UsageError
from vitral.core.taps import SILENT, Tap

Past = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Takes the new keys and values and returns all keys and values so far: one layer of a cache."""
Rotation = Callable[[Tensor], Tensor]
"""Rotates queries or keys [batch, heads, time, d_head] by their positions."""

INNER_STEPS = ("scores", "scaled", "masked", "weights")
"""The steps that exist only in the traced execution."""


class Given(NamedTuple):
    """What cross-attention reads.

    Attributes:
        keys: of the other states, [batch, kv_heads, source, d_head].
        values: of them, the same shape.
        real: which of them are no padding; every query sees these.
    """

    keys: Float[Tensor, "batch kv_heads source d_head"]
    values: Float[Tensor, "batch kv_heads source d_head"]
    real: Bool[Tensor, "batch source"]


class MultiHeadAttention(nn.Module):
    """MultiHead(x) = Concat(head_1, …, head_h) W_O (Vaswani et al. 2017, §3.2.2).

    One matrix, `in_proj`, contains the projections of all heads: rows of queries, then keys, then values, head by
    head, as in `torch.nn.MultiheadAttention`. With fewer key-value heads than query heads each serves a group
    (Ainslie et al. 2023); a single one serves all (Shazeer 2019).
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        d_head: int | None = None,
        mask: Mask,
        scale: ScaleConfig = "sqrt",
        bias: bool | tuple[bool, bool] = True,
        dropout: float = 0.0,
    ) -> None:
        """Make the projections.

        Args:
            d_model: width of the stream.
            num_heads: of queries.
            num_kv_heads: of keys and values; `num_heads` if None.
            d_head: width of a head; d_model / num_heads if None.
            mask: which keys a query may attend to.
            scale: of the scores.
            bias: whether the projections have biases; a pair says it of `in_proj` and of `out_proj`.
            dropout: of the attention weights.

        Raises:
            UsageError: the heads do not divide d_model, or the key-value heads do not divide the heads.
        """
        super().__init__()
        num_kv_heads = num_kv_heads or num_heads
        check_heads(d_model, num_heads, num_kv_heads, d_head)
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.d_head = d_head or d_model // num_heads
        self.widths = tuple(heads * self.d_head for heads in (num_heads, num_kv_heads, num_kv_heads))
        self.mask, self.dropout = mask.mask if isinstance(mask, OwnMask) else mask, dropout
        in_bias, out_bias = bias if isinstance(bias, tuple) else (bias, bias)
        self.in_proj = nn.Linear(d_model, (num_heads + 2 * num_kv_heads) * self.d_head, bias=in_bias)
        self.out_proj = nn.Linear(num_heads * self.d_head, d_model, bias=out_bias)
        self.scale = build_scale(scale, num_heads, self.d_head)

    def project(self, x: Float[Tensor, "batch time d_model"]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [batch, heads, time, d_head], keys and values [batch, kv_heads, time, d_head] of x."""
        q, k, v = self.in_proj(x).split(self.widths, dim=-1)
        return (
            steps.split_heads(q, self.num_heads),
            steps.split_heads(k, self.num_kv_heads),
            steps.split_heads(v, self.num_kv_heads),
        )

    def queries(self, x: Float[Tensor, "batch time d_model"]) -> Float[Tensor, "batch heads time d_head"]:
        """The queries of x alone."""
        return steps.split_heads(self._projected(x, slice(self.widths[0])), self.num_heads)

    def given(self, states: Float[Tensor, "batch source d_model"], real: Bool[Tensor, "batch source"]) -> Given:
        """The keys and values of other states than those that ask; `real` says which are no padding."""
        k, v = self._projected(states, slice(self.widths[0], None)).chunk(2, dim=-1)
        return Given(steps.split_heads(k, self.num_kv_heads), steps.split_heads(v, self.num_kv_heads), real)

    def _projected(self, x: Tensor, rows: slice) -> Tensor:
        weight, bias = self.in_proj.weight, cast("Tensor | None", self.in_proj.bias)
        return steps.project(x, weight[rows], None if bias is None else bias[rows])

    def factors(self) -> Float[Tensor, "heads 1"]:
        """The factor of all heads, or of each one's; 1 where it depends on the scores."""
        scale = self.scale()
        named = {"none": 1.0, "adaptive": 1.0, "sqrt": 1 / math.sqrt(self.d_head), "linear": 1 / self.d_head}
        given = named[scale] if isinstance(scale, str) else scale
        factors = given if isinstance(given, Tensor) else torch.tensor(given, dtype=torch.float64)
        return factors.detach().reshape(-1, 1)

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        *,
        rotate: Rotation | None = None,
        bias: Float[Tensor, "..."] | None = None,
        past: Past | None = None,
        given: Given | None = None,
        mask: Mask | None = None,
        tap: Tap = SILENT,
    ) -> Float[Tensor, "batch time d_model"]:
        """Attend from every position of x.

        Args:
            x: the residual stream, normalised or not as the block has it.
            rotate: rotates queries and keys by position (rotary); without it there are no `q_pre` and `k_pre`.
            bias: added to the scaled scores (ALiBi, relative).
            past: gives the keys and values of earlier calls as well (a cache).
            given: keys and values of other states than x (cross-attention).
            mask: for this call instead of its own.
            tap: receives every step by name, and may replace it.
        """
        if given is None:
            q, k, v = self.project(x)
        else:
            q, k, v, mask = self.queries(x), given.keys, given.values, Padding(given.real)
        if rotate is not None:
            q, k = rotate(tap("q_pre", q)), rotate(tap("k_pre", k))
        q, k, v = tap("q", q), tap("k", k), tap("v", v)
        if past is not None:
            k, v = past(k, v)
        dropout = self.dropout if self.training else 0.0
        scale, mask = self.scale(), self.mask if mask is None else mask
        if tap.wants_any(INNER_STEPS):
            z = attend_traced(q, k, v, mask=mask, scale=scale, bias=bias, dropout=dropout, tap=tap).z
        else:
            z = attend(q, k, v, mask=mask, scale=scale, bias=bias, dropout=dropout)
        return tap("out", self.out_proj(steps.merge_heads(tap("z", z))))


def check_heads(d_model: int, num_heads: int, num_kv_heads: int, d_head: int | None = None) -> None:
    """Refuse head counts that do not divide; with a width of their own, heads need not divide d_model.

    Raises:
        UsageError: a count does not divide; names both numbers.
    """
    if d_head is None and d_model % num_heads:
        raise UsageError(
            "num_heads: {num_heads} heads do not divide d_model = {d_model} into equal widths",
            num_heads=num_heads,
            d_model=d_model,
        )
    if num_heads % num_kv_heads:
        raise UsageError(
            "num_kv_heads: {num_kv_heads} do not divide num_heads = {num_heads} into equal groups",
            num_kv_heads=num_kv_heads,
            num_heads=num_heads,
        )


def head_matrices(
    attention: MultiHeadAttention,
) -> dict[str, Float[Tensor, "heads d_model d_head"]]:
    """W_Q, W_K, W_V of each head in the notation of the formulas, [heads, d_model, d_head]: q = x W_Q."""
    weight = attention.in_proj.weight
    counts = (attention.num_heads, attention.num_kv_heads, attention.num_kv_heads)
    pieces = torch.split(weight, [count * attention.d_head for count in counts])
    names = ("w_q", "w_k", "w_v")
    return {
        name: piece.view(count, attention.d_head, -1).transpose(-1, -2)
        for name, piece, count in zip(names, pieces, counts, strict=True)
    }
