"""One head's attention on one text, traced: everything the steps of a walkthrough are told from."""

from dataclasses import dataclass

import torch
from torch import Tensor

from vitral.attention.multihead import MultiHeadAttention
from vitral.attention.scales import factor_of
from vitral.core.errors import UsageError
from vitral.core.names import ATTENTION_STEPS
from vitral.data.tokenizers import Tokenizer
from vitral.model import Transformer
from vitral.model.positions import Rotary


@dataclass(frozen=True)
class Projection:
    """Where a head's queries, keys or values come from.

    Attributes:
        weight: the head's rows of the matrix, as PyTorch stores them, [d_head, d_model].
        bias: [d_head], or None where the model has none.
        before: what the matrix gives, before any turning by position, [time, d_head].
    """

    weight: Tensor
    bias: Tensor | None
    before: Tensor


@dataclass(frozen=True)
class Scene:
    """The trace of one head. All tensors are float64 on the CPU, so that every number of the model is kept exactly.

    Attributes:
        text: what the model read.
        labels: its tokens, made visible.
        layer: which block.
        head: which query head.
        attention: the block's attention.
        scale: as the configuration names it.
        positions: as the configuration names them.
        ask: position of the query that is worked out.
        seen: position of the key it is worked out with.
        x: what attention is given, [time, d_model].
        projections: of "q", "k" and "v".
        steps: by the names of `ATTENTION_STEPS`; of the head alone, but for "out", which is of all.
        side_by_side: the weighted values of all heads, [time, heads * d_head].
        factor: what the worked-out score is multiplied with.
        bias: what the model adds to the head's scaled scores, [time, source], or None.
        frequencies: of rotary's turning, [d_head / 2] in radians per position, or None.
    """

    text: str
    labels: tuple[str, ...]
    layer: int
    head: int
    attention: MultiHeadAttention
    scale: str | float
    positions: str
    ask: int
    seen: int
    x: Tensor
    projections: dict[str, Projection]
    steps: dict[str, Tensor]
    side_by_side: Tensor
    factor: float
    bias: Tensor | None
    frequencies: Tensor | None

    def name(self, position: int) -> str:
        """A position with its token, for sentences."""
        return f"position {position} ({self.labels[position]})"

    def other(self, when_same: str = "the same position") -> str:
        """The position of the key that is worked out, for sentences that have named the query's."""
        return when_same if self.seen == self.ask else self.name(self.seen)

    @property
    def sharing(self) -> range:
        """The query heads that share this head's keys and values."""
        group = self.attention.num_heads // self.attention.num_kv_heads
        first = self.head // group * group
        return range(first, first + group)


def set_scene(
    model: Transformer, tokenizer: Tokenizer, text: str, layer: int, head: int, cell: tuple[int, int] | None
) -> Scene:
    """Trace the model on the text, in evaluation mode, and keep what belongs to one head.

    Raises:
        UsageError: see `vitral.explain.walk_attention`.
    """
    attention = _attention(model, layer, head)
    tokens = _tokens(model, tokenizer, text)
    trace, x, projected = _trace(model, attention, tokens, layer)
    time = tokens.shape[1]
    group = head // (attention.num_heads // attention.num_kv_heads)
    place = dict.fromkeys(ATTENTION_STEPS, head) | {"k": group, "v": group}
    of_head = {name: value[0] if name == "out" else value[0, place[name]] for name, value in trace.items()}
    ask, seen = (time - 1, int(of_head["weights"][-1].argmax())) if cell is None else cell
    if not (0 <= ask < time and 0 <= seen < time):
        raise UsageError(f"explain: cell ({ask}, {seen}) is outside the text's {time} positions, counted from 0")
    with torch.inference_mode():
        bias = model.positions.bias(time, time)
    scale = model.config.attention.scale if model.config.attention != "none" else "none"
    rotary = model.positions if isinstance(model.positions, Rotary) else None
    return Scene(
        text=text,
        labels=tuple(tokenizer.label(int(token)) for token in tokens[0]),
        layer=layer,
        head=head,
        attention=attention,
        scale=scale,
        positions=model.config.positions,
        ask=ask,
        seen=seen,
        x=_exact(x),
        projections=_projections(attention, projected, head, group),
        steps={name: _exact(value) for name, value in of_head.items()},
        side_by_side=_exact(trace["z"][0].transpose(0, 1).flatten(1)),
        factor=float(_factors(attention, trace)[head, ask]),
        bias=None if bias is None else _exact(bias[head].to(x.dtype)),
        frequencies=None if rotary is None else _exact(rotary.frequencies),
    )


def _attention(model: Transformer, layer: int, head: int) -> MultiHeadAttention:
    if model.config.attention == "none":
        raise UsageError("explain: this model was made without attention, there is nothing to walk through")
    if not 0 <= layer < len(model.blocks):
        raise UsageError(f"explain: no block {layer}; the model has {len(model.blocks)}, counted from 0")
    attention = model.blocks[layer].attn
    assert isinstance(attention, MultiHeadAttention)
    if not 0 <= head < attention.num_heads:
        raise UsageError(f"explain: no head {head}; a block has {attention.num_heads}, counted from 0")
    return attention


def _tokens(model: Transformer, tokenizer: Tokenizer, text: str) -> Tensor:
    """The text as a batch of one, [1, time], on the model's device."""
    ids = torch.from_numpy(tokenizer.encode(text))[None, :]
    time, limit = ids.shape[1], model.config.context_length
    if not time:
        raise UsageError("explain: the text is empty; give at least one character")
    if time > limit:
        raise UsageError(f"explain: the text has {time} tokens, but the model's context holds {limit}; shorten it")
    return ids.to(model.token_embedding.weight.device)


def _trace(
    model: Transformer, attention: MultiHeadAttention, tokens: Tensor, layer: int
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """The steps of a block's attention, each with its batch of one; its input and all its projections, without."""
    around: list[tuple[Tensor, Tensor]] = []

    def keep(_: torch.nn.Module, arguments: tuple[Tensor, ...], result: Tensor) -> None:
        around.append((arguments[0][0], result[0]))

    prefix, training = f"blocks.{layer}.attn.", model.training
    hook = attention.in_proj.register_forward_hook(keep)
    try:
        kept = model.eval().trace(tokens, [prefix + step for step in ATTENTION_STEPS])
    finally:
        hook.remove()
        model.train(training)
    [(x, projected)] = around
    return {name.removeprefix(prefix): value for name, value in kept.items()}, x, projected


def _projections(attention: MultiHeadAttention, projected: Tensor, head: int, group: int) -> dict[str, Projection]:
    """The head's share of the one matrix that makes queries, keys and values."""
    heads, kv_heads, d_head = attention.num_heads, attention.num_kv_heads, attention.d_head
    places = {"q": head, "k": heads + group, "v": heads + kv_heads + group}
    made = {}
    for name, place in places.items():
        rows = slice(place * d_head, (place + 1) * d_head)
        weight, bias = attention.in_proj.weight[rows], attention.in_proj.bias
        before = _exact(projected[:, rows])
        made[name] = Projection(_exact(weight), None if bias is None else _exact(bias[rows]), before)
    return made


def _factors(attention: MultiHeadAttention, trace: dict[str, Tensor]) -> Tensor:
    """What multiplied the scores of each head and query, [heads, time], asked of the scale itself."""
    q, k = trace["q"], trace["k"].repeat_interleave(attention.num_heads // attention.num_kv_heads, dim=1)
    time = q.shape[2]
    with torch.inference_mode():
        factor = factor_of(attention.scale(), q, k, attention.mask.allowed(time, time, q.device))
    exact = _exact(factor) if isinstance(factor, Tensor) else torch.tensor(factor, dtype=torch.float64)
    return exact.expand(1, attention.num_heads, time, 1)[0, :, :, 0]


def _exact(value: Tensor) -> Tensor:
    return value.detach().cpu().double()
