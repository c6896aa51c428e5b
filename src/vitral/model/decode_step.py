"""A fast forward pass for one new token of a few sequences.

The cost of a generated token is reading every weight once and calling a few dozen operations. `DecodeStep` therefore
stores the matrices in a layout for products with one row, split so that all threads read them in parallel, and calls
the operations directly instead of the modules. Its results equal `Transformer.forward` with the same cache, up to
rounding.
"""

import math
from collections.abc import Callable, Collection
from functools import partial
from itertools import accumulate

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitral.attention.masks import Bidirectional, ByLayer, Causal, Prefix, Window
from vitral.attention.multihead import MultiHeadAttention
from vitral.attention.scales import GivenScale, LearnedScale
from vitral.core.dropout import Dropout
from vitral.model.block import Block, has_taps
from vitral.model.cache import KVCache
from vitral.model.feedforward import FeedForward, SwiGLU
from vitral.model.positions import ALiBi, Learned, Positions, Relative, Rotary, Sinusoidal
from vitral.model.transformer import Transformer

Vectors = Float[Tensor, "batch width"]
Map = Callable[[Tensor], Tensor]

MOST_ROWS = 4
"""With more rows the modules' products are as fast."""
SPLIT_FROM = 100_000
"""Matrices with at least this many entries are read by all threads; for smaller ones, waking threads takes longer."""

KNOWN = {
    *(Transformer, Block, MultiHeadAttention, FeedForward, SwiGLU, GivenScale, LearnedScale),
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
    return type(model) is Transformer and all(
        type(module) in known
        and "forward" not in vars(module)
        and not module._forward_hooks | module._forward_pre_hooks
        for module in model.modules()
    )


class DecodeStep:
    """One-token forward pass of a model; later changes of the model's weights have no effect."""

    def __init__(self, model: Transformer) -> None:
        """Prepare the weights (tall matrices are copied)."""
        self._model = model
        self._blocks = [_block(model, layer, block) for layer, block in enumerate(model.blocks)]
        self._final_norm = _norm(model.final_norm)
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
    post, residual, parallel = model.config.norm == "post", model.config.residual, block.parallel
    sublayers: list[tuple[Map, Callable[[Tensor, KVCache], Tensor]]] = []
    if block.attn is not None and block.attn_norm is not None:
        sublayers.append((_norm(block.attn_norm), _attention(model, layer, block.attn)))
    if block.mlp is not None and block.mlp_norm is not None:
        assert isinstance(block.mlp, FeedForward | SwiGLU)
        feed_forward = _feed_forward(block.mlp)
        sublayers.append((_norm(block.mlp_norm), lambda x, _: feed_forward(x)))

    def run(x: Tensor, cache: KVCache) -> Tensor:
        before = x
        for norm, sublayer in sublayers:
            output = sublayer(x if post else norm(before if parallel else x), cache)
            x = x + output if residual else output
            x = norm(x) if post else x
        return x

    return run


def _attention(model: Transformer, layer: int, attention: MultiHeadAttention) -> Callable[[Tensor, KVCache], Tensor]:
    """One layer's attention from the newest position to itself and all cached positions."""
    weight, offset = attention.in_proj.weight, attention.in_proj.bias
    factors = _factors(attention).to(weight)
    project = linear(weight * factors[:, None], None if offset is None else offset * factors)
    gather = linear(attention.out_proj.weight, attention.out_proj.bias)
    to_keys, to_values, _ = accumulate(attention.widths)
    kv_heads, width, groups = attention.num_kv_heads, attention.d_head, attention.num_heads // attention.num_kv_heads
    reach = attention.mask.size if isinstance(attention.mask, Window) else None
    positions = model.positions
    rotary = positions if isinstance(positions, Rotary) else None
    turns = None if rotary is None else rotary.turns.to(weight.dtype)

    def attend(x: Tensor, cache: KVCache) -> Tensor:
        now, heads = cache.length, len(x) * kv_heads
        y = project(x)
        q = y[:, :to_keys].reshape(heads, groups, width)
        k, v = y[:, to_keys:to_values].reshape(heads, width), y[:, to_values:].reshape(heads, width)
        if rotary is not None and turns is not None:
            q, k = _rotated(rotary, q, turns[:, now]), _rotated(rotary, k, turns[:, now])
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


def _factors(attention: MultiHeadAttention) -> Float[Tensor, " width"]:
    """The factor of each row of `in_proj`: the scale for query rows (it carries over to the scores), else 1."""
    scale = attention.scale()
    named = {"none": 1.0, "sqrt": 1 / math.sqrt(attention.d_head), "linear": 1 / attention.d_head}
    factor = torch.as_tensor(named[scale] if isinstance(scale, str) else scale, dtype=torch.float64).detach()
    factors = torch.ones(sum(attention.widths), dtype=factor.dtype)
    factors[: attention.widths[0]] = factor.reshape(-1, 1).expand(attention.num_heads, attention.d_head).flatten()
    return factors


def _rotated(rotary: Rotary, x: Float[Tensor, "*any d_head"], turn: Float[Tensor, "2 d_head"]) -> Tensor:
    """`Rotary.rotate` for one position."""
    # Of one position, rolling is faster than the two halves of `Rotary.swapped`.
    swapped = x.roll(x.shape[-1] // 2, dims=-1) if rotary.partner is None else rotary.swapped(x)
    return torch.addcmul(x * turn[0], swapped, turn[1])


def _feed_forward(part: FeedForward | SwiGLU) -> Map:
    up, down = linear(part.up.weight, part.up.bias), linear(part.down.weight, part.down.bias)
    if isinstance(part, FeedForward):
        activation = part.activation
        return lambda x: down(activation(up(x)))
    gate = linear(part.gate.weight, part.gate.bias)
    return lambda x: down(nn.functional.silu(gate(x)) * up(x))


def _norm(part: nn.Module) -> Map:
    if isinstance(part, nn.LayerNorm):
        return partial(_layer_norm, list(part.normalized_shape), part.weight, part.bias, part.eps)
    return part.forward


def _layer_norm(shape: list[int], weight: Tensor, bias: Tensor | None, eps: float, x: Tensor) -> Tensor:
    return torch.layer_norm(x, shape, weight, bias, eps)


def linear(weight: Float[Tensor, "out in"], bias: Float[Tensor, " out"] | None) -> Map:
    """The map x Wᵀ + b for one or a few rows x.

    A product with one row reads W once, fastest along the longer side of W. Only batched products run on several
    threads, so a large W is split into one matrix per thread.
    """
    rows, columns = weight.shape
    threads = torch.get_num_threads()
    wide = columns > rows
    if weight.numel() < SPLIT_FROM or threads == 1 or rows % threads:
        laid = weight.mT if wide else weight.mT.contiguous()
        return (lambda x: torch.mm(x, laid)) if bias is None else (lambda x: torch.addmm(bias, x, laid))
    pieces = weight.view(threads, rows // threads, columns).mT
    split = pieces if wide else pieces.contiguous()
    biases = None if bias is None else bias.view(threads, 1, rows // threads)

    def multiply(x: Tensor) -> Tensor:
        each = x.expand(threads, *x.shape)
        made = torch.bmm(each, split) if biases is None else torch.baddbmm(biases, each, split)
        return made.transpose(0, 1).reshape(len(x), rows)

    return multiply
