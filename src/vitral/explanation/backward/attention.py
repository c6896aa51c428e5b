"""The rules of the backward pass through attention."""

import math

from vitral.attention import steps
from vitral.core.language import N_
from vitral.explanation.backward.base import (
    Contribution,
    Stages,
    Use,
    contribution,
    dots,
    gradient_name,
    matrix,
    of_bias,
    summed,
    transposed,
)
from vitral.explanation.formulas.notation import (
    Apply,
    Difference,
    Expression,
    Fraction,
    Name,
    Number,
    Over,
    Product,
    Root,
    Sum,
    Words,
)
from vitral.explanation.operations import ApplyMask, Index, Output, Project, Rotate, Scale, Score, Softmax, Weigh
from vitral.explanation.operations.base import dot

MASKED = N_("the gradient of masked where attention is allowed, 0 elsewhere")


@contribution.register
def _project(operation: Project, use: Use, place: int) -> Contribution:
    x, weight, first, d = use.values[0], use.values[1], use.namer.first, gradient_name(use.name)
    several = "h" if len(weight) > 1 else ""

    def of_x(index: Index) -> Stages:
        row, column = index
        below = (several, str(row + first)) if several else (str(row + first),)
        rule = Product(
            (
                Name(d.letters, below=",".join(below)),
                matrix(use.inputs[1], *([several] if several else []), str(column + first), ":"),
            )
        )
        return summed(rule, several), dots([(use.gradient[h, row], weight[h, column]) for h in range(len(weight))])

    def of_weight(index: Index) -> Stages:
        head, row, column = index
        rule = Product((Name(use.inputs[0], below=f":,{row + first}"), Name(d.letters, below=f":,{column + first}")))
        return rule, dot(x[:, row], use.gradient[head, :, column])

    if place == 2:
        return of_bias(use)
    if place == 1:
        return Contribution("product", Product((Name(use.inputs[0], above="T"), d), tight=True), of_weight)
    formula = Product((d, transposed(matrix(use.inputs[1]))), tight=True)
    return Contribution("product", summed(formula, several), of_x)


@contribution.register
def _rotate(operation: Rotate, use: Use, place: int) -> Contribution:
    def stages(index: Index) -> Stages:
        head, row, column = index
        pair = operation.pair(column)
        if pair is None:
            return use.d(row, column), Number(float(use.gradient[index]))
        place, one, other = pair
        angle = row * float(operation.frequencies[place])
        values = [Number(float(use.gradient[head, row, part])) for part in (one, other)]
        names = [use.d(row, part) for part in (one, other)]
        cos, sin = Apply("cos", (Number(angle),)), Apply("sin", (Number(angle),))
        numbers = Number(math.cos(angle)), Number(math.sin(angle))
        if column == one:
            rule = Sum((Product((names[0], cos)), Product((names[1], sin))))
            return rule, Sum((Product((values[0], numbers[0])), Product((values[1], numbers[1]))))
        rule = Difference(Product((names[1], cos)), Product((names[0], sin)))
        return rule, Difference(Product((values[1], numbers[0])), Product((values[0], numbers[1])))

    return Contribution("rotation", Apply("rotate", (Name(f"d{use.name}"), Words("−p"))), stages)


@contribution.register
def _score(operation: Score, use: Use, place: int) -> Contribution:
    (q, k), d, first = use.values, Name(f"d{use.name}"), use.namer.first
    group = len(q) // len(k)

    def of_query(index: Index) -> Stages:
        head, row, column = index
        rule = Product((use.d(row), Name(use.inputs[1], below=f":,{column + first}")))
        return rule, dot(use.gradient[head, row], k[head // group, :, column])

    def of_key(index: Index) -> Stages:
        head, row, column = index
        rule = Product((Name(d.letters, below=f":,{row + first}"), Name(use.inputs[0], below=f":,{column + first}")))
        heads = range(head * group, (head + 1) * group)
        return summed(rule, "h" if group > 1 else ""), dots([(use.gradient[h, :, row], q[h, :, column]) for h in heads])

    if place == 0:
        return Contribution("product", Product((d, Name(use.inputs[1])), tight=True), of_query)
    formula = Product((Name(d.letters, above="T"), Name(use.inputs[0])), tight=True)
    return Contribution("product", summed(formula, "h" if group > 1 else ""), of_key)


@contribution.register
def _weigh(operation: Weigh, use: Use, place: int) -> Contribution:
    (weights, v), d, first = use.values, Name(f"d{use.name}"), use.namer.first
    group = len(weights) // len(v)

    def of_weights(index: Index) -> Stages:
        head, row, column = index
        return Product((use.d(row), use.cell(1, column))), dot(use.gradient[head, row], v[head // group, column])

    def of_values(index: Index) -> Stages:
        head, row, column = index
        rule = Product((Name(use.inputs[0], below=f":,{row + first}"), Name(d.letters, below=f":,{column + first}")))
        heads = range(head * group, (head + 1) * group)
        return summed(rule, "h" if group > 1 else ""), dots(
            [(weights[h, :, row], use.gradient[h, :, column]) for h in heads]
        )

    if place == 0:
        return Contribution("product", Product((d, Name(use.inputs[1], above="T")), tight=True), of_weights)
    formula = Product((Name(use.inputs[0], above="T"), d), tight=True)
    return Contribution("product", summed(formula, "h" if group > 1 else ""), of_values)


@contribution.register
def _scale(operation: Scale, use: Use, place: int) -> Contribution | None:
    if operation.kind == "adaptive":
        return None
    d, width = Name(f"d{use.name}"), Name("d", below="k")
    known: dict[str, Expression] = {"sqrt": Root(width), "linear": width}

    def scaled(gradient: Expression, factor: Expression, below: Expression | None) -> Expression:
        if operation.kind == "none":
            return gradient
        return Product((factor, gradient)) if below is None else Fraction(gradient, below)

    def stages(index: Index) -> Stages:
        head, row, column = index
        scores = use.values[0]
        factor = Number(float(operation.factors(scores).expand(len(scores), scores.shape[1], 1)[head, row, 0]))
        below: Expression | None = None
        if operation.d_head is not None and operation.kind in known:
            exact = Number(operation.d_head, exact=True)
            below = Root(exact) if operation.kind == "sqrt" else exact
        rule = scaled(use.d(row, column), Name("s"), below)
        return rule, scaled(Number(float(use.gradient[index])), factor, below)

    kind = "copy" if operation.kind == "none" else "scale"
    return Contribution(kind, scaled(d, Name("s"), known.get(operation.kind)), stages)


@contribution.register
def _mask(operation: ApplyMask, use: Use, place: int) -> Contribution:
    def stages(index: Index) -> Stages:
        if bool(operation.allowed.expand(use.output.shape)[index]):
            return use.d(*index[1:]), Number(float(use.gradient[index]))
        return Number(0, exact=True), Number(0, exact=True)

    return Contribution("mask", Words(MASKED), stages)


@contribution.register
def _softmax(operation: Softmax, use: Use, place: int) -> Contribution:
    d = f"d{use.name}"
    base = () if operation.base == math.e else (Apply("log", (Number(operation.base, exact=True),)),)

    def rule(cell: tuple[Name, Name], row: tuple[Name, Name]) -> Expression:
        return Product((*base, cell[0], Difference(cell[1], Over("l", Product(row)))))

    def stages(index: Index) -> Stages:
        shares, gradient = use.output[index[:-1]], use.gradient[index[:-1]]
        cell = use.namer.cell(use.name, *index[-2:]), use.d(*index[-2:])
        before = f"{use.namer.cell('', *index[-2:-1]).below},l".lstrip(",")
        named = rule(cell, (Name(d, below=before), Name(use.name, below=before)))
        entry = index[-1]
        mean = dot(gradient, shares)
        distance = Difference(Number(float(gradient[entry])), mean)
        return named, Product((*base, Number(float(shares[entry])), distance))

    formula = rule(
        (Name(use.name, below="i,j"), Name(d, below="i,j")), (Name(d, below="i,l"), Name(use.name, below="i,l"))
    )
    return Contribution("softmax", formula, stages)


@contribution.register
def _output(operation: Output, use: Use, place: int) -> Contribution:
    z, d, first = use.values[0], gradient_name(use.name), use.namer.first
    width = z.shape[-1]

    def copied(index: Index) -> Stages:
        head, row, column = index
        at = (row, head * width + column)
        return use.d(*at), Number(float(use.gradient[at]))

    def of_heads(index: Index) -> Stages:
        head, row, column = index
        line = head * width + column
        rule = Product((use.d(row), matrix(use.inputs[1], str(line + first), ":")))
        return rule, dot(use.gradient[row], use.values[1][line])

    together = Name("z") if operation.num_heads == 1 else Name("Concat(z)")

    def of_weight(index: Index) -> Stages:
        row, column = index
        rule = Product((Name(together.letters, below=f":,{row + first}"), Name(d.letters, below=f":,{column + first}")))
        return rule, dot(steps.merge_heads(z)[:, row], use.gradient[:, column])

    if place == 2:
        return of_bias(use)
    if place == 1:
        return Contribution("product", Product((Name(together.letters, above="T"), d), tight=True), of_weight)
    if len(use.values) == 1:
        return Contribution("copy", d, copied)
    return Contribution("product", Product((d, transposed(matrix(use.inputs[1]))), tight=True), of_heads)
