"""The operations around attention: embeddings, residual sums, norms, feed-forward, head."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from vitral.attention import steps
from vitral.explain.notation import (
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
from vitral.explain.operations.base import Index, Scribe, dot, linear_stages
from vitral.model.feedforward import ACTIVATIONS
from vitral.model.positions import sinusoids


@dataclass(frozen=True)
class Lookup:
    """Rows of a table: the token embedding.

    Attributes:
        rows: which row of the table each position has.
    """

    rows: tuple[int, ...]

    def __call__(self, table: Tensor) -> Tensor:
        """[time, d_model] of [vocab, d_model]."""
        return table[list(self.rows)]

    def formula(self) -> Expression:
        """Row t of E."""
        return Name("E", below="token")

    def stages(self, inputs: Sequence[Tensor], index: Index, scribe: Scribe) -> tuple[Expression, ...]:
        """The number in the table."""
        row, column = index
        return (scribe.cell("E", self.rows[row], column),)


@dataclass(frozen=True)
class Sinusoid:
    """Positions as sines and cosines (Vaswani et al. 2017, §3.5)."""

    time: int
    width: int

    def __call__(self) -> Tensor:
        """[time, d_model]."""
        return sinusoids(self.time, self.width)

    def formula(self) -> Expression:
        """The sine; odd columns have the cosine."""
        angle = Fraction(Name("p"), Power(Number(10000, exact=True), Fraction(Name("2i"), Name("d", below="model"))))
        return Apply("sin", (angle,))

    def stages(self, inputs: Sequence[Tensor], index: Index, scribe: Scribe) -> tuple[Expression, ...]:
        """The position over a power of 10,000."""
        position, column = index
        even = column - column % 2
        rate = Power(Number(10000, exact=True), Fraction(Number(even, exact=True), Number(self.width, exact=True)))
        angle = position / 10_000 ** (even / self.width)
        function = "cos" if column % 2 else "sin"
        whole = Apply(function, (Fraction(Number(position, exact=True), rate),))
        return (whole, Apply(function, (Number(angle),)))


@dataclass(frozen=True)
class Add:
    """Two quantities of one shape, added: positions to tokens, a part's output to the residual stream."""

    left: str
    right: str

    def __call__(self, left: Tensor, right: Tensor) -> Tensor:
        """The sum."""
        return torch.add(left, right)

    def formula(self) -> Expression:
        """Left + right."""
        return Sum((Name(self.left), Name(self.right)))

    def stages(self, inputs: Sequence[Tensor], index: Index, scribe: Scribe) -> tuple[Expression, ...]:
        """Two numbers."""
        rule = Sum((scribe.cell(self.left, *index), scribe.cell(self.right, *index)))
        return (rule, Sum(tuple(Number(float(term[index])) for term in inputs)))


@dataclass(frozen=True)
class Linear:
    """A linear map of every position: x W + b.

    Attributes:
        letter: what the matrix is called, above W.
        of: what is mapped.
        tied: the matrix is an embedding's, [vocab, d_model], and used transposed.
    """

    letter: str
    of: str
    tied: bool = False

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """[time, width] of [time, d_model] and [d_model, width]."""
        return steps.project(x, weight if self.tied else weight.T, bias)

    def formula(self) -> Expression:
        """X W."""
        matrix = Name("E", above="T") if self.tied else Name("W", above=self.letter)
        return Product((Name(self.of), matrix), tight=True)

    def stages(self, inputs: Sequence[Tensor], index: Index, scribe: Scribe) -> tuple[Expression, ...]:
        """A row of x times a column of the matrix."""
        (x, weight, *bias), (row, column) = inputs, index
        values = weight[column] if self.tied else weight[:, column]
        extra = [float(bias[0][column])] if bias else []
        if self.tied:
            return (Product((scribe.cell(self.of, row), scribe.cell("E", column))), dot(x[row], values, *extra))
        return linear_stages(x[row], values, extra, (self.of, self.letter, row, column), scribe)


@dataclass(frozen=True)
class Normalise:
    """Each position's vector brought to mean 0 and spread 1, then times a gain, plus a bias.

    LayerNorm (Ba et al. 2016, eq. 4) or RMSNorm (Zhang & Sennrich 2019, eq. 4).
    """

    kind: str
    epsilon: float
    of: str

    def __call__(self, x: Tensor, gain: Tensor, bias: Tensor | None = None) -> Tensor:
        """The same shape, [time, d_model]."""
        if self.kind == "rmsnorm":
            return functional.rms_norm(x, x.shape[-1:], gain, self.epsilon)
        return functional.layer_norm(x, x.shape[-1:], gain, bias, self.epsilon)

    def formula(self) -> Expression:
        """(x - μ) / √(σ² + ε)."""
        name = Name(self.of)
        if self.kind == "rmsnorm":
            return Fraction(name, Root(Sum((Apply("mean", (Power(name, Number(2, exact=True)),)), Name("ε")))))
        return Fraction(Difference(name, Name("μ")), Root(Sum((Power(Name("σ"), Number(2, exact=True)), Name("ε")))))

    def stages(self, inputs: Sequence[Tensor], index: Index, scribe: Scribe) -> tuple[Expression, ...]:
        """Mean and variance of the row, then the quotient, gain and bias."""
        (x, gain, *bias), (row, column) = inputs, index
        values, entry = x[row], Number(float(x[row, column]))
        two = Number(2, exact=True)
        name = scribe.cell(self.of, row, column)
        if self.kind == "rmsnorm":
            square = float(values.square().mean())
            rule: Expression = Fraction(
                name, Root(Sum((Apply("mean", (Power(scribe.cell(self.of, row), two),)), Name("ε"))))
            )
            quotient: Expression = Fraction(entry, Root(Number(square + self.epsilon)))
        else:
            rule = Fraction(Difference(name, Name("μ")), Root(Sum((Power(Name("σ"), two), Name("ε")))))
            spread = float(values.var(unbiased=False)) + self.epsilon
            quotient = Fraction(Difference(entry, Number(float(values.mean()))), Root(Number(spread)))
        if float(gain[column]) != 1:
            rule = Product((Name("g", below=str(column + scribe.first)), rule))
            quotient = Product((Number(float(gain[column])), quotient))
        if bias and float(bias[0][column]) != 0:
            rule = Sum((rule, Name("b", below=str(column + scribe.first))))
            quotient = Sum((quotient, Number(float(bias[0][column]))))
        return (rule, quotient)


@dataclass(frozen=True)
class Activate:
    """The feed-forward's bend: ReLU, its square, GELU; or for SwiGLU silu(gate) · up.

    Attributes:
        kind: as `model.feed_forward` names it.
    """

    kind: str
    written: ClassVar[dict[str, str]] = {"relu": "ReLU", "gelu": "GELU", "squared_relu": "ReLU²", "swiglu": "SiLU"}

    def __call__(self, *inputs: Tensor) -> Tensor:
        """The same shape."""
        if self.kind == "swiglu":
            up, gate = inputs
            return functional.silu(gate) * up
        return ACTIVATIONS[self.kind](inputs[0])

    def formula(self) -> Expression:
        """φ(pre_activation)."""
        if self.kind == "swiglu":
            return Product((Apply("SiLU", (Name("gate"),)), Name("pre_activation")))
        return Apply(self.written[self.kind], (Name("pre_activation"),))

    def stages(self, inputs: Sequence[Tensor], index: Index, scribe: Scribe) -> tuple[Expression, ...]:
        """The function of one number."""
        entry = float(inputs[0][index])
        rule: Expression = Apply(self.written[self.kind], (scribe.cell("pre_activation", *index),))
        if self.kind == "gelu":
            share = 0.5 * (1 + math.erf(entry / math.sqrt(2)))
            return (
                rule,
                Product((Number(entry), Apply("Φ", (Number(entry),)))),
                Product((Number(entry), Number(share))),
            )
        if self.kind == "swiglu":
            gate = float(inputs[1][index])
            rule = Product((Apply("SiLU", (scribe.cell("gate", *index),)), scribe.cell("pre_activation", *index)))
            return (rule, Product((Number(gate / (1 + math.exp(-gate))), Number(entry))))
        largest: Expression = Apply("max", (Number(0, exact=True), Number(entry)))
        return (rule, Power(largest, Number(2, exact=True)) if self.kind == "squared_relu" else largest)
