"""The recipe of a computation: embedding, attention, the block around it, the head after it.

A recipe is a sequence of lines; each line names a quantity and the quantities it is computed from. `follow` goes
through the lines and adds every quantity whose inputs are known. In worked examples the values are computed; a traced
pass has recorded them.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vitral.attention.masks import Mask
from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.explanation.operations import (
    Activate,
    Add,
    ApplyMask,
    Linear,
    Lookup,
    Normalise,
    Operation,
    Output,
    Project,
    Replace,
    Rotate,
    Scale,
    Score,
    Sinusoid,
    Softmax,
    Weigh,
)
from vitral.explanation.sheet import SheetQuantity, Values
from vitral.model.settings import ROTARY, RotaryConfig

HEADS = ("heads", "time", "d_head")
SQUARE = ("heads", "time", "source")
STREAM = ("time", "d_model")
HIDDEN = ("time", "d_ff")
LOGITS = ("time", "vocab")


@dataclass(frozen=True)
class Architecture:
    """The parts of a computation, without its numbers.

    Attributes:
        stream: name of the first quantity of the stream: "x" (attention alone), "resid_pre" (a block) or "embed".
        norm: "pre", "post" or "none"; None for attention alone.
        sublayers: of the block; "attn" and "mlp".
        residual: whether the block has residual connections.
        parallel: whether the feed-forward reads the stream before attention.
        mask: None if unknown.
        scale: its name, or a number; None if unknown.
        num_heads: query heads.
        d_k: width of a head, for computations that begin after q and k.
        bias: position bias of the scores, [heads, time, source].
        frequencies: of rotary positions, radians per position, one for each pair.
        rotation: of rotary positions.
        activation: of the feed-forward.
        norm_type: "layernorm" or "rmsnorm".
        epsilon: of the norms.
        final_norm: whether a norm follows the last block.
        tied: whether the head's matrix is the embedding.
        rows: the row of the embedding for each position.
        sinusoidal: whether the position embedding is sinusoidal.
        position_base: of the rates of its angles.
        position_halves: whether its sines stand before its cosines.
        first_position: number of its first position.
        softmax_base: of the exponentials in the weights of attention and in the probabilities.
        memory: whether keys and values are projected from `memory`, the states of an encoder.
    """

    stream: str = "x"
    norm: str | None = None
    sublayers: tuple[str, ...] = ("attn", "mlp")
    residual: bool = True
    parallel: bool = False
    mask: Mask | None = None
    scale: str | float | None = None
    num_heads: int = 1
    d_k: int | None = None
    bias: Tensor | None = None
    frequencies: Tensor | None = None
    rotation: RotaryConfig = ROTARY
    activation: str = "relu"
    norm_type: str = "layernorm"
    epsilon: float = 1e-5
    final_norm: bool = False
    tied: bool = False
    rows: tuple[int, ...] = ()
    sinusoidal: bool = False
    position_base: float = 10_000.0
    position_halves: bool = False
    first_position: int = 0
    softmax_base: float = math.e
    memory: bool = False


@dataclass(frozen=True)
class RecipeLine:
    """One line of a recipe.

    Attributes:
        name: the quantity.
        axes: names of its axes.
        needs: names of the operation's inputs.
        build: the operation, given the values known so far.
        takes: further inputs, used if they are known (biases).
        after: quantities that must be known but are not inputs.
    """

    name: str
    axes: tuple[str, ...]
    needs: tuple[str, ...]
    build: Callable[[Values], Operation]
    takes: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def follow(
    lines: Iterator[RecipeLine], values: dict[str, Tensor], recorded: Values | None = None
) -> tuple[SheetQuantity, ...]:
    """Add to `values` every quantity that the recipe can compute from them, and return these quantities.

    Args:
        lines: a recipe over the same `values`, in order.
        values: the given ones.
        recorded: values that are used instead of computing the quantity.

    Raises:
        UsageError: shapes that do not fit, a result that is not a number, or an unknown part of the architecture.
    """
    quantities: list[SheetQuantity] = []
    for line in lines:
        if line.name in values or not all(name in values for name in (*line.needs, *line.after)):
            continue
        inputs = (*line.needs, *(name for name in line.takes if name in values))
        quantity = SheetQuantity(line.name, line.axes, line.build(values), inputs)
        known = recorded is not None and line.name in recorded
        values[line.name] = recorded[line.name] if recorded and known else _computed(quantity, values)
        quantities.append(quantity)
    return tuple(quantities)


def _computed(quantity: SheetQuantity, values: Values) -> Tensor:
    name = quantity.name
    try:
        value = quantity.make(values)
    except UsageError:
        raise
    except (RuntimeError, ValueError):
        shapes = _(" and ").join(f"{each} {_shape(values[each])}" for each in quantity.inputs)
        raise UsageError(
            "{name} cannot be computed from {shapes}: the shapes do not fit", name=name, shapes=shapes
        ) from None
    if bool(value.isnan().any()):
        raise UsageError("{name}: a cell is not a number, as a norm of equal numbers with epsilon = 0", name=name)
    return value


def _shape(value: Tensor) -> str:
    return "[" + ", ".join(map(str, value.shape)) + "]"


def missing_for(name: str, lines: Mapping[str, RecipeLine], values: Values) -> str:
    """The first quantity that is not known on the way to `name`; empty if there is none."""
    if name in values:
        return ""
    if name not in lines:
        return name
    needs = (*lines[name].needs, *lines[name].after)
    return next((missing for each in needs if (missing := missing_for(each, lines, values))), "")


def recipe(architecture: Architecture, values: dict[str, Tensor]) -> Iterator[RecipeLine]:
    """The lines of a computation.

    Some lines depend on which quantities are known, so `values` is read again before each line. Missing gains of norms
    are added to it as ones, and a token embedding without position embedding as the stream.
    """
    parts, stream = architecture, architecture.stream
    yield from _embedding(parts, values)
    if parts.norm is None:
        yield from _attention(parts, values, stream)
        last = "out"
    else:
        yield from _block(parts, values)
        last = "final_norm" if "final_norm" in values else "resid_post"
    last = last if last in values else stream
    if parts.tied:
        yield RecipeLine("logits", LOGITS, (last, "embedding"), lambda _: Linear("E", last, tied=True))
    else:
        yield RecipeLine("logits", LOGITS, (last, "w_u"), lambda _: Linear("U", last), ("b_u",))
    yield RecipeLine("probabilities", LOGITS, ("logits",), lambda _: Softmax("logits", parts.softmax_base))


def _embedding(parts: Architecture, values: dict[str, Tensor]) -> Iterator[RecipeLine]:
    token, position = "token_embedding", "position_embedding"
    if parts.rows:
        yield RecipeLine(token, STREAM, ("embedding",), lambda _: Lookup(parts.rows))
    if parts.sinusoidal:
        yield RecipeLine(position, STREAM, (), lambda known: _sinusoid(parts, known[token]), after=(token,))
    if position in values:
        yield RecipeLine(parts.stream, STREAM, (token, position), lambda _: Add(token, position))
    elif token in values:
        values.setdefault(parts.stream, values[token])


def _sinusoid(parts: Architecture, token: Tensor) -> Sinusoid:
    time, width = token.shape
    return Sinusoid(time, width, parts.position_base, parts.position_halves, parts.first_position)


def _block(parts: Architecture, values: dict[str, Tensor]) -> Iterator[RecipeLine]:
    """One block: pre-norm, post-norm or without norms."""
    stream = parts.stream
    if "attn" in parts.sublayers:
        source = "attn_norm" if parts.norm == "pre" else stream
        yield from _norm(parts, values, "attn_norm", stream) if parts.norm == "pre" else ()
        yield from _attention(parts, values, source)
        yield from _after(parts, values, "attn", (stream, "out", "resid_mid"))
    elif stream in values:
        values.setdefault("resid_mid", values[stream])
    if "mlp" in parts.sublayers:
        read = stream if parts.parallel else "resid_mid"
        source = "mlp_norm" if parts.norm == "pre" else read
        yield from _norm(parts, values, "mlp_norm", read) if parts.norm == "pre" else ()
        yield from _feed_forward(parts, source)
        yield from _after(parts, values, "mlp", ("resid_mid", "mlp.out", "resid_post"))
    if parts.final_norm:
        yield from _norm(parts, values, "final_norm", "resid_post")


def _after(
    parts: Architecture, values: dict[str, Tensor], name: str, stream: tuple[str, str, str]
) -> Iterator[RecipeLine]:
    """The residual sum after a sublayer, and in post-norm the norm of the sum."""
    before, output, after = stream
    total = f"{name}_sum" if parts.norm == "post" else after
    if parts.residual:
        yield RecipeLine(total, STREAM, (before, output), lambda _: Add(before, output))
    else:
        yield RecipeLine(total, STREAM, (output,), lambda _: Replace(output))
    if parts.norm == "post":
        yield from _norm(parts, values, after, total, f"{name}_norm")


def _norm(
    parts: Architecture, values: dict[str, Tensor], name: str, source: str, norm: str = ""
) -> Iterator[RecipeLine]:
    gain, shift = f"{norm or name}_gain", f"{norm or name}_bias"
    if source in values:
        values.setdefault(gain, torch.ones_like(values[source][0]))
    takes = () if parts.norm_type == "rmsnorm" else (shift,)  # RMSNorm has no bias
    yield RecipeLine(name, STREAM, (source, gain), lambda _: Normalise(parts.norm_type, parts.epsilon, source), takes)


def _attention(parts: Architecture, values: dict[str, Tensor], source: str) -> Iterator[RecipeLine]:
    for name in "qkv":
        rotates = parts.frequencies is not None and name != "v"
        projected = f"{name}_pre" if rotates else name
        origin = "memory" if parts.memory and name != "q" else source
        axes = ("heads", "source", "d_head") if parts.memory and name != "q" else HEADS
        project = Project(name.upper(), origin)
        yield RecipeLine(projected, axes, (origin, f"w_{name}"), lambda _, made=project: made, (f"b_{name}",))
        if parts.frequencies is not None and rotates:
            rotate = Rotate(name, parts.frequencies, parts.rotation)
            yield RecipeLine(name, HEADS, (projected,), lambda _, made=rotate: made)
    yield RecipeLine("scores", SQUARE, ("q", "k"), lambda _: Score())
    # Without a scale, or without a mask, the computation ends before it.
    scale, mask = ("scale",) * (parts.scale is None), ("mask",) * (parts.mask is None)
    yield RecipeLine("scaled", SQUARE, ("scores",), lambda known: _scale(parts, known), after=scale)
    yield RecipeLine("masked", SQUARE, ("scaled",), lambda known: _masking(parts, known), after=mask)
    yield RecipeLine("weights", SQUARE, ("masked",), lambda _: Softmax("masked", parts.softmax_base))
    yield RecipeLine("z", HEADS, ("weights", "v"), lambda _: Weigh())
    if "b_o" in values and "w_o" not in values:
        raise UsageError('b_o: is added after w_o; give w_o too (w_o = "identity" changes nothing)')
    yield RecipeLine("out", STREAM, ("z",), lambda known: Output(len(known["z"]), "w_o" in known), ("w_o", "b_o"))


def _scale(parts: Architecture, values: Values) -> Scale:
    """The scale with its factor.

    Raises:
        UsageError: the width of a head or a learned factor is unknown.
    """
    kind, scores = parts.scale, values["scores"]
    assert kind is not None
    widths = [values[name].shape[-1] for name in ("q", "k") if name in values]
    d_head = widths[0] if widths else parts.d_k
    if kind in ("learned", "learned-per-head"):
        return Scale(kind, _factor(values, kind, len(scores)), d_head=d_head)
    if kind == "none" or not isinstance(kind, str):
        factor = torch.tensor(1.0 if kind == "none" else float(kind), dtype=torch.float64)
        return Scale("none" if kind == "none" else "number", factor, d_head=d_head)
    if d_head is None:
        raise UsageError(
            "d_k: the scale {kind!r} needs the width of a head; give q and k, or d_k under [given]", kind=kind
        )
    usual = 1 / d_head if kind == "linear" else 1 / math.sqrt(d_head)
    allowed = _allowed(parts, scores) if kind == "adaptive" else None
    return Scale(kind, torch.tensor(usual, dtype=torch.float64), allowed, d_head)


def _masking(parts: Architecture, values: Values) -> ApplyMask:
    return ApplyMask(_allowed(parts, values["scaled"]), parts.bias)


def _factor(values: Values, kind: str, num_heads: int) -> Tensor:
    if "factor" not in values:
        raise UsageError("factor: the scale {kind!r} needs the learned factor; give factor under [given]", kind=kind)
    factor = values["factor"].reshape(-1, 1, 1)
    expected = num_heads if kind == "learned-per-head" else 1
    if len(factor) != expected:
        raise UsageError(
            "factor: the scale {kind!r} needs {expected} of them, not {given}",
            kind=kind,
            expected=expected,
            given=len(factor),
        )
    return factor


def _allowed(parts: Architecture, scores: Tensor) -> Tensor:
    if parts.mask is None:
        raise UsageError('mask: is needed after the scaled scores; add mask = "causal" or "bidirectional"')
    time, source = scores.shape[-2:]
    return parts.mask.allowed(time, source).reshape(-1, time, source)[-len(scores) :]


def _feed_forward(parts: Architecture, source: str) -> Iterator[RecipeLine]:
    pre, gate = "mlp.pre", "mlp.gate"
    gated = parts.activation == "swiglu"
    if gated:
        yield RecipeLine(gate, HIDDEN, (source, "w_gate"), lambda _: Linear("gate", source), ("b_gate",))
    yield RecipeLine(pre, HIDDEN, (source, "w_up"), lambda _: Linear("up", source), ("b_up",))
    yield RecipeLine("mlp.hidden", HIDDEN, (pre, gate) if gated else (pre,), lambda _: Activate(parts.activation))
    yield RecipeLine("mlp.out", STREAM, ("mlp.hidden", "w_down"), lambda _: Linear("down", "mlp.hidden"), ("b_down",))
