"""The other operations of a model: embeddings, residual sums, norms, feed-forward, head."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from vitral.attention import steps
from vitral.explanation.expressions.tree import Call, Constant, Reference, Tree
from vitral.explanation.formulas.notation import (
    Apply,
    Difference,
    Expression,
    Fraction,
    Name,
    Number,
    Power,
    Product,
    Root,
    Sum,
)
from vitral.explanation.operations.base import CellNamer, Index, dot, linear_stages, linear_tree, named
from vitral.model.feedforward import ACTIVATIONS
from vitral.model.positions import sinusoids


@dataclass(frozen=True)
class Lookup:
    """Rows of the embedding table.

    Attributes:
        rows: the row of each position's token.
    """

    rows: tuple[int, ...]

    def __call__(self, table: Tensor) -> Tensor:
        """[time, d_model] of [vocab, d_model]."""
        return table[list(self.rows)]

    def tree(self, inputs: Sequence[str]) -> Tree:
        """See `Operation`."""
        return Call("chosen rows", (Reference(inputs[0]),), self.rows)

    def formula(self) -> Expression:
        """Row t of E."""
        return Name("E", below="token")

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """The number in the table."""
        row, column = index
        return (namer.cell("E", self.rows[row], column),)


@dataclass(frozen=True)
class Sinusoid:
    """The sinusoidal position embedding (Vaswani et al. 2017, §3.5)."""

    time: int
    width: int

    def __call__(self) -> Tensor:
        """[time, d_model]."""
        return sinusoids(self.time, self.width)

    def tree(self, inputs: Sequence[str]) -> Tree:
        """See `Operation`."""
        columns = torch.arange(self.width, dtype=torch.float64)
        exponents = Call("divide", (Constant.of(columns - columns % 2), Constant(float(self.width))))
        rates = Call("power", (Constant(10_000.0), exponents))
        positions = Constant.of(torch.arange(self.time, dtype=torch.float64)[:, None])
        angles = Call("divide", (positions, rates))
        return Call("where", (Constant.of(columns % 2 == 0), Call("sin", (angles,)), Call("cos", (angles,))))

    def formula(self) -> Expression:
        """Sine of even columns, cosine of odd ones."""
        angle = Fraction(Name("p"), Power(Number(10000, exact=True), Fraction(Name("2i"), Name("d", below="model"))))
        return Apply("sin", (angle,))

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """Sine or cosine of the position over a power of 10,000."""
        position, column = index
        even = column - column % 2
        rate = Power(Number(10000, exact=True), Fraction(Number(even, exact=True), Number(self.width, exact=True)))
        angle = position / 10_000 ** (even / self.width)
        function = "cos" if column % 2 else "sin"
        whole = Apply(function, (Fraction(Number(position, exact=True), rate),))
        return (whole, Apply(function, (Number(angle),)))


@dataclass(frozen=True)
class Add:
    """The sum of two quantities: token and position embedding, or residual stream and sublayer output."""

    left: str
    right: str

    def __call__(self, left: Tensor, right: Tensor) -> Tensor:
        """The sum."""
        return torch.add(left, right)

    def tree(self, inputs: Sequence[str]) -> Tree:
        """See `Operation`."""
        return Call("add", tuple(named(inputs)))

    def formula(self) -> Expression:
        """Left + right."""
        return Sum((Name(self.left), Name(self.right)))

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """Two numbers."""
        rule = Sum((namer.cell(self.left, *index), namer.cell(self.right, *index)))
        return (rule, Sum(tuple(Number(float(term[index])) for term in inputs)))


@dataclass(frozen=True)
class Replace:
    """The sublayer's output in place of the residual stream: a block without residual connections.

    Attributes:
        of: name of the output.
    """

    of: str

    def __call__(self, output: Tensor) -> Tensor:
        """The output, unchanged."""
        return output

    def tree(self, inputs: Sequence[str]) -> Tree:
        """See `Operation`."""
        return Reference(inputs[0])

    def formula(self) -> Expression:
        """The output's name."""
        return Name(self.of)

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """The same cell of the output."""
        return (namer.cell(self.of, *index),)


@dataclass(frozen=True)
class Linear:
    """A linear map of every position: x W + b.

    Attributes:
        letter: name of the matrix, as superscript of W.
        of: name of the input.
        tied: the matrix is the embedding table, [vocab, d_model], used transposed.
    """

    letter: str
    of: str
    tied: bool = False

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """[time, width] of [time, d_model] and [d_model, width]."""
        return steps.project(x, weight if self.tied else weight.T, bias)

    def tree(self, inputs: Sequence[str]) -> Tree:
        """See `Operation`."""
        x, weight, *bias = named(inputs)
        return linear_tree(x, Call("transpose", (weight,)) if self.tied else weight, bias)

    def formula(self) -> Expression:
        """X W."""
        matrix = Name("E", above="T") if self.tied else Name("W", above=self.letter)
        return Product((Name(self.of), matrix), tight=True)

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """A row of x times a column of the matrix."""
        (x, weight, *bias), (row, column) = inputs, index
        values = weight[column] if self.tied else weight[:, column]
        extra = [float(bias[0][column])] if bias else []
        if self.tied:
            return (Product((namer.cell(self.of, row), namer.cell("E", column))), dot(x[row], values, *extra))
        return linear_stages(x[row], values, extra, (self.of, self.letter, row, column), namer)


@dataclass(frozen=True)
class Normalise:
    """LayerNorm (Ba et al. 2016, eq. 4) or RMSNorm (Zhang & Sennrich 2019, eq. 4) of each position.

    Attributes:
        kind: "layernorm" or "rmsnorm".
        epsilon: added to the variance or to the mean square.
        of: name of the input.
    """

    kind: str
    epsilon: float
    of: str

    def __call__(self, x: Tensor, gain: Tensor, bias: Tensor | None = None) -> Tensor:
        """The same shape, [time, d_model]."""
        if self.kind == "rmsnorm":
            return functional.rms_norm(x, x.shape[-1:], gain, self.epsilon)
        return functional.layer_norm(x, x.shape[-1:], gain, bias, self.epsilon)

    def tree(self, inputs: Sequence[str]) -> Tree:
        """See `Operation`."""
        x, gain, *bias = named(inputs)
        epsilon = Constant(self.epsilon)
        if self.kind == "rmsnorm":
            return Call("rmsnorm", (x, gain, epsilon))
        return Call("layernorm", (x, gain, *(bias or [Constant(0.0)]), epsilon))

    def formula(self) -> Expression:
        """(x - μ) / √(σ² + ε)."""
        name = Name(self.of)
        if self.kind == "rmsnorm":
            return Fraction(name, Root(Sum((Apply("mean", (Power(name, Number(2, exact=True)),)), Name("ε")))))
        return Fraction(Difference(name, Name("μ")), Root(Sum((Power(Name("σ"), Number(2, exact=True)), Name("ε")))))

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """Mean and variance of the row, then the quotient, gain and bias."""
        (x, gain, *bias), (row, column) = inputs, index
        values, entry = x[row], Number(float(x[row, column]))
        two = Number(2, exact=True)
        name = namer.cell(self.of, row, column)
        if self.kind == "rmsnorm":
            square = float(values.square().mean())
            rule: Expression = Fraction(
                name, Root(Sum((Apply("mean", (Power(namer.cell(self.of, row), two),)), Name("ε"))))
            )
            quotient: Expression = Fraction(entry, Root(Number(square + self.epsilon)))
        else:
            rule = Fraction(Difference(name, Name("μ")), Root(Sum((Power(Name("σ"), two), Name("ε")))))
            spread = float(values.var(unbiased=False)) + self.epsilon
            quotient = Fraction(Difference(entry, Number(float(values.mean()))), Root(Number(spread)))
        if float(gain[column]) != 1:
            rule = Product((Name("g", below=str(column + namer.first)), rule))
            quotient = Product((Number(float(gain[column])), quotient))
        if bias and float(bias[0][column]) != 0:
            rule = Sum((rule, Name("b", below=str(column + namer.first))))
            quotient = Sum((quotient, Number(float(bias[0][column]))))
        return (rule, quotient)


@dataclass(frozen=True)
class Activate:
    """The feed-forward's activation: ReLU, its square, GELU; for SwiGLU the product silu(gate) · pre.

    Attributes:
        kind: as `model.feed_forward` names it.
    """

    kind: str
    written: ClassVar[dict[str, str]] = {"relu": "ReLU", "gelu": "GELU", "squared_relu": "ReLU²", "swiglu": "SiLU"}

    def __call__(self, *inputs: Tensor) -> Tensor:
        """The same shape."""
        if self.kind == "swiglu":
            pre, gate = inputs
            return functional.silu(gate) * pre
        return ACTIVATIONS[self.kind](inputs[0])

    def tree(self, inputs: Sequence[str]) -> Tree:
        """See `Operation`."""
        pre, *gate = named(inputs)
        if self.kind == "swiglu":
            return Call("multiply", (Call("silu", tuple(gate)), pre))
        if self.kind == "squared_relu":
            return Call("power", (Call("relu", (pre,)), Constant(2.0)))
        return Call(self.kind, (pre,))

    def formula(self) -> Expression:
        """φ(mlp.pre)."""
        if self.kind == "swiglu":
            return Product((Apply("SiLU", (Name("mlp.gate"),)), Name("mlp.pre")))
        return Apply(self.written[self.kind], (Name("mlp.pre"),))

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """The function of one number."""
        entry = float(inputs[0][index])
        rule: Expression = Apply(self.written[self.kind], (namer.cell("mlp.pre", *index),))
        if self.kind == "gelu":
            share = 0.5 * (1 + math.erf(entry / math.sqrt(2)))
            return (
                rule,
                Product((Number(entry), Apply("Φ", (Number(entry),)))),
                Product((Number(entry), Number(share))),
            )
        if self.kind == "swiglu":
            gate = float(inputs[1][index])
            rule = Product((Apply("SiLU", (namer.cell("mlp.gate", *index),)), namer.cell("mlp.pre", *index)))
            return (rule, Product((Number(gate / (1 + math.exp(-gate))), Number(entry))))
        largest: Expression = Apply("max", (Number(0, exact=True), Number(entry)))
        return (rule, Power(largest, Number(2, exact=True)) if self.kind == "squared_relu" else largest)
