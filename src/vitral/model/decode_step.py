"""A fast forward pass for one new token of a few sequences.

The cost of a generated token is reading every weight once and calling a few dozen operations. `DecodeStep` therefore
stores the matrices in a layout for products with one row, and calls the operations directly instead of the modules. Its
results equal `Transformer.forward` with the same cache, up to rounding.
"""

from collections.abc import Callable, Collection
from itertools import accumulate

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitral.attention.masks import Bidirectional, ByLayer, Causal, Prefix, Window
from vitral.attention.multihead import MultiHeadAttention
from vitral.attention.scales import GivenScale, LearnedScale
from vitral.core.streams import Dropout
from vitral.model.block import Block, has_taps
from vitral.model.cache import KVCache
from vitral.model.feedforward import FeedForward
from vitral.model.norms import Map
from vitral.model.positions import ALiBi, Learned, Positions, Relative, Rotary, Sinusoidal
from vitral.model.transformer import Transformer

Vectors = Float[Tensor, "batch width"]

MOST_ROWS = 4
"""With more rows the modules' products are as fast."""

KNOWN = {
    *(Transformer, Block, MultiHeadAttention, FeedForward, GivenScale, LearnedScale),
    *(nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm, nn.Identity, Dropout, nn.ModuleList),
    *(Positions, Learned, Sinusoidal, Rotary, ALiBi, Relative),
}
"""Modules supported by `DecodeStep`; a model with any other module uses its own forward pass."""


def can_decode_step(model: Transformer, batch: int) -> bool:
    """Whether `DecodeStep` supports this model and is faster for this batch size."""
    attention = model.config.attention
    known = attention == "none" or (
        isinstance(attention.mask, Causal | Bidirectional | Prefix | Window | ByLayer) and attention.scale != "adaptive"
    )
    known_blocks = all(
        isinstance(block, Block) and (block.mlp is None or has_taps(block.mlp)) for block in model.blocks
    )
    on_cpu = model.token_embedding.weight.device.type == "cpu"
    return known and known_blocks and has_only(model, KNOWN) and batch <= MOST_ROWS and on_cpu


def has_only(model: Transformer, known: Collection[type[nn.Module]]) -> bool:
    """Whether a model and its modules are of these classes, and compute what their classes say."""
    # A replaced forward pass, or one with hooks, must be called.
    return (
        type(model) is Transformer
        and not model.config.embedding_norm
        and all(
            type(module) in known
            and "forward" not in vars(module)
            and not module._forward_hooks | module._forward_pre_hooks
            for module in model.modules()
        )
    )


class DecodeStep:
    """One-token forward pass of a model; later changes of the model's weights have no effect."""

    def __init__(self, model: Transformer) -> None:
        """Prepare the weights (tall matrices are copied)."""
        self._model = model
        self._blocks = [_block(model, layer, block) for layer, block in enumerate(model.blocks)]
        self._final_norm = model.final_norm
        self._head = linear(model.head_weight, model.head_bias)

    def __call__(self, tokens: Int[Tensor, " batch"], cache: KVCache) -> Float[Tensor, "batch vocab"]:
        """The logits after one more token per row; the token is added to the cache.

        Args:
            tokens: ids.
            cache: a cache of this model with the earlier tokens and room for one more.
        """
        cache.reserve(len(tokens), 1)
        position = cache.length
        x = self._model.token_embedding.weight[tokens]
        placed = self._model.positions.embed(position, 1)
        if placed is not None:
            x = x + placed.to(x.dtype)
        for block in self._blocks:
            x = block(x, cache)
        cache.advance(1)
        return self._head(self._final_norm(x))


def _block(model: Transformer, layer: int, block: nn.Module) -> Callable[[Tensor, KVCache], Tensor]:
    """One block as a function of the residual stream [batch, d_model] and the cache."""
    assert isinstance(block, Block)
    attention = None if block.attn is None else _attention(model, layer, block.attn)
    mlp = None if block.mlp is None else block.sublayer("mlp", _feed_forward(block.mlp))

    def run(x: Tensor, cache: KVCache) -> Tensor:
        before = x
        if attention is not None:
            attend = attention
            x = block.sublayer("attn", lambda y: attend(y, cache))(x)
        return x if mlp is None else mlp(x, read=before if block.parallel else x)

    return run


def _attention(model: Transformer, layer: int, attention: MultiHeadAttention) -> Callable[[Tensor, KVCache], Tensor]:
    """One layer's attention from the newest position to itself and all cached positions."""
    weight, offset = attention.in_proj.weight, attention.in_proj.bias
    factors = torch.ones(sum(attention.widths), dtype=weight.dtype)
    factors[: attention.widths[0]] = attention.factors().expand(attention.num_heads, attention.d_head).flatten()
    project = linear(weight * factors[:, None], None if offset is None else offset * factors)
    gather = linear(attention.out_proj.weight, attention.out_proj.bias)
    to_keys, to_values, _ = accumulate(attention.widths)
    kv_heads, width, groups = attention.num_kv_heads, attention.d_head, attention.num_heads // attention.num_kv_heads
    reach = attention.mask.size if isinstance(attention.mask, Window) else None
    positions = model.positions

    def attend(x: Tensor, cache: KVCache) -> Tensor:
        now, heads = cache.length, len(x) * kv_heads
        y = project(x)
        q = y[:, :to_keys].reshape(heads, groups, width)
        k, v = y[:, to_keys:to_values].reshape(heads, width), y[:, to_values:].reshape(heads, width)
        if isinstance(positions, Rotary):
            q, k = (positions.rotate(each.unsqueeze(-2), now).squeeze(-2) for each in (q, k))
        keys, values = (kept[layer].view(heads, -1, width) for kept in (cache.keys, cache.values))
        keys[:, now], values[:, now] = k, v
        first = 0 if reach is None else max(0, now + 1 - reach)
        scores = torch.bmm(q, keys[:, first : now + 1].mT)
        bias = positions.bias(1, now + 1)
        if bias is not None:
            scores = scores + bias[:, 0, first:].view(kv_heads, groups, -1).repeat(len(x), 1, 1)
        z = torch.bmm(torch.softmax(scores, dim=-1), values[:, first : now + 1])
        return gather(z.view(len(x), -1))

    return attend


def _feed_forward(part: FeedForward) -> Map:
    activation = part.activation
    up, down = linear(part.up.weight, part.up.bias), linear(part.down.weight, part.down.bias)
    if part.gate is None:
        return lambda x: down(activation(up(x)))
    gate = linear(part.gate.weight, part.gate.bias)
    return lambda x: down(activation(gate(x)) * up(x))


def linear(weight: Float[Tensor, "out in"], bias: Float[Tensor, " out"] | None) -> Map:
    """The map x Wᵀ + b for one or a few rows x: it reads W once, fastest along the longer side of W."""
    laid = weight.mT if weight.shape[1] > weight.shape[0] else weight.mT.contiguous()
    return (lambda x: torch.mm(x, laid)) if bias is None else (lambda x: torch.addmm(bias, x, laid))
