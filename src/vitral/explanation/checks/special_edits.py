"""Edits that only one operation has: other masks and scales, the heads put together otherwise, positions, choices."""

import math
from collections.abc import Iterator, Sequence
from functools import singledispatch

import torch
from torch import Tensor

from vitral.explanation.checks.edits import HIDDEN, Edit
from vitral.explanation.expressions.tree import Call, Constant, Reference, Tree
from vitral.explanation.operations import (
    Add,
    ApplyMask,
    Normalise,
    Operation,
    Output,
    Scale,
    Score,
    Sinusoid,
    Softmax,
    Weigh,
)
from vitral.explanation.operations.decoding import Filtered, Greedy
from vitral.explanation.sheet import Values


@singledispatch
def special_edits(operation: Operation, inputs: Sequence[str], values: Values) -> Iterator[Edit]:
    """The edits of one operation beside the general ones; none by default."""
    yield from ()


@special_edits.register
def _(operation: Scale, inputs: Sequence[str], values: Values) -> Iterator[Edit]:
    """Other widths, roots forgotten, multiplied in place of divided."""
    scores = Reference(inputs[0])
    usual = float(operation.factor.flatten()[0])
    widths = {"d_k": operation.d_head, "d_model": _width_of_model(values)}
    factors: dict[str, float] = {}
    for name, width in widths.items():
        if width is not None and width > 1:
            factors |= {f"1/√{name}": width**-0.5, f"1/{name}": 1 / width, f"√{name}": width**0.5, name: float(width)}
    factors |= {"1/√n": values[inputs[0]].shape[-1] ** -0.5}
    seen = {round(usual, 12), 1.0, round(usual * usual, 12)} if operation.kind != "none" else {1.0}
    for name, factor in factors.items():
        if round(factor, 12) not in seen or (name == "1/d_k" and factor != usual):
            seen.add(round(factor, 12))
            yield Edit("scale-other", Call("multiply", (scores, Constant(factor))), {"scale": name})


def _width_of_model(values: Values) -> int | None:
    for name in ("x", "resid_pre", "attn_norm"):
        if name in values:
            return values[name].shape[-1]
    one = next((values[name] for name in ("q", "v") if name in values), None)
    return None if one is None else values["scores"].shape[0] * one.shape[-1]


@special_edits.register
def _(operation: ApplyMask, inputs: Sequence[str], values: Values) -> Iterator[Edit]:
    """Other keys hidden, or 0 in place of −∞."""
    time, source = values[inputs[0]].shape[-2:]
    allowed = operation.allowed.expand(*operation.allowed.shape[:-2], time, source)
    if bool(allowed.all()):
        return
    scaled: Tree = Reference(inputs[0])
    if operation.bias is not None:
        yield Edit("bias-missing", Call("where", (Constant.of(allowed), scaled, HIDDEN)), {})
        scaled = Call("add", (scaled, Constant.of(operation.bias)))
    yield Edit("zero-for-infinity", Call("where", (Constant.of(allowed), scaled, Constant(0.0))), {})
    for how, other in _other_masks(allowed):
        if not torch.equal(other, allowed):
            yield Edit("mask-other", Call("where", (Constant.of(other), scaled, HIDDEN)), {"how": how})


def _other_masks(allowed: Tensor) -> Iterator[tuple[str, Tensor]]:
    time, source = allowed.shape[-2:]
    first = torch.arange(time)[:, None] == 0
    if time == source:
        yield "transposed", allowed.mT
        strict = allowed & ~torch.eye(time, dtype=torch.bool)
        yield "strict", strict
        yield "strict", strict | (first & allowed)
    yield "more", torch.cat((allowed[..., 1:, :], allowed[..., -1:, :]), dim=-2)
    if time == source:
        later = torch.eye(time, dtype=torch.bool).roll(1, dims=-1) & ~torch.eye(time, dtype=torch.bool)
        later[-1] = False
        yield "more", allowed | later
    yield "fewer", torch.cat((allowed[..., :1, :], allowed[..., :-1, :]), dim=-2)
    yield "reversed", allowed.flip(-1)
    yield "reversed", ~allowed
    causal = torch.ones(time, source, dtype=torch.bool).tril(source - time)
    yield "causal", causal.expand(allowed.shape)


@special_edits.register
def _(operation: Softmax, inputs: Sequence[str], values: Values) -> Iterator[Edit]:
    """The sum lacks a term: the same one in every row, or the last or first that is not hidden."""
    entries = values[inputs[0]]
    size, seen = entries.shape[-1], entries != -math.inf
    columns = torch.arange(size)
    last = (columns * seen).argmax(dim=-1, keepdim=True)
    lacking = [(term, columns == term) for term in range(size)]
    lacking += [(size - 1, columns == last), (0, columns == seen.double().argmax(dim=-1, keepdim=True))]
    powers = Call("exp", (Reference(inputs[0]),))
    for term, lost in lacking:
        kept = Call("multiply", (powers, Constant.of(~lost)))
        yield Edit("term-dropped", Call("divide", (powers, Call("sum", (kept,), (-1,)))), {"term": term})


@special_edits.register
def _(operation: Score, inputs: Sequence[str], values: Values) -> Iterator[Edit]:
    """Keys times queries; what they are made of, in place of both."""
    if values[inputs[0]].shape == values[inputs[1]].shape:
        swapped = operation.tree(inputs[::-1])
        yield Edit("transposed", swapped, {"matrix": "scores"})
    width = values[inputs[0]].shape[-1]
    for name in ("x", "attn_norm", "resid_pre", "token_embedding"):
        if name in values and name not in inputs and values[name].shape[-1] == width:
            x: Tree = Reference(name)
            x = Call("add", (Call("multiply", (Reference(inputs[0]), Constant(0.0))), Call("split head axis", (x,))))
            yield Edit("operand-other", Call("matmul", (x, Call("transpose", (x,)))), {"expected": "q", "used": name})


@special_edits.register
def _(operation: Weigh, inputs: Sequence[str], values: Values) -> Iterator[Edit]:
    """The plain mean of the values."""
    weights, v = map(Reference, inputs)
    source = values[inputs[0]].shape[-1]
    even = Call("add", (Call("multiply", (weights, Constant(0.0))), Constant(1 / source)))
    yield Edit("function-missing", Call("matmul", (even, Call("match heads", (v, weights)))), {"function": "softmax"})


@special_edits.register
def _(operation: Output, inputs: Sequence[str], values: Values) -> Iterator[Edit]:
    """Heads averaged, added, in another order or only one; W_O forgotten."""
    z, *rest = map(Reference, inputs)
    heads = values[inputs[0]].shape[0]

    def together(made: Tree) -> Tree:
        return _linear(Call("merge heads", (made,)), rest)

    if rest:
        joined = Call("merge heads", (z,))
        yield Edit("projection-missing", joined, {"matrix": inputs[1]})
        if rest[1:]:
            yield Edit("projection-missing", Call("add", (joined, rest[1])), {"matrix": inputs[1]})
    if heads == 1:
        return
    mean = Call("mean", (z,), (-3,))
    for one in (mean, Call("sum", (z,), (-3,))):
        yield Edit("heads-averaged", Call("merge heads", (one,)), {})
        yield Edit("heads-averaged", together(one), {})
        yield Edit("heads-averaged", together(Call("add", (one, Call("multiply", (z, Constant(0.0)))))), {})
    for order in {tuple(reversed(range(heads))), (*range(1, heads), 0)}:
        yield Edit("heads-order", together(Call("chosen heads", (z,), order)), {})
    interleaved = Call("interleaved heads", (z,))
    yield Edit("heads-order", _linear(interleaved, rest), {})
    for head in range(heads):
        alone = Constant.of(torch.eye(heads)[head][:, None, None])
        yield Edit("heads-single", together(Call("multiply", (z, alone))), {"head": head})
        yield Edit("heads-single", together(Call("chosen heads", (z,), (head,) * heads)), {"head": head})
        yield Edit("heads-single", Call("merge heads", (Call("chosen heads", (z,), (head,)),)), {"head": head})


def _linear(joined: Tree, rest: Sequence[Tree]) -> Tree:
    if not rest:
        return joined
    product = Call("matmul", (joined, rest[0]))
    return Call("add", (product, rest[1])) if rest[1:] else product


@special_edits.register
def _(operation: Add, inputs: Sequence[str], values: Values) -> Iterator[Edit]:
    """One of the two left out."""
    left, right = map(Reference, inputs)
    positions = "position_embedding" in inputs
    yield Edit("term-dropped" if positions else "residual-missing", right, {"term": 0} if positions else {})
    yield Edit("term-dropped", left, {"term": 1})


@special_edits.register
def _(operation: Normalise, inputs: Sequence[str], values: Values) -> Iterator[Edit]:
    """The norm of columns; LayerNorm for RMSNorm and the reverse."""
    x, gain, *rest = map(Reference, inputs)
    epsilon = Constant(operation.epsilon)
    shift = rest or [Constant(0.0)]
    if operation.kind == "layernorm":
        yield Edit("norm-other", Call("add", (Call("rmsnorm", (x, gain, epsilon)), *shift)), {"how": "kind"})
    else:
        yield Edit("norm-other", Call("layernorm", (x, gain, Constant(0.0), epsilon)), {"how": "kind"})
    centred = Call("subtract", (x, Call("mean", (x,), (-2,))))
    root = Call("sqrt", (Call("add", (Call("var", (x,), (-2,)), epsilon)),))
    whole = Call("add", (Call("multiply", (Call("divide", (centred, root)), gain)), *shift))
    yield Edit("norm-other", whole, {"how": "columns"})


@special_edits.register
def _(operation: Sinusoid, inputs: Sequence[str], values: Values) -> Iterator[Edit]:
    """Positions from 1, sine and cosine exchanged, other exponents and bases, halves, degrees."""
    width = operation.width
    positions = torch.arange(operation.time, dtype=torch.float64)[:, None]
    columns = torch.arange(width, dtype=torch.float64)
    even = columns - columns % 2

    def table(at: Tensor, exponents: Tensor, base: float = 10_000.0, odd: Tensor = columns % 2) -> Constant:
        angles = at / base ** (exponents / width)
        return Constant.of(torch.where(odd == 0, angles.sin(), angles.cos()))

    yield Edit("positions-from-one", table(positions + 1, even), {})
    yield Edit("sine-cosine", table(positions, even, odd=1 - columns % 2), {})
    for how, exponents in {"i": columns // 2, "column": columns, "double": 2 * columns, "next": even + 2}.items():
        if not torch.equal(exponents, even):
            yield Edit("exponent-other", table(positions, exponents), {"how": how})
    for base in (10.0, 100.0, 1_000.0, 100_000.0):
        yield Edit("constant-other", table(positions, even, base), {"expected": "10000", "used": f"{base:.0f}"})
    half = columns % (width // 2) * 2 if width > 1 else columns
    yield Edit("halves", table(positions, half, odd=(columns >= width / 2).double()), {})
    yield Edit("degrees", table(positions * math.pi / 180, even), {})


@special_edits.register
def _(operation: Filtered, inputs: Sequence[str], values: Values) -> Iterator[Edit]:
    """Another number of words kept, all of them, the temperature used otherwise."""
    shares: Tree = Call("last row", (Reference(inputs[0]),))
    if operation.rule == "temperature":
        if operation.value <= 0:
            return
        heat = Constant(operation.value)
        logs = Call("log", (shares,))
        warmed = Call("softmax of scores", (Call("multiply", (logs, heat)),))
        yield Edit("temperature-inverted", warmed, {})
        yield Edit("temperature-direct", Call("softmax of scores", (Call("divide", (shares, heat)),)), {})
        yield Edit("temperature-direct", Call("divide", (shares, heat)), {})
        yield Edit("not-renormalised", Call("exp", (Call("divide", (logs, heat)),)), {})
        return
    rows = values[inputs[0]][-1]
    kept = int((operation(values[inputs[0]]) > 0).sum())
    for how, number in {"fewer": kept - 1, "more": kept + 1}.items():
        if 1 <= number <= len(rows):
            chosen = Call("keep top k", (shares, Constant(float(number))))
            share = Call("divide", (chosen, Call("sum", (chosen,), (-1,))))
            yield Edit("kept-other", share, {"how": how})
            yield Edit("not-renormalised", chosen, {})


@special_edits.register
def _(operation: Greedy, inputs: Sequence[str], values: Values) -> Iterator[Edit]:
    """The second best word, or the best of another position."""
    shares = values[inputs[0]]
    order = shares[-1].sort(descending=True, stable=True).indices.tolist()
    if len(order) > 1:
        yield Edit("second-best", Constant.of(torch.tensor([float(order[1])])), {})
        yield Edit("function-other", Constant.of(torch.tensor([float(order[-1])])), {"expected": "max", "used": "min"})
