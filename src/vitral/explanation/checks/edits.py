"""Edits: what a computation becomes when one thing in it is done wrong.

The slips of the field are rules that rewrite a pattern of the tree; any node may lose an argument or be exchanged for
a similar one; masks, heads, positions and choices have a few of their own.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from vitral.explanation.expressions import (
    Call,
    Constant,
    Reference,
    Tree,
    call_of,
    nodes,
    read,
    substituted,
)
from vitral.explanation.expressions.tree import Table
from vitral.explanation.recipe import RESIDUAL

SYMBOLS = ("M", "d_k", "p", "s")
WILD = (*SYMBOLS, "a", "b", "c", "g", "k", "x", "y", "bias")
"""Names in patterns: k is a number, a symbol that constant, bias a vector that is added; others stand for any tree."""
FINITE, NORM = "where(less(x, -1e14), 0, x)", "layernorm(x, g, b, y)"
RULES = f"""
scale-missing: a / sqrt(d_k) -> a
scale-missing: a / d_k -> a
scale-missing: a * s -> a
scale-missing: adaptive(x, M, k) -> x
scale-twice: a / sqrt(d_k) -> a / sqrt(d_k) / sqrt(d_k)
mask-missing: a + M -> a
mask-late: softmax(a + M) -> where(less(M, 0), 0, softmax(a))
zero-for-infinity: a + M -> where(less(M, 0), 0, a)
not-exponential: softmax(x) -> {FINITE} / sum({FINITE}, -1)
not-divided: softmax(x) -> exp(x)
not-divided: softmax(x) -> exp(x - max(x, -1))
softmax-missing: softmax(x) -> {FINITE}
softmax-twice: softmax(x) -> softmax(softmax(x))
maximum-once: softmax(x) -> exp(x - max(x, -1)) / sum(exp(x), -1)
wrong-axis: softmax(x) -> exp(x) / sum(exp(x), -2)
wrong-axis how=all: softmax(x) -> exp(x) / sum(sum(exp(x), -1), -2)
transposed matrix=scores: a @ b.T -> b @ a.T
projection-missing matrix=w_o: merge(a) @ b + bias -> merge(a)
projection-missing matrix=w_o: merge(a) @ b -> merge(a)
bias-missing: a + bias -> a
bias-twice: a + bias -> a + bias + bias
norm-other how=mean: {NORM} -> g * (x / root(var(x) + y)) + b
norm-other how=variance: {NORM} -> g * ((x - mean(x, -1)) / (var(x) + y)) + b
norm-other how=undivided: {NORM} -> g * (x - mean(x, -1)) + b
norm-other how=sample: {NORM} -> g * ((x - mean(x, -1)) / root(var(x) * (count(x) / (count(x) - times(x))) + y)) + b
norm-other how=none: {NORM} -> x
norm-order: layernorm(a + c, g, b, y) -> a + layernorm(c, g, b, y)
norm-order: layernorm(a + c, g, b, y) -> layernorm(a, g, b, y) + c
gain-missing: {NORM} -> layernorm(x, 1, b, y)
gain-missing: rmsnorm(x, g, y) -> rmsnorm(x, 1, y)
bias-missing: {NORM} -> layernorm(x, g, 0, y)
activation-other used=leaky_relu: relu(x) -> maximum(0.01 * x, x)
activation-other used=sigmoid_gelu: gelu(x) -> x * sigmoid(1.702 * x)
function-other expected=mean used=sum: cross_entropy(x, y) -> cross_entropy(x, y) * times(x)
temperature-missing: softmax(log(a) / k) -> a
temperature-inverted: softmax(log(a) / k) -> softmax(log(a) * k)
temperature-direct: softmax(log(a) / k) -> softmax(a / k)
temperature-direct: softmax(log(a) / k) -> a / k
not-renormalised: normalised(a) -> a
second-best: largest(a) -> largest(where(equal(a, max(a, -1)), -1, a))
function-other expected=max used=min: largest(a) -> largest(-a)
positions-from-one: p / y -> (p + 1) / y
degrees: p / y -> p / y * (pi / 180)
sine-cosine: where(x, sin(a), cos(b)) -> where(x, cos(a), sin(a))
"""
"""Kind of a slip and its placeholders, what is meant, what is done."""
BASES = (
    *("softmax(x) -> softmax(x, {base})", "cross_entropy(x, y) -> cross_entropy(x, y) / log({base})"),
    *("exp(x) -> {base} ** x", "log(x) -> log(x) / log({base})"),
)
RULES += "".join(f"base-other base={base}: {rule.format(base=base)}\n" for rule in BASES for base in (2, 10))
MOST_KEPT = 8
"""A filter by probability may have kept fewer words than this."""
ACTIVATIONS = ("relu", "gelu", "silu", "tanh", "sigmoid", "abs")
OTHERS = {
    **{"sin": "cos", "cos": "sin", "mean": "sum", "sum": "mean", "max": "min", "min": "max"},
    **{"add": "subtract", "subtract": "add", "multiply": "divide", "divide": "multiply"},
}

UNEDITED = ("aside", "plain", "rows", "share", "lifted", "head", "lookup", "where", "partner")
"""Functions that lose no argument."""


@dataclass(frozen=True)
class Edit:
    """A tree after a slip.

    Attributes:
        kind: of the slip.
        tree: the computation with the slip.
        values: of the placeholders of its phrase.
    """

    kind: str
    tree: Tree
    values: Mapping[str, object] = field(default_factory=dict)


_RULES = [
    (head.split(), read(left, WILD), read(right, WILD))
    for head, _, rest in (line.partition(": ") for line in RULES.strip().splitlines())
    for left, _, right in (rest.partition(" -> "),)
]


def matched(pattern: Tree, tree: Tree, bound: dict[Tree, Tree]) -> bool:
    """Whether a tree has this pattern; the trees that names stand for are added to `bound`."""
    if isinstance(pattern, Reference) and pattern.name in WILD:
        inner = tree.arguments[0] if tree.function == "rows" else tree
        is_bias = isinstance(inner, Reference) and (inner.name.startswith("b_") or inner.name.endswith("_bias"))
        value, symbol = (tree.value, tree.symbol) if isinstance(tree, Constant) else (None, "")
        fits = {"k": isinstance(value, float), "bias": is_bias or symbol == "bias"}
        is_like = fits.get(pattern.name, pattern.name not in SYMBOLS or symbol == pattern.name)
        return is_like and bound.setdefault(pattern, tree) == tree
    if pattern.function and pattern.function == tree.function:
        pairs = zip(pattern.arguments, tree.arguments, strict=False)
        alike = len(pattern.arguments) == len(tree.arguments) and pattern.settings == tree.settings
        return alike and all(matched(part, argument, bound) for part, argument in pairs)
    return pattern == tree


def edits(name: str, tree: Tree, shapes: Mapping[str, tuple[int, ...]], composed: Tree | None = None) -> Iterator[Edit]:
    """The slips in a quantity's tree.

    Args:
        name: the quantity.
        tree: its computation.
        shapes: of what is known when it is computed.
        composed: the tree with those of its inputs in place, for what is done too late.
    """
    yield from _ruled(tree)
    yield from (edit for edit in _ruled(composed or tree) if edit.kind.endswith(("late", "order")))
    match tree:
        case Call("add", (Reference() as left, Reference() as right)):
            if name in RESIDUAL:
                yield Edit("residual-missing", right)
                yield Edit("residual-twice", Call("add", (tree, left)))
            else:
                yield Edit("term-dropped", right, {"term": 0})
            yield Edit("term-dropped", left, {"term": 1})
    for node in dict.fromkeys(nodes(tree)):
        for edit in (*_changed(node, shapes), *_masked(node), *_chosen(node)):
            yield Edit(edit.kind, substituted(tree, {node: edit.tree}), edit.values)
    yield from _heads(tree, shapes)


def _ruled(tree: Tree) -> Iterator[Edit]:
    for node in dict.fromkeys(nodes(tree)):
        for (kind, *how), pattern, slip in _RULES:
            bound: dict[Tree, Tree] = {}
            if matched(pattern, node, bound):
                values = {part.partition("=")[0]: part.partition("=")[2] for part in how}
                yield Edit(kind, substituted(tree, {node: substituted(slip, bound)}), values)


def _changed(node: Tree, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Edit]:
    """A node changed in a way that any node may be."""
    match node:
        case Reference(name):
            shape = shapes.get(name, ())
            for other, its in shapes.items():
                if its == shape and other != name and shape:
                    yield Edit("operand-other", Reference(other), {"expected": name, "used": other})
            if len(shape) > 1 and shape[-1] == shape[-2]:
                yield Edit("transposed", Call("transpose", (node,)), {"matrix": name})
        case Constant(float() as value):
            others = {value * 2, value / 2, value * value, value + 1, value - 1, -value, value * 10, value / 10, 1.0}
            for other in sorted(others - {value}):
                yield Edit("constant-other", Constant(other), {"expected": f"{value:g}", "used": f"{other:.4g}"})
        case Call(function) if function not in UNEDITED:
            yield from _called(node)


def _called(node: Call) -> Iterator[Edit]:
    """A call without it, or of a similar function."""
    function, arguments, settings = node.function, node.arguments, node.settings
    for argument in arguments:
        kind = "activation-missing" if function in ACTIVATIONS else "function-missing"
        if function == "transpose" and isinstance(argument, Reference):
            yield Edit("transposed", argument, {"matrix": argument.name})
        elif not isinstance(argument, Constant):
            yield Edit(kind, argument, {"function": function})
    for other in ACTIVATIONS if function in ACTIVATIONS else ():
        yield Edit("activation-other", Call(other, arguments), {"expected": function, "used": other})
    if function in OTHERS:
        other = Call(OTHERS[function], arguments, settings)
        kind = "operation-inverse" if arguments[1:] else "function-other"
        yield Edit(kind, other, {"expected": function, "used": other.function})
        if settings == (-1,):
            yield Edit("wrong-axis", replace(node, settings=(-2,)), {"how": "other"})


def _masked(node: Tree) -> Iterator[Edit]:
    """Another mask."""
    match node:
        case Call("add", (scaled, Constant(Table(mask), "M"))) if bool((mask != 0).any()):
            for how, other in _masks(mask == 0):
                hidden = Constant.of(torch.where(other, 0.0, -math.inf), "M")
                yield Edit("mask-other", Call("add", (scaled, hidden)), {"how": how})


def _masks(allowed: Tensor) -> Iterator[tuple[str, Tensor]]:
    time, source = allowed.shape[-2:]
    eye, first = torch.eye(time, source, dtype=torch.bool), torch.arange(time)[:, None] == 0
    if time == source:
        yield "transposed", allowed.mT
        yield "strict", allowed & ~eye
        yield "strict", (allowed & ~eye) | (first & allowed)
        later = eye.roll(1, dims=-1) & ~eye
        later[-1] = False
        yield "more", allowed | later
    yield "more", torch.cat((allowed[..., 1:, :], allowed[..., -1:, :]), dim=-2)
    yield "fewer", torch.cat((allowed[..., :1, :], allowed[..., :-1, :]), dim=-2)
    yield "reversed", allowed.flip(-1)
    yield "reversed", ~allowed
    yield "causal", torch.ones(time, source, dtype=torch.bool).tril(source - time).expand(allowed.shape)


def scales(widths: Mapping[str, int]) -> Iterator[Edit]:
    """Other factors of the scores: another width, no root, multiplied in place of divided."""
    for name, width in widths.items():
        factors = {f"1/√{name}": width**-0.5, f"1/{name}": 1 / width, f"√{name}": width**0.5, name: float(width)}
        for words, factor in factors.items():
            yield Edit("scale-other", Call("multiply", (Reference("scores"), Constant(factor))), {"scale": words})


def _heads(tree: Tree, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Edit]:
    """Heads averaged, added, in another order or only one of them."""
    merge = call_of(tree, "merge")
    z = merge.arguments[0] if merge else None
    if merge is None or not isinstance(z, Reference) or shapes[z.name][0] == 1:
        return
    count, width = shapes[z.name][0], shapes[z.name][-1]
    every, eye = torch.ones(count, count), torch.eye(count)

    def mixed(shares: Tensor) -> Tree:
        """The heads side by side, each a sum of the heads, [heads, of heads] of which it has these shares."""
        return Call("matmul", (merge, Constant.of(torch.kron(shares, torch.eye(width)))))

    for shares in (every / count, every):
        yield Edit("heads-averaged", mixed(shares[:, :1]))
        yield Edit("heads-averaged", substituted(tree, {merge: mixed(shares)}))
    for order in (eye.flip(0), eye.roll(-1, 1)):
        yield Edit("heads-order", substituted(tree, {merge: mixed(order)}))
    for head in range(count):
        for shares in (eye * eye[head], eye[:, head, None].expand(count, count)):
            yield Edit("heads-single", substituted(tree, {merge: mixed(shares)}), {"head": head})


def _chosen(node: Tree) -> Iterator[Edit]:
    """Exponents that count columns; another number of words kept."""
    match node:
        case Call("power", (base, Call("divide", (Constant(Table(exponents)), Constant(float() as width))))):
            others = {"i": exponents / 2, "double": exponents * 2, "next": exponents + 2}
            if len(exponents) == width:
                others["column"] = torch.arange(len(exponents))
            for how, other in others.items():
                power = Call("divide", (Constant.of(other), Constant(width)))
                yield Edit("exponent-other", Call("power", (base, power)), {"how": how})
        case Call("normalised", (Call(keep, (shares, Constant(float() as value))),)):
            for number in (value - 1, value + 1) if keep == "keep top k" else range(1, MOST_KEPT):
                kept = Call("keep top k", (shares, Constant(float(number))))
                yield Edit("kept-other", Call("normalised", (kept,)), {"number": int(number)})
