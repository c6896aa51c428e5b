"""The cost of a model, computed from its configuration: parameters, floating-point operations, bytes."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from vitral.attention.executions import PLAIN_UP_TO
from vitral.attention.scales import OwnScale
from vitral.core.parts import OwnPart
from vitral.model.config import ModelConfig, OwnFeedForward, OwnNorm, OwnPositions
from vitral.model.own_parts import own_shapes
from vitral.model.positions import KINDS
from vitral.model.recurrence import GATES

BYTES_FLOAT32 = 4
ENCODER = "encoder."
"""How the names of the encoder's tensors begin."""
LSTM_KEEPS = GATES + 3
"""Vectors of d_model numbers: gates, cell state, tanh of it, hidden state."""


@dataclass(frozen=True)
class ParameterRow:
    """One tensor of the parameter table.

    Attributes:
        part: the part of the model it belongs to.
        name: its name in the weights file.
        shape: its shape.
        formula: the count as a formula in the names of the configuration.
        count: the number of parameters.
    """

    part: str
    name: str
    shape: tuple[int, ...]
    formula: str
    count: int


@dataclass(frozen=True)
class Cost:
    """Operations and bytes of a model.

    Attributes:
        parameters: number of parameters, a tied head counted once.
        forward_flops: floating-point operations per token of a forward pass over a full context, the reading of a full
            source included.
        backward_flops: the same for a backward pass.
        weight_bytes: memory of the weights.
        gradient_bytes: memory of their gradients.
        optimizer_bytes: memory of the two averages of AdamW.
        activation_bytes: memory of the activations kept for the backward pass of one batch (an estimate).
        cache_bytes: memory of keys and values of one sequence of full context length and of a full source, or of an
            LSTM's state.
    """

    parameters: int
    forward_flops: int
    backward_flops: int
    weight_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    activation_bytes: int
    cache_bytes: int


def parameter_table(config: ModelConfig, vocab_size: int) -> list[ParameterRow]:
    """Every learned tensor, in the order of the computation, with its formula.

    The tensors of own parts are counted on what their factories make; their formulas are the products of their sizes.

    Raises:
        UsageError: an own part is not registered, or its factory failed.
    """
    rows = [_row("embedding", "token_embedding.weight", (vocab_size, config.d_model), "vocab · d_model")]
    rows += [] if config.encoder is None else _stack_rows(config.encoder, ENCODER)
    rows += _stack_rows(config)
    d, biases = config.d_model, config.biases
    if config.head_transform:
        rows += _linear_rows(
            "feed-forward", "head_transform.linear", (d, d), ("d_model", "d_model"), bias=biases.feed_forward
        )
        rows += _norm_rows(config, "norm", "head_transform.norm")
    outputs, axis = (config.num_labels, "num_labels") if config.num_labels else (vocab_size, "vocab")
    head = _linear_rows("head", "head", (outputs, d), (axis, "d_model"), bias=biases.head)
    return rows + head[config.tie_head :]


def _stack_rows(config: ModelConfig, scope: str = "") -> list[ParameterRow]:
    """The rows of positions, blocks and final norm: of the model itself, or of its encoder."""
    rows: list[ParameterRow] = []
    if isinstance(config.positions, OwnPositions):
        rows += _own_rows("positions", f"{scope}positions", config.positions, config)
    elif (kind := KINDS.get(str(config.positions))) and kind.formula:
        with torch.device("meta"):  # without memory
            learned = kind(config).named_parameters()
        formula = kind.formula.replace("context", "source") if scope else kind.formula
        rows += [_row(kind.part, f"{scope}positions.{name}", (*of.shape,), formula) for name, of in learned]
    rows += _norm_rows(config, "norm", f"{scope}embedding_norm") if config.embedding_norm else []
    for layer in range(config.num_layers):
        rows += _attention_rows(config, f"{scope}blocks.{layer}")
        rows += _recurrence_rows(config, f"{scope}blocks.{layer}")
        rows += [] if config.encoder is None else _attention_rows(config, f"blocks.{layer}", "cross")
        rows += _feed_forward_rows(config, f"{scope}blocks.{layer}")
    return rows + (_norm_rows(config, "final norm", f"{scope}final_norm") if config.has_final_norm else [])


def count_parameters(config: ModelConfig, vocab_size: int) -> int:
    """Number of parameters, a tied head counted once."""
    return sum(row.count for row in parameter_table(config, vocab_size))


def cost(config: ModelConfig, vocab_size: int, batch_size: int = 1) -> Cost:
    """Operations per token and bytes, in float32.

    A multiplication and an addition are two operations. Forward, per token: 2 for each entry of each matrix (Kaplan et
    al. 2020, table 1), those of own parts included, and 4 context_length · num_heads · d_head per layer for scores and
    weighting, since the full square is computed. An LSTM multiplies each of its matrices with one vector a token, so
    that its operations are those of its entries. The encoder, and the keys and values of cross-attention, cost the same
    for each token of the source; the head of labels works once. Backward: twice the forward pass.
    """
    rows = parameter_table(config, vocab_size)
    parameters = sum(row.count for row in rows)
    encoder, time, source = config.encoder, config.context_length, config.source_length or 0
    layers, attends = config.num_layers, config.attention != "none"
    head = config.d_model * ((config.num_labels or vocab_size) + (config.d_model if config.head_transform else 0))
    matrices = sum(row.count for row in rows if is_block_matrix(row) and "blocks." in row.name)
    of_source = sum(row.count for row in rows if is_block_matrix(row) and row.name.startswith(ENCODER))
    scores = layers * time * time if attends else 0
    keys_values = 2 * layers * config.kv_heads * config.d_head if attends else 0  # numbers of one token
    if encoder is not None:
        of_source += keys_values * config.d_model
        scores += layers * time * source + encoder.num_layers * source * source
    products = (matrices - of_source) * time + of_source * source + head * (1 if config.num_labels else time)
    forward = (2 * products + 4 * config.num_heads * config.d_head * scores) // time
    cached = keys_values * (time + source)
    if config.recurrence is not None:
        cached += 2 * layers * config.d_model  # hidden state and cell state
    kept = (kept_per_token(config) + 2 * vocab_size) * time  # logits and softmax
    kept += 0 if encoder is None else kept_per_token(encoder) * source + keys_values * source
    return Cost(
        parameters=parameters,
        forward_flops=forward,
        backward_flops=2 * forward,
        weight_bytes=BYTES_FLOAT32 * parameters,
        gradient_bytes=BYTES_FLOAT32 * parameters,
        optimizer_bytes=BYTES_FLOAT32 * 2 * parameters,
        activation_bytes=BYTES_FLOAT32 * batch_size * kept,
        cache_bytes=BYTES_FLOAT32 * cached,
    )


def is_block_matrix(row: ParameterRow) -> bool:
    """Whether this is a matrix from stream to stream, inside a block or before the head, which Muon moves."""
    return len(row.shape) == 2 and row.part in ("attention", "recurrence", "feed-forward", "norm")


def single_matrices(config: ModelConfig, rows: Iterable[ParameterRow]) -> Iterator[tuple[int, int]]:
    """Rows and columns of the single matrices in these tensors; q, k and v are stacked, as are the gates of an LSTM."""
    d_kv = config.kv_heads * config.d_head
    for row in rows:
        height, width = row.shape
        if row.part == "attention" and row.name.endswith("in_proj.weight"):
            parts = (config.num_heads * config.d_head, d_kv, d_kv)
        else:
            parts = (config.d_model,) * GATES if row.part == "recurrence" else (height,)
        for part in parts:
            yield part, width


def kept_per_token(config: ModelConfig) -> int:
    """Numbers kept for the backward pass, per token, without logits, and of an encoder-decoder without its encoder.

    Per block: attention keeps the stream, its norm, q, k, v and z (cross-attention no k and v); an LSTM the stream, its
    norm, four gates, the cell state, its tanh and the hidden state; the feed-forward keeps the stream, its norm, and
    the hidden layer before and after the activation (only after it for relu, and both factors too for swiglu); an own
    feed-forward is taken to keep as much as gelu. Without norms, stream and norm are one. Dropout keeps one mask per
    output and, on attention weights, num_heads numbers for each key twice. Parallel sublayers read one stream. The end
    of the model: stream and norm, and a head's transform its matrix's output, the activation and the norm.
    """
    d, dropout, block = config.d_model, config.dropout, 0
    inputs = d if config.norm == "none" else 2 * d
    if config.attention != "none":
        weights = 2 * config.num_heads * config.context_length if dropout.weights else 0
        block += (
            inputs
            + 2 * config.num_heads * config.d_head
            + 2 * config.kv_heads * config.d_head
            + weights
            + (d if dropout.attention else 0)
        )
    if config.encoder is not None:
        weights = 2 * config.num_heads * (config.source_length or 0) if dropout.weights else 0
        block += inputs + 2 * config.num_heads * config.d_head + weights + (d if dropout.attention else 0)
    if config.recurrence is not None:
        block += inputs + LSTM_KEEPS * d + (d if dropout.attention else 0)
    if config.feed_forward != "none":
        hidden = (2 if config.activation is None else config.activation.kept) * config.hidden_width
        block += inputs + hidden + (d if dropout.feed_forward else 0)
    block -= d * (1 if config.encoder is None else 2) if config.parallel else 0
    end = d * (1 + config.has_final_norm + bool(config.embedding_norm) + 3 * bool(config.head_transform))
    return end + (d if dropout.embedding else 0) + config.num_layers * block


def plain_weights_per_token(config: ModelConfig) -> int:
    """Attention weights kept per token where a CPU attends in bfloat16 by plain products; 0 where it is fused."""
    if config.attention == "none" or config.context_length > PLAIN_UP_TO:
        return 0
    return config.num_layers * config.num_heads * config.context_length


def _attention_rows(config: ModelConfig, block: str, part: str = "attn") -> list[ParameterRow]:
    if config.attention == "none":
        return []
    d, d_q, d_kv = config.d_model, config.num_heads * config.d_head, config.kv_heads * config.d_head
    narrow, wide = "d_model", "3 d_model" if d_kv == d else "(d_model + 2 num_kv_heads · d_head)"
    if d_q != d:
        narrow, wide = "num_heads · d_head", "(num_heads + 2 num_kv_heads) · d_head"
    rows = _norm_rows(config, "norm", f"{block}.{part}_norm") if config.norm != "none" else []
    name, biases = f"{block}.{part}", config.biases
    rows += _linear_rows("attention", f"{name}.in_proj", (d_q + 2 * d_kv, d), (wide, "d_model"), bias=biases.qkv)
    rows += _linear_rows("attention", f"{name}.out_proj", (d, d_q), ("d_model", narrow), bias=biases.output)
    learned = {"learned": (1, "1"), "learned-per-head": (config.num_heads, "num_heads")}
    if isinstance(config.attention.scale, OwnScale):
        rows += _own_rows("scale", f"{name}.scale", config.attention.scale, config.num_heads, config.d_head)
    elif config.attention.scale in learned:
        count, formula = learned[config.attention.scale]
        rows.append(_row("scale", f"{name}.scale.factor", (count, 1, 1), formula))
    return rows


def _recurrence_rows(config: ModelConfig, block: str) -> list[ParameterRow]:
    if config.recurrence is None:
        return []
    rows = _norm_rows(config, "norm", f"{block}.recurrence_norm") if config.norm != "none" else []
    name, wide, formula = f"{block}.recurrence.lstm", GATES * config.d_model, f"{GATES} d_model"
    for of in ("ih", "hh"):
        rows.append(_row("recurrence", f"{name}.weight_{of}_l0", (wide, config.d_model), f"{formula} · d_model"))
    if config.bias is True:
        rows += [_row("recurrence", f"{name}.bias_{of}_l0", (wide,), formula) for of in ("ih", "hh")]
    return rows


def _feed_forward_rows(config: ModelConfig, block: str) -> list[ParameterRow]:
    if config.feed_forward == "none":
        return []
    d, d_ff, bias = config.d_model, config.hidden_width, config.biases.feed_forward
    rows = _norm_rows(config, "norm", f"{block}.mlp_norm") if config.norm != "none" else []
    own = config.feed_forward
    if isinstance(own, OwnFeedForward) and own.part.kind == "feed_forward":
        return rows + _own_rows("feed-forward", f"{block}.mlp", own, config)
    if isinstance(own, OwnFeedForward):
        rows += _own_rows("feed-forward", f"{block}.mlp.activation", own)
    if config.activation is not None and config.activation.gated:
        rows += _linear_rows("feed-forward", f"{block}.mlp.gate", (d_ff, d), ("d_ff", "d_model"), bias=bias)
    rows += _linear_rows("feed-forward", f"{block}.mlp.up", (d_ff, d), ("d_ff", "d_model"), bias=bias)
    return rows + _linear_rows("feed-forward", f"{block}.mlp.down", (d, d_ff), ("d_model", "d_ff"), bias=bias)


def _linear_rows(
    part: str, name: str, shape: tuple[int, int], axes: tuple[str, str], *, bias: bool
) -> list[ParameterRow]:
    rows = [_row(part, f"{name}.weight", shape, f"{axes[0]} · {axes[1]}")]
    return [*rows, _row(part, f"{name}.bias", shape[:1], axes[0])] if bias else rows


def _norm_rows(config: ModelConfig, part: str, name: str) -> list[ParameterRow]:
    if isinstance(config.norm_type, OwnNorm):
        return _own_rows(part, name, config.norm_type, config.d_model)
    rows = [_row(part, f"{name}.weight", (config.d_model,), "d_model")]
    has_bias = config.biases.norm and config.norm_type == "layernorm"
    return [*rows, _row(part, f"{name}.bias", (config.d_model,), "d_model")] if has_bias else rows


def _own_rows(part: str, prefix: str, own: OwnPart, *given: object) -> list[ParameterRow]:
    return [
        _row(part, f"{prefix}.{name}", shape, " · ".join(map(str, shape)) or "1")
        for name, shape in own_shapes(own, *given).items()
    ]


def _row(part: str, name: str, shape: tuple[int, ...], formula: str) -> ParameterRow:
    return ParameterRow(part, name, shape, formula, math.prod(shape))
