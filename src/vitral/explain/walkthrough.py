"""A computation as numbered steps: one attention head on one text, every number the traced execution's own."""

import math
from dataclasses import dataclass

from torch import Tensor

from vitral.data.tokenizers import Tokenizer
from vitral.explain.arithmetic import Arithmetic, Exponentials, Sum, dot, number
from vitral.explain.scene import Scene, set_scene
from vitral.model import Transformer

DIGITS = 3
"""Of numbers inside sentences."""


@dataclass(frozen=True)
class Step:
    """One step of a computation. It holds all its numbers; how many of them are shown is up to whoever shows them.

    Attributes:
        name: as in `vitral.core.names`.
        title: what it is called.
        formula: how each number comes about.
        shapes: of what goes in and comes out, with the names of the axes.
        sentence: what it means for this text.
        matrix: the numbers, [rows, columns].
        row_labels: one for each row.
        column_labels: one for each column; the same as `row_labels` where both are positions.
        cell: row and column of the number whose arithmetic is written out.
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
        intro: on what, and how to read it.
        steps: the computation.
    """

    title: str
    intro: str
    steps: tuple[Step, ...]


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

    The model is traced as it is used, in evaluation mode, and left in the mode it was in.

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
    scene = set_scene(model, tokenizer, text, layer, head, cell)
    intro = (
        f"The model reads {text!r}, {_count(len(scene.labels), 'position')} counted from 0; this is head {head} of "
        f"block {layer}. Worked out below: how {scene.name(scene.ask)} asks and {scene.other()} answers."
    )
    steps = (
        *(_projection(scene, name) for name in _PROJECTED),
        _scores(scene),
        _scaled(scene),
        _masked(scene),
        _weights(scene),
        _z(scene),
        _out(scene),
    )
    return Walkthrough(f"Attention in numbers: block {layer}, head {head}", intro, steps)


_PROJECTED = {
    "q": ("queries", "Row {row} is what {position} looks for: its question to every position it may see."),
    "k": ("keys", "Row {row} is what {position} offers: a query that points the same way scores high on it."),
    "v": ("values", "Row {row} is what {position} hands over to those that look at it."),
}


def _projection(scene: Scene, name: str) -> Step:
    """Queries, keys or values: one vector per position."""
    title, sentence = _PROJECTED[name]
    row = scene.ask if name == "q" else scene.seen
    turned = scene.frequencies is not None and name != "v"
    sentence = sentence.format(row=row, position=scene.name(row))
    if name != "q" and len(scene.sharing) > 1:
        first, last = scene.sharing[0], scene.sharing[-1]
        sentence += f" Heads {first} {'and' if last == first + 1 else 'to'} {last} share these {title}."
    if turned:
        sentence += f" The {title} are shown after turning: the further on a position, the wider its angle."
    values, matrix = scene.steps[name], f"W_{name.upper()}"
    linear = f"x {matrix} + b" if scene.projections[name].bias is not None else f"x {matrix}"
    return Step(
        name=name,
        title=f"Projection: {title}",
        formula=f"{name} = turn({linear}, position)" if turned else f"{name} = {linear}",
        shapes=f"[time, d_model] → [time, d_head]: {_shape(scene.x)} → {_shape(values)}",
        sentence=sentence,
        matrix=_numbers(values),
        row_labels=_positions(scene),
        column_labels=_features(values),
        cell=(row, 0),
        arithmetic=_turning(scene, name, row) if turned else _product(scene, name, row),
    )


def _product(scene: Scene, name: str, row: int) -> Arithmetic:
    """A projection's first column, as the matrix makes it."""
    projection, bias = scene.projections[name], scene.projections[name].bias
    rule, extra = f"x[{row}] · W_{name.upper()}[:, 0]", ()
    if bias is not None:
        rule, extra = f"{rule} + b[0]", (float(bias[0]),)
    working = dot(scene.x[row], projection.weight[0], *extra)
    return Arithmetic(f"{name}[{row}, 0]", rule, working, float(scene.steps[name][row, 0]))


def _turning(scene: Scene, name: str, row: int) -> Arithmetic:
    """A rotary query's or key's first column: it turns together with the first of the second half."""
    before = scene.projections[name].before[row]
    half = len(before) // 2
    assert scene.frequencies is not None
    angle = row * float(scene.frequencies[0])
    first, second = float(before[0]), float(before[half])
    rule = f"u[0]·cos {angle:g} − u[{half}]·sin {angle:g}, u = {name}[{row}] before turning"
    working = Sum(((first, math.cos(angle)), (second, -math.sin(angle))))
    return Arithmetic(f"{name}[{row}, 0]", rule, working, float(scene.steps[name][row, 0]))


def _scores(scene: Scene) -> Step:
    i, j, value = _chosen(scene, "scores")
    agrees = "points the same way as" if value > 0 else "points away from" if value < 0 else "is at right angles to"
    sentence = (
        f"What {scene.name(i)} looks for {agrees} what {scene.other()} offers: their dot product is "
        f"{number(value, DIGITS)}."
    )
    told = Arithmetic(f"scores[{i}, {j}]", f"q[{i}] · k[{j}]", dot(scene.steps["q"][i], scene.steps["k"][j]), value)
    return _square(scene, "scores", "Scoring", "scores = q kᵀ", sentence, told)


_SCALES = {
    "none": ("1", "This model does not scale: the scores go on as they are."),
    "sqrt": ("1/√d_k", "1/√d_k = 1/√{d_head} = {factor} keeps the scores' spread from growing with the head's width."),
    "linear": ("1/d_k", "1/d_k = 1/{d_head} = {factor} makes of each score a mean over the head's columns."),
    "adaptive": (
        "1/σ of the row",
        "{asking} multiplies its scores by {factor}: 1/σ of those it may see (1/√d_k where that is one alone, or all "
        "are equal).",
    ),
    "learned": ("a learned factor", "The model has learned to multiply by {factor}; it began with 1/√d_k = {usual}."),
    "learned-per-head": (
        "the head's learned factor",
        "This head has learned to multiply by {factor}; it began with 1/√d_k = {usual}.",
    ),
}
_GIVEN = ("a given factor", "The configuration says to multiply every score by {factor}.")


def _scaled(scene: Scene) -> Step:
    i, j, value = _chosen(scene, "scaled")
    d_head = scene.attention.d_head
    factor, sentence = _SCALES.get(str(scene.scale), _GIVEN)
    sentence = sentence.format(
        d_head=d_head,
        factor=number(scene.factor, DIGITS),
        usual=number(1 / math.sqrt(d_head), DIGITS),
        asking=_begin(scene.name(i)),
    )
    working = Sum(((float(scene.steps["scores"][i, j]), scene.factor),))
    told = Arithmetic(f"scaled[{i}, {j}]", f"scores[{i}, {j}] · s", working, value)
    return _square(scene, "scaled", "Scaling", f"scaled = scores · s, s = {factor}", sentence, told)


_BIASES = {"alibi": "ALiBi's penalty", "relative": "the bias this head has learned"}


def _masked(scene: Scene) -> Step:
    i, j, value = _chosen(scene, "masked")
    time = len(scene.labels)
    hidden = int((scene.steps["masked"][i] == -math.inf).sum())
    sees = f"{time - hidden} of {_count(time, 'position')}" if hidden else f"all {time}" if time > 1 else "itself alone"
    sentence = f"{_begin(scene.name(i))} may see {sees}."
    if hidden:
        sentence += " −∞ stands where it may not look."
    terms, rule, formula = [(float(scene.steps["scaled"][i, j]),)], f"scaled[{i}, {j}]", "masked = scaled"
    if scene.bias is not None:
        bias = float(scene.bias[i, j])
        kind = _BIASES[scene.positions]
        sentence += f" For a distance of {abs(i - j)}, {kind} adds {number(bias, DIGITS)}."
        terms, rule, formula = [*terms, (bias,)], f"{rule} + bias[{i}, {j}]", f"{formula} + bias"
    if value == -math.inf:
        terms, rule = [*terms, (value,)], f"{rule} − ∞, not allowed"
    told = Arithmetic(f"masked[{i}, {j}]", rule, Sum(tuple(terms)), value)
    return _square(scene, "masked", "Masking", f"{formula}, −∞ where looking is not allowed", sentence, told)


def _weights(scene: Scene) -> Step:
    i, j, share = _chosen(scene, "weights")
    row = scene.steps["masked"][i]
    taken = "nothing" if row[j] == -math.inf else f"{share:.1%} of what it gathers"
    sentence = f"{_begin(scene.name(i))} takes {taken} from {scene.other('itself')}; each row adds up to one."
    working = Exponentials(float(row[j]), tuple(map(float, row)))
    rule = f"exp(masked[{i}, {j}] − m) / Σ_j exp(masked[{i}, j] − m), m = the row's largest"
    told = Arithmetic(f"weights[{i}, {j}]", rule, working, share)
    return _square(scene, "weights", "Softmax", "weights = exp(masked) / Σ exp(masked), row by row", sentence, told)


def _z(scene: Scene) -> Step:
    """The weighted values; keys of weight zero add nothing, and are not written."""
    weights, v, z, row = scene.steps["weights"], scene.steps["v"], scene.steps["z"], scene.ask
    order = [int(j) for j in weights[row].argsort(descending=True, stable=True) if weights[row, j] > 0]
    met = "itself alone" if order == [row] else _count(len(order), "position")
    sentence = f"{_begin(scene.name(row))} gathers the values of {met}, each by its weight."
    return Step(
        name="z",
        title="Weighting",
        formula="z = weights v",
        shapes=f"[time, source] · [source, d_head] → [time, d_head]: {_shape(weights)} · {_shape(v)} → {_shape(z)}",
        sentence=sentence,
        matrix=_numbers(z),
        row_labels=_positions(scene),
        column_labels=_features(z),
        cell=(row, 0),
        arithmetic=Arithmetic(
            f"z[{row}, 0]",
            f"Σ_j weights[{row}, j]·v[j, 0], largest weights first" if len(order) > 1 else f"weights[{row}]·v[:, 0]",
            dot(weights[row, order], v[order, 0]),
            float(z[row, 0]),
        ),
    )


def _out(scene: Scene) -> Step:
    out, row, projection, num_heads = scene.steps["out"], scene.ask, scene.attention.out_proj, scene.attention.num_heads
    weight, bias = projection.weight.detach().cpu().double(), projection.bias
    together = f"Concat(z of {_count(num_heads, 'head')})" if num_heads > 1 else "z"
    rule, extra = f"{together}[{row}] · W_O[:, 0]", ()
    if bias is not None:
        rule, extra = f"{rule} + b[0]", (float(bias.detach()[0]),)
    heads = f"The {num_heads} heads side by side are" if num_heads > 1 else "The one head's z is"
    return Step(
        name="out",
        title="Concatenation and output projection",
        formula=f"out = {together} W_O + b" if extra else f"out = {together} W_O",
        shapes=f"[time, heads · d_head] → [time, d_model]: {_shape(scene.side_by_side)} → {_shape(out)}",
        sentence=f"{heads} mixed by W_O into what {scene.name(row)} takes away from this block's attention.",
        matrix=_numbers(out),
        row_labels=_positions(scene),
        column_labels=_features(out),
        cell=(row, 0),
        arithmetic=Arithmetic(
            f"out[{row}, 0]", rule, dot(scene.side_by_side[row], weight[0], *extra), float(out[row, 0])
        ),
    )


def _square(scene: Scene, name: str, title: str, formula: str, sentence: str, told: Arithmetic) -> Step:
    """A step with a number for every query and key."""
    values, labels = scene.steps[name], _positions(scene)
    shapes = f"[time, source]: {_shape(values)}"
    cell = (scene.ask, scene.seen)
    return Step(name, title, formula, shapes, sentence, _numbers(values), labels, labels, cell, told)


def _chosen(scene: Scene, name: str) -> tuple[int, int, float]:
    """The query and the key that are worked out, and their number."""
    return scene.ask, scene.seen, float(scene.steps[name][scene.ask, scene.seen])


def _numbers(values: Tensor) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in values.tolist())


def _positions(scene: Scene) -> tuple[str, ...]:
    return tuple(f"{index} {label}" for index, label in enumerate(scene.labels))


def _features(values: Tensor) -> tuple[str, ...]:
    return tuple(str(column) for column in range(values.shape[1]))


def _shape(values: Tensor) -> str:
    return f"[{values.shape[0]}, {values.shape[1]}]"


def _count(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def _begin(words: str) -> str:
    """The words at the beginning of a sentence; a token's own letters stay as they are."""
    return words[:1].upper() + words[1:]
