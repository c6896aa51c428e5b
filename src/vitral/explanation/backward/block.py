"""The rules of the backward pass through the other operations: sums, linear maps, norms, activations, embeddings."""

import math

from vitral.explanation.backward.base import Contribution, Stages, Use, contribution, matrix, of_bias, transposed
from vitral.explanation.formulas.notation import (
    Apply,
    Difference,
    Expression,
    Fraction,
    Name,
    Number,
    Over,
    Power,
    Product,
    Root,
    Sum,
)
from vitral.explanation.operations import Activate, Add, Index, Linear, Lookup, Normalise, Operation, Replace
from vitral.explanation.operations.base import TWO, dot
from vitral.explanation.operations.block import CUBIC, ONE, tanh_argument


@contribution.register(Add)
@contribution.register(Replace)
def _copy(operation: Operation, use: Use, place: int) -> Contribution:
    return Contribution("copy", Name(f"d{use.name}"), lambda index: (use.d(*index), Number(float(use.gradient[index]))))


@contribution.register
def _linear(operation: Linear, use: Use, place: int) -> Contribution:
    x, weight = use.values[:2]
    d, first = Name(f"d{use.name}"), use.namer.first
    named = matrix(use.inputs[1])

    def of_x(index: Index) -> Stages:
        row, column = index
        below = (":", str(column + first)) if operation.tied else (str(column + first), ":")
        entries = weight[:, column] if operation.tied else weight[column]
        return Product((use.d(row), matrix(use.inputs[1], *below))), dot(use.gradient[row], entries)

    def of_weight(index: Index) -> Stages:
        of_input, of_output = index[::-1] if operation.tied else index
        rule = Product(
            (Name(use.inputs[0], below=f":,{of_input + first}"), Name(d.letters, below=f":,{of_output + first}"))
        )
        return rule, dot(x[:, of_input], use.gradient[:, of_output])

    if place == 2:
        return of_bias(use)
    if place == 1:
        factors = (Name(use.inputs[0], above="T"), d)
        if operation.tied:
            factors = (Name(d.letters, above="T"), Name(use.inputs[0]))
        return Contribution("product", Product(factors, tight=True), of_weight)
    return Contribution("product", Product((d, named if operation.tied else transposed(named)), tight=True), of_x)


@contribution.register
def _lookup(operation: Lookup, use: Use, place: int) -> Contribution:
    def stages(index: Index) -> Stages:
        word, column = index
        rows = [row for row, each in enumerate(operation.rows) if each == word]
        names = [use.d(row, column) for row in rows]
        values = [Number(float(use.gradient[row, column])) for row in rows]
        return (Sum(tuple(names)), Sum(tuple(values))) if rows else (Number(0, exact=True), Number(0, exact=True))

    return Contribution("lookup", Over("i", Name(f"d{use.name}", below="i")), stages)


@contribution.register
def _normalise(operation: Normalise, use: Use, place: int) -> Contribution:
    x, gain = use.values[:2]
    two, is_rms = Number(2, exact=True), operation.kind == "rmsnorm"
    variance = x.square().mean(-1) if is_rms else x.var(-1, unbiased=False)
    spread = variance + operation.epsilon
    unit = (x if is_rms else x - x.mean(-1, keepdim=True)) / spread.sqrt()[:, None]
    inner = use.gradient * gain
    u, du = Name("u"), Name("du")

    def rule(entry: Expression, mean: Expression, unit_: Expression, other: Expression, root: Expression) -> Expression:
        left = entry if is_rms else Difference(entry, mean)
        return Fraction(Difference(left, Product((unit_, other))), root)

    means = Apply("mean", (du,)), Apply("mean", (Product((du, u)),))
    below = Apply("mean", (Power(Name(operation.of), two),)) if is_rms else Power(Name("σ"), two)
    root = Root(Sum((below, Name("ε"))))

    def of_x(index: Index) -> Stages:
        row, column = index
        numbers = (float(inner[row, column]), float(inner[row].mean()), float(unit[row, column]))
        product = float((inner[row] * unit[row]).mean())
        named = rule(use.namer.cell("du", *index), means[0], use.namer.cell("u", *index), means[1], root)
        entry, mean, single = map(Number, numbers)
        return named, rule(entry, mean, single, Number(product), Root(Number(float(spread[row]))))

    def of_gain(index: Index) -> Stages:
        (column,) = index
        places = f":,{column + use.namer.first}"
        rule_ = Product((Name(f"d{use.name}", below=places), Name("u", below=places)))
        return rule_, dot(use.gradient[:, column], unit[:, column])

    if place == 2:
        return of_bias(use)
    if place == 1:
        return Contribution(
            "gain", Over("i", Product((Name(f"d{use.name}", below="i"), Name("u", below="i")))), of_gain
        )
    return Contribution("norm", rule(du, means[0], u, means[1], root), of_x)


@contribution.register
def _activate(operation: Activate, use: Use, place: int) -> Contribution:
    function = Activate.written[operation.kind]
    d = Name(f"d{use.name}")
    if operation.kind != "swiglu":
        formula = Product((d, Apply(f"{function}'", (Name(use.inputs[0]),))))
    elif place == 0:
        formula = Product((d, Apply("SiLU", (Name(use.inputs[1]),))))
    else:
        formula = Product((d, Name(use.inputs[0]), Apply("SiLU'", (Name(use.inputs[1]),))))

    def stages(index: Index) -> Stages:
        gradient, entry = Number(float(use.gradient[index])), float(use.values[0][index])
        if operation.kind == "swiglu":
            gate = float(use.values[1][index])
            share = 1 / (1 + math.exp(-gate))
            named = Apply("SiLU" if place == 0 else "SiLU'", (use.cell(1, *index),))
            if place == 0:
                return Product((use.d(*index), named)), Product((gradient, Number(gate * share)))
            slope = share * (1 + gate * (1 - share))
            return (
                Product((use.d(*index), use.cell(0, *index), named)),
                Product((gradient, Number(entry), Number(slope))),
            )
        rule = Product((use.d(*index), Apply(f"{function}'", (use.cell(0, *index),))))
        return rule, Product((gradient, _slope(operation.kind, entry)))

    return Contribution("activation", formula, stages)


def _slope(kind: str, entry: float) -> Expression:
    """The derivative of an activation at one number."""
    if kind == "gelu":
        share = 0.5 * (1 + math.erf(entry / math.sqrt(2)))
        density = math.exp(-entry * entry / 2) / math.sqrt(2 * math.pi)
        return Sum((Number(share), Product((Number(entry), Number(density)))))
    if kind == "gelu_tanh":
        bent = Number(math.tanh(tanh_argument(entry)))
        inner = Number(math.sqrt(2 / math.pi) * (1 + 3 * CUBIC * entry**2))
        rest = Product((Fraction(Number(entry), TWO), Difference(ONE, Power(bent, TWO)), inner))
        return Sum((Fraction(Sum((ONE, bent)), TWO), rest))
    if kind == "squared_relu":
        return Product((Number(2, exact=True), Number(max(0.0, entry))))
    return Number(1 if entry > 0 else 0, exact=True)
