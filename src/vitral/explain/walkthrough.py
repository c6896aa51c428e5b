"""A computation as numbered steps: one attention head on one text, every number the traced execution's own."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitral.attention.multihead import MultiHeadAttention, head_matrices
from vitral.core.errors import UsageError
from vitral.core.names import ATTENTION_STEPS
from vitral.data.tokenizers import Tokenizer
from vitral.explain.arithmetic import Arithmetic, dot, number, product, softmax_cell, weighted
from vitral.model import Transformer

MOST_POSITIONS = 10
"""Of a longer text the last this many positions are shown."""


@dataclass(frozen=True)
class Step:
    """One step of a computation.

    Attributes:
        name: as in `vitral.core.names`.
        title: what it is called.
        formula: how each number comes about.
        shapes: of what goes in and comes out, with the axis legend.
        sentence: what it means for this text.
        matrix: the numbers, [rows, columns]; rows and columns of positions not shown are left out.
        row_labels: one for each row.
        column_labels: one for each column.
        cell: row and column of the number whose arithmetic is written out, within `matrix`.
        arithmetic: how that number comes about.
    """

    name: str
    title: str
    formula: str
    shapes: str
    sentence: str
    matrix: tuple[tuple[float, ...], ...]
    row_labels: tuple[str, ...]
    column_labels: tuple[str, ...]
    cell: tuple[int, int]
    arithmetic: Arithmetic


@dataclass(frozen=True)
class Walkthrough:
    """Steps in order.

    Attributes:
        title: what is computed.
        intro: on what, and what is left out.
        steps: the computation.
    """

    title: str
    intro: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class _Scene:
    """What the steps are told from: the trace of one head, and the positions shown."""

    attention: MultiHeadAttention
    trace: dict[str, Tensor]
    head: int
    labels: tuple[str, ...]
    first: int
    ask: int
    seen: int
    turned: bool

    def of(self, name: str) -> Tensor:
        """An activation of the chosen head, [time, …] or [time, source]; keys and values of the group it shares."""
        value = self.trace[name][0]
        if name in ("k", "v"):
            return value[self.head // (self.attention.num_heads // self.attention.num_kv_heads)]
        return value if name == "out" else value[self.head]

    @property
    def asking(self) -> str:
        """The position whose row is worked out, for sentences."""
        return f"position {self.ask} ({self.labels[self.ask]})"

    @property
    def asked(self) -> str:
        """The position it is worked out against, for sentences."""
        return f"position {self.seen} ({self.labels[self.seen]})"


def walk_attention(
    model: Transformer,
    tokenizer: Tokenizer,
    text: str,
    *,
    layer: int = 0,
    head: int = 0,
    cell: tuple[int, int] | None = None,
) -> Walkthrough:
    """One head's attention on `text`, step by step, in the model's own numbers.

    Args:
        model: whose attention it is.
        tokenizer: the model's.
        text: what it reads.
        layer: which block, from 0.
        head: which head, from 0.
        cell: the query's and the key's position whose arithmetic is written out; the last query, and the key it
            weighs most, if None.

    Raises:
        UsageError: a text that is empty, too long or has unseen characters; a layer, head or cell that does not exist;
            a model without attention.
    """
    attention = _attention(model, layer, head)
    tokens = torch.from_numpy(tokenizer.encode(text))[None, :]
    time = tokens.shape[1]
    if not 1 <= time <= model.config.context_length:
        raise UsageError(f"explain: the text has {time} tokens, expected 1 to {model.config.context_length}")
    prefix = f"blocks.{layer}.attn."
    trace = _trace(model, attention, tokens.to(model.token_embedding.weight.device), prefix)
    ask, seen = cell or (time - 1, int(trace["weights"][0, head, time - 1].argmax()))
    if not (0 <= ask < time and 0 <= seen < time):
        raise UsageError(f"explain: cell ({ask}, {seen}) is outside the {time} positions of the text")
    labels = tuple(tokenizer.label(int(token)) for token in tokens[0])
    first = min(max(0, time - MOST_POSITIONS), ask, seen)
    rotary = model.config.positions == "rotary"
    scene = _Scene(attention, trace, head, labels, first, ask, seen, turned=rotary)
    left_out = f" Of its {time} positions those from {first} on are shown; all take part." if first else ""
    turned = " Queries and keys are shown after their turning by position." if rotary else ""
    intro = f"The model reads {text!r}; this is head {head} of block {layer}.{left_out}{turned}"
    steps = tuple(tell(scene) for tell in _STEPS)
    return Walkthrough(f"Attention in numbers: block {layer}, head {head}", intro, steps)


def _trace(model: Transformer, attention: MultiHeadAttention, tokens: Tensor, prefix: str) -> dict[str, Tensor]:
    """The steps of one block's attention, and as "x" what went into it, in float64 for writing out."""
    entered: list[Tensor] = []
    hook = attention.register_forward_pre_hook(lambda _, arguments: entered.append(arguments[0]))
    try:
        kept = model.trace(tokens, [prefix + step for step in ATTENTION_STEPS])
    finally:
        hook.remove()
    steps = {name.removeprefix(prefix): value for name, value in kept.items()}
    return {name: value.double().cpu() for name, value in {**steps, "x": entered[0]}.items()}


def _attention(model: Transformer, layer: int, head: int) -> MultiHeadAttention:
    if not 0 <= layer < len(model.blocks):
        raise UsageError(f"explain: no block {layer}; the model has {len(model.blocks)}, counted from 0")
    attention = model.blocks[layer].attn
    if not isinstance(attention, MultiHeadAttention):
        raise UsageError("explain: this model was made without attention")
    if not 0 <= head < attention.num_heads:
        raise UsageError(f"explain: no head {head}; a block has {attention.num_heads}, counted from 0")
    return attention


def _projection(scene: _Scene, name: str, row: int, sentence: str) -> Step:
    """Queries, keys or values: one vector per position."""
    values, attention = scene.of(name), scene.attention
    matrix = head_matrices(attention)[f"w_{name}"].detach().double().cpu()
    group = attention.num_heads // attention.num_kv_heads
    column = matrix[scene.head if name == "q" else scene.head // group][:, 0]
    told = dot(
        f"{name}[{row}, 0] = x[{row}] · W_{name.upper()}[:, 0] + b",
        scene.trace["x"][0, row],
        column,
        float(values[row, 0]),
    )
    if scene.turned and name != "v":
        told = Arithmetic(f"{name}[{row}, 0]", f"x[{row}] W_{name.upper()} + b, turned by its position", told.value)
    return Step(
        name=name,
        title=f"Projection: {_PROJECTED[name]}",
        formula=f"{name} = x W_{name.upper()} + b",
        shapes=f"[time, d_model] → [time, d_head] = [{values.shape[0]}, {values.shape[1]}]",
        sentence=sentence,
        arithmetic=told,
        **_cut(scene, values, (row, 0)),
    )


_PROJECTED = {"q": "queries", "k": "keys", "v": "values"}


def _query(scene: _Scene) -> Step:
    return _projection(scene, "q", scene.ask, "What each position looks for, as a vector.")


def _key(scene: _Scene) -> Step:
    return _projection(scene, "k", scene.seen, "What each position offers to be found by.")


def _value(scene: _Scene) -> Step:
    return _projection(scene, "v", scene.seen, "What each position hands over when it is found.")


def _scores(scene: _Scene) -> Step:
    i, j, value = _chosen(scene, "scores")
    agree = f"How well what {scene.asking} looks for agrees with what {scene.asked} offers: {number(value, 3)}."
    told = dot(f"scores[{i}, {j}] = q[{i}]·k[{j}]", scene.of("q")[i], scene.of("k")[j], value)
    return _square(scene, "scores", ("Scoring", "scores = q kᵀ"), agree, told)


def _scaled(scene: _Scene) -> Step:
    i, j, value = _chosen(scene, "scaled")
    score = float(scene.of("scores")[i, j])
    factor = value / score if score else float("nan")
    sentence = (
        f"The scores of {scene.asking} times {number(factor, 4)}; √d_k keeps their spread from growing with d_head."
    )
    told = product(f"scaled[{i}, {j}]", score, factor, value)
    return _square(scene, "scaled", ("Scaling", "scaled = scores · s"), sentence, told)


def _masked(scene: _Scene) -> Step:
    i, j, value = _chosen(scene, "masked")
    before, masked = float(scene.of("scaled")[i, j]), scene.of("masked")
    hidden = int(torch.isinf(masked[i]).sum())
    sentence = (
        f"−∞ stands where looking is not allowed; {scene.asking} may not see {hidden} of {masked.shape[1]} positions."
    )
    biased = f"{number(before, 4)} + bias {number(value - before, 4)}"
    working = "as before" if value == before else "not allowed" if value == float("-inf") else biased
    told = Arithmetic(f"masked[{i}, {j}]", working, value)
    return _square(scene, "masked", ("Masking", "masked = scaled + bias, −∞ where not allowed"), sentence, told)


def _weights(scene: _Scene) -> Step:
    i, j, share = _chosen(scene, "weights")
    sentence = (
        f"{scene.asking.capitalize()} takes {share:.1%} of what it gathers from {scene.asked}; a row adds up to one."
    )
    told = softmax_cell(f"weights[{i}, {j}]", scene.of("masked")[i], j, share)
    return _square(scene, "weights", ("Softmax", "weights = exp(masked) / Σ exp(masked), row by row"), sentence, told)


def _weighted(scene: _Scene) -> Step:
    weights, v, z, row = scene.of("weights"), scene.of("v"), scene.of("z"), scene.ask
    return Step(
        name="z",
        title="Weighting",
        formula="z = weights v",
        shapes=f"[time, d_head] = [{z.shape[0]}, {z.shape[1]}]",
        sentence=f"The mean of all values {scene.asking} may see, weighted by its row of weights.",
        arithmetic=weighted(f"z[{row}, 0] = Σ_j weights[{row}, j] · v[j, 0]", weights[row], v[:, 0], float(z[row, 0])),
        **_cut(scene, z, (row, 0)),
    )


def _out(scene: _Scene) -> Step:
    out, row, projection = scene.of("out"), scene.ask, scene.attention.out_proj
    heads = scene.trace["z"][0].transpose(0, 1).flatten(1)[row]
    told = dot(
        f"out[{row}, 0] = z of every head · W_O[:, 0] + b",
        heads,
        projection.weight[0].detach().double().cpu(),
        float(out[row, 0]),
    )
    return Step(
        name="out",
        title="Concatenation and output projection",
        formula="out = Concat(z of every head) W_O + b",
        shapes=f"[time, heads · d_head] → [time, d_model] = [{out.shape[0]}, {out.shape[1]}]",
        sentence=f"All {scene.attention.num_heads} heads side by side, mixed into what joins the residual stream.",
        arithmetic=told,
        **_cut(scene, out, (row, 0)),
    )


def _chosen(scene: _Scene, name: str) -> tuple[int, int, float]:
    """The cell that is worked out, and its number."""
    return scene.ask, scene.seen, float(scene.of(name)[scene.ask, scene.seen])


def _square(scene: _Scene, name: str, titles: tuple[str, str], sentence: str, told: Arithmetic) -> Step:
    """A step with a number for every query and key."""
    values = scene.of(name)
    cut = _cut(scene, values, (scene.ask, scene.seen), by_position=True)
    shapes = f"[time, source] = [{values.shape[0]}, {values.shape[1]}]"
    return Step(name, *titles, shapes=shapes, sentence=sentence, arithmetic=told, **cut)


def _cut(scene: _Scene, values: Tensor, cell: tuple[int, int], *, by_position: bool = False) -> dict[str, Any]:
    """A step's numbers, labels and cell, cut to the positions shown."""
    first = scene.first
    rows = tuple(f"{index} {label}" for index, label in enumerate(scene.labels))[first:]
    shown = values[first:, first:] if by_position else values[first:]
    return {
        "matrix": tuple(tuple(float(entry) for entry in row) for row in shown),
        "row_labels": rows,
        "column_labels": rows if by_position else tuple(str(column) for column in range(values.shape[1])),
        "cell": (cell[0] - first, cell[1] - first if by_position else cell[1]),
    }


_STEPS = (_query, _key, _value, _scores, _scaled, _masked, _weights, _weighted, _out)
