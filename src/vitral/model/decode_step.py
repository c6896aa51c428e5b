"""One more token at a time: the model's forward laid out flat for one position of a few rows.

What a generated token costs is reading every weight once and calling some tens of operations. So the matrices are laid
out anew for products with one row, and split so that all threads read them at once; the calls go straight to the
operations, past the modules. Nothing else changes: `DecodeStep` equals `Transformer.forward` with the same cache, to
rounding.
"""

import math
from collections.abc import Callable
from functools import partial
from itertools import accumulate

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitral.attention.masks import Bidirectional, Causal, Prefix, Window
from vitral.attention.multihead import MultiHeadAttention
from vitral.attention.scales import GivenScale, LearnedScale
from vitral.model.block import Block
from vitral.model.cache import KVCache
from vitral.model.feedforward import FeedForward, SwiGLU
from vitral.model.positions import ALiBi, Learned, Positions, Relative, Rotary, Sinusoidal
from vitral.model.transformer import Transformer

Vectors = Float[Tensor, "batch width"]
Map = Callable[[Tensor], Tensor]

MOST_ROWS = 4
"""With more rows side by side the usual products are as good."""
SPLIT_FROM = 100_000
"""Matrices of at least so many numbers are read by all threads; for smaller ones waking them takes longer."""

KNOWN = {
    *(Transformer, Block, MultiHeadAttention, FeedForward, SwiGLU, GivenScale, LearnedScale),
    *(nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm, nn.Identity, nn.Dropout, nn.ModuleList),
    *(Positions, Learned, Sinusoidal, Rotary, ALiBi, Relative),
}
"""What a model is made of that `DecodeStep` knows; whatever else somebody has put in goes the usual way."""


def can_decode_step(model: Transformer, batch: int) -> bool:
    """Whether `DecodeStep` knows this model's parts and is faster with so many rows."""
    attention = model.config.attention
    known = attention == "none" or (
        isinstance(attention.mask, Causal | Bidirectional | Prefix | Window) and attention.scale != "adaptive"
    )
    # Whoever has replaced the forward pass, or hooked into it, is to see it.
    plain = type(model) is Transformer and all(
        type(module) in KNOWN
        and "forward" not in vars(module)
        and not module._forward_hooks | module._forward_pre_hooks
        for module in model.modules()
    )
    return known and plain and batch <= MOST_ROWS and model.token_embedding.weight.device.type == "cpu"


class DecodeStep:
    """A model ready to read single tokens; a change of its weights is not seen."""

    def __init__(self, model: Transformer) -> None:
        """Lay the weights out (those of wide matrices a second time)."""
        self._model = model
        self._blocks = [_block(model, layer, block) for layer, block in enumerate(model.blocks)]
        self._final_norm = _norm(model.final_norm)
        self._head = linear(model.head_weight, None)

    def __call__(self, tokens: Int[Tensor, " batch"], cache: KVCache) -> Float[Tensor, "batch vocab"]:
        """The logits after one more token in each row, which the cache then holds.

        Args:
            tokens: ids.
            cache: of this model, with room; it holds what came before.
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
    """One block as a function of the stream [batch, d_model] and the cache."""
    assert isinstance(block, Block)
    post, residual = model.config.norm == "post", model.config.residual
    parts: list[tuple[Map, Callable[[Tensor, KVCache], Tensor]]] = []
    if block.attn is not None and block.attn_norm is not None:
        parts.append((_norm(block.attn_norm), _attention(model, layer, block.attn)))
    if block.mlp is not None and block.mlp_norm is not None:
        think = _feed_forward(block.mlp)
        parts.append((_norm(block.mlp_norm), lambda x, _: think(x)))

    def run(x: Tensor, cache: KVCache) -> Tensor:
        for norm, part in parts:
            output = part(x if post else norm(x), cache)
            x = x + output if residual else output
            x = norm(x) if post else x
        return x

    return run


def _attention(model: Transformer, layer: int, attention: MultiHeadAttention) -> Callable[[Tensor, KVCache], Tensor]:
    """One layer's attention from the newest position to itself and all that the cache holds."""
    weight, offset = attention.in_proj.weight, attention.in_proj.bias
    factors = _factors(attention).to(weight)
    project = linear(weight * factors[:, None], None if offset is None else offset * factors)
    gather = linear(attention.out_proj.weight, attention.out_proj.bias)
    to_keys, to_values, _ = accumulate(attention.widths)
    kv_heads, width, groups = attention.num_kv_heads, attention.d_head, attention.num_heads // attention.num_kv_heads
    reach = attention.mask.size if isinstance(attention.mask, Window) else None
    positions = model.positions
    turns = positions.turns.to(weight.dtype) if isinstance(positions, Rotary) else None

    def attend(x: Tensor, cache: KVCache) -> Tensor:
        now, heads = cache.length, len(x) * kv_heads
        y = project(x)
        q = y[:, :to_keys].reshape(heads, groups, width)
        k, v = y[:, to_keys:to_values].reshape(heads, width), y[:, to_values:].reshape(heads, width)
        if turns is not None:
            q, k = _turned(q, turns[:, now]), _turned(k, turns[:, now])
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
    """What multiplies each row of `in_proj`: the scale for those of queries, which reaches the scores, else 1."""
    scale = attention.scale()
    named = {"none": 1.0, "sqrt": 1 / math.sqrt(attention.d_head), "linear": 1 / attention.d_head}
    factor = torch.as_tensor(named[scale] if isinstance(scale, str) else scale, dtype=torch.float64).detach()
    factors = torch.ones(sum(attention.widths), dtype=factor.dtype)
    factors[: attention.widths[0]] = factor.reshape(-1, 1).expand(attention.num_heads, attention.d_head).flatten()
    return factors


def _turned(x: Float[Tensor, "*any d_head"], turn: Float[Tensor, "2 d_head"]) -> Tensor:
    """As `Rotary.rotate`, for one position."""
    return torch.addcmul(x * turn[0], x.roll(x.shape[-1] // 2, dims=-1), turn[1])


def _feed_forward(part: FeedForward | SwiGLU) -> Map:
    up, down = linear(part.up.weight, part.up.bias), linear(part.down.weight, part.down.bias)
    if isinstance(part, FeedForward):
        activation = part.activation
        return lambda x: down(activation(up(x)))
    gate = linear(part.gate.weight, part.gate.bias)
    return lambda x: down(nn.functional.silu(gate(x)) * up(x))


def _norm(part: nn.Module) -> Map:
    """A norm as a call of its operation."""
    if isinstance(part, nn.LayerNorm):
        return partial(_layer_norm, list(part.normalized_shape), part.weight, part.bias, part.eps)
    return part.forward


def _layer_norm(shape: list[int], weight: Tensor, bias: Tensor | None, eps: float, x: Tensor) -> Tensor:
    return torch.layer_norm(x, shape, weight, bias, eps)


def linear(weight: Float[Tensor, "out in"], bias: Float[Tensor, " out"] | None) -> Map:
    """The map x Wᵀ + b for one or a few rows x, with W laid out for that.

    A product with one row reads W once. It does so fastest along the longer side of W; and only a batch of products is
    shared between threads, so a large W is cut into as many as there are.
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
