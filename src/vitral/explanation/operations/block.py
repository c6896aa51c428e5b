"""The other operations of a model: embeddings, residual sums, norms, feed-forward, head."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from vitral.attention import steps
from vitral.core.language import N_
from vitral.explanation.expressions.tree import Call, Constant, Reference, Tree
from vitral.explanation.formulas.notation import (
    Apply,
    Difference,
    Equation,
    Expression,
    Fraction,
    Name,
    Number,
    Power,
    Product,
    Root,
    Sum,
    Words,
)
from vitral.explanation.operations.base import (
    MEAN,
    TWO,
    VARIANCE,
    CellNamer,
    Index,
    dot,
    linear_stages,
    linear_tree,
    named,
    spread,
    squares,
)
from vitral.model.activations import ACTIVATIONS
from vitral.model.positions import sinusoids

FROM_ONE = N_("position p is counted from 1, column 2i from 0")
FROM_ZERO = N_("p and 2i are counted from 0")
ONE = Number(1, exact=True)
CUBIC = 0.044715
"""The coefficient of x³ in GELU by tanh."""


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
    """The sinusoidal position embedding (Vaswani et al. 2017, §3.5).

    Attributes:
        time: number of positions.
        width: of the stream.
        base: of the angles' rates.
        halves: whether all sines stand before all cosines.
        first: number of the first position.
    """

    time: int
    width: int
    base: float = 10_000.0
    halves: bool = False
    first: int = 0

    def __call__(self) -> Tensor:
        """[time, d_model]."""
        if (self.base, self.halves, self.first) == (10_000.0, False, 0):
            return sinusoids(self.time, self.width)
        columns = [self._place(column) for column in range(self.width)]
        rates = torch.tensor([self.base ** -(even / self.width) for even, _ in columns], dtype=torch.float64)
        angles = torch.outer(torch.arange(self.time, dtype=torch.float64) + self.first, rates)
        return torch.where(torch.tensor([sine for _, sine in columns]), angles.sin(), angles.cos())

    def _place(self, column: int) -> tuple[int, bool]:
        """The 2i of a column, and whether it is a sine."""
        if self.halves:
            half = (self.width + 1) // 2
            return 2 * (column % half), column < half
        return column - column % 2, column % 2 == 0

    @property
    def subscript(self) -> str:
        """The place of a sine in the formula."""
        return "p,i" if self.halves else "p,2i"

    @property
    def _angle(self) -> Expression:
        return Fraction(Name("p"), Power(Number(self.base, exact=True), Fraction(Name("2i"), Name("d", below="model"))))

    def tree(self, inputs: Sequence[str]) -> Tree:
        """See `Operation`."""
        even, sine = zip(*map(self._place, range(self.width)), strict=True)
        exponents = Call("divide", (Constant.of(torch.tensor(even)), Constant(float(self.width))))
        rates = Call("power", (Constant(self.base), exponents))
        positions = Constant.of(torch.arange(self.time, dtype=torch.float64)[:, None] + self.first)
        angles = Call("divide", (positions, rates))
        return Call("where", (Constant.of(torch.tensor(sine)), Call("sin", (angles,)), Call("cos", (angles,))))

    def formula(self) -> Expression:
        """Sine of even columns, or of the first half; the cosine of the others is a further equation."""
        return Apply("sin", (self._angle,))

    def after(self, name: str) -> tuple[Equation, ...]:
        """The cosine of the other columns, and the meaning of the letters."""
        width = Number(self.width, exact=True)
        words = FROM_ONE if self.first == 1 else FROM_ZERO
        half = (Equation((Name("h"), Number((self.width + 1) // 2, exact=True))),) if self.halves else ()
        return (
            Equation((Name(name, below="p,i+h" if self.halves else "p,2i+1"), Apply("cos", (self._angle,)))),
            *half,
            Equation((Name("d", below="model"), width)),
            *([Equation((Words(words),))] if not self.halves else []),
        )

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """Sine or cosine of the position over a power of the base."""
        position, column = index[0] + self.first, index[1]
        even, sine = self._place(column)
        exponent = Fraction(Number(even, exact=True), Number(self.width, exact=True))
        rate = Power(Number(self.base, exact=True), exponent)
        angle = position / self.base ** (even / self.width)
        function = "sin" if sine else "cos"
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
        """(x - μ) / √(σ² + ε), or x over the root mean square."""
        return self._rule(Name(self.of), Name(self.of))

    def after(self, name: str) -> tuple[Equation, ...]:
        """Mean and variance of each row, and ε."""
        entries, least = Name(self.of), Equation((Name("ε"), Number(self.epsilon, exact=True)))
        if self.kind == "rmsnorm":
            return (least,)
        distances = Power(Difference(entries, MEAN), TWO)
        return (
            Equation((MEAN, Apply("mean", (entries,)))),
            Equation((VARIANCE, Apply("mean", (distances,)))),
            least,
        )

    def before(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Equation, ...]:
        """Mean and variance of the row, or the mean of its squares."""
        values = inputs[0][index[0]]
        if self.kind == "layernorm":
            return spread(values)
        square = Apply("mean", (Power(namer.cell(self.of, index[0]), TWO),))
        return (Equation((square, *squares(values))),)

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """The quotient, gain and bias: first in names, then in numbers."""
        (x, gain, *bias), (row, column) = inputs, index
        values, entry = x[row], Number(float(x[row, column]))
        least = Number(self.epsilon, exact=True)
        rule = self._rule(namer.cell(self.of, row, column), namer.cell(self.of, row))
        if self.kind == "rmsnorm":
            quotient: Expression = Fraction(entry, Root(Sum((Number(float(values.square().mean())), least))))
        else:
            mean, variance = Number(float(values.mean())), Number(float(values.var(unbiased=False)))
            quotient = Fraction(Difference(entry, mean), Root(Sum((variance, least))))
        if float(gain[column]) != 1:
            rule = Product((Name("g", below=str(column + namer.first)), rule))
            quotient = Product((Number(float(gain[column])), quotient))
        if bias and float(bias[0][column]) != 0:
            rule = Sum((rule, Name("b", below=str(column + namer.first))))
            quotient = Sum((quotient, Number(float(bias[0][column]))))
        return (rule, quotient)

    def _rule(self, cell: Name, row: Name) -> Expression:
        if self.kind == "rmsnorm":
            return Fraction(cell, Root(Sum((Apply("mean", (Power(row, TWO),)), Name("ε")))))
        return Fraction(Difference(cell, MEAN), Root(Sum((VARIANCE, Name("ε")))))


def tanh_argument(x: float) -> float:
    """The number whose tanh GELU by tanh takes: √(2/π) · (x + 0.044715 x³)."""
    return math.sqrt(2 / math.pi) * (x + CUBIC * x**3)


@dataclass(frozen=True)
class Activate:
    """The feed-forward's activation: ReLU, its square, GELU, GELU by tanh; for SwiGLU the product silu(gate) · pre.

    Attributes:
        kind: as `model.feed_forward` names it.
    """

    kind: str
    written: ClassVar[dict[str, str]] = {
        "relu": "ReLU",
        "gelu": "GELU",
        "gelu_tanh": "TanhGELU",
        "squared_relu": "ReLU²",
        "swiglu": "SiLU",
    }

    def __call__(self, *inputs: Tensor) -> Tensor:
        """The same shape."""
        if self.kind == "swiglu":
            pre, gate = inputs
            return functional.silu(gate) * pre
        return ACTIVATIONS[self.kind].function(inputs[0])

    def tree(self, inputs: Sequence[str]) -> Tree:
        """See `Operation`."""
        pre, *gate = named(inputs)
        if self.kind == "swiglu":
            return Call("multiply", (Call("silu", tuple(gate)), pre))
        if self.kind == "squared_relu":
            return Call("power", (Call("relu", (pre,)), Constant(2.0)))
        if self.kind == "gelu_tanh":
            cube = Call("multiply", (Constant(CUBIC), Call("power", (pre, Constant(3.0)))))
            inner = Call("multiply", (Constant(math.sqrt(2 / math.pi)), Call("add", (pre, cube))))
            half = Call("divide", (pre, Constant(2.0)))
            return Call("multiply", (half, Call("add", (Constant(1.0), Call("tanh", (inner,))))))
        return Call(self.kind, (pre,))

    def formula(self) -> Expression:
        """φ(mlp.pre)."""
        if self.kind == "swiglu":
            return Product((Apply("SiLU", (Name("mlp.gate"),)), Name("mlp.pre")))
        return Apply(self.written[self.kind], (Name("mlp.pre"),))

    def after(self, name: str) -> tuple[Equation, ...]:
        """The function."""
        x = Name("x")
        return (Equation((Apply(self.written[self.kind], (x,)), self._function(x))),)

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """The function of one number, step by step."""
        entry = Number(float(inputs[0][index]))
        if self.kind == "swiglu":
            gate = Number(float(inputs[1][index]))
            opened = float(functional.silu(inputs[1][index]))
            return (
                Product((Apply("SiLU", (namer.cell("mlp.gate", *index),)), namer.cell("mlp.pre", *index))),
                Product((self._function(gate), entry)),
                Product((Number(opened), entry)),
            )
        rule = Apply(self.written[self.kind], (namer.cell("mlp.pre", *index),))
        if self.kind == "gelu":
            share = 0.5 * (1 + math.erf(entry.value / math.sqrt(2)))
            return (rule, self._function(entry), Product((entry, Number(share))))
        if self.kind == "gelu_tanh":
            bent = Number(math.tanh(tanh_argument(entry.value)))
            return (rule, self._function(entry), Product((Fraction(entry, TWO), Sum((ONE, bent)))))
        return (rule, self._function(entry))

    def _function(self, x: Expression) -> Expression:
        if self.kind == "gelu":
            return Product((x, Apply("Φ", (x,))))
        if self.kind == "gelu_tanh":
            cube = Product((Number(CUBIC, exact=True), Power(x, Number(3, exact=True))))
            inner = Product((Root(Fraction(TWO, Name("π"))), Sum((x, cube))))
            return Product((Fraction(x, TWO), Sum((ONE, Apply("tanh", (inner,))))))
        if self.kind == "swiglu":
            opposite = Number(-x.value) if isinstance(x, Number) else Name("−x")
            return Fraction(x, Sum((Number(1, exact=True), Power(Name("e"), opposite))))
        largest = Apply("max", (Number(0, exact=True), x))
        return Power(largest, TWO) if self.kind == "squared_relu" else largest
