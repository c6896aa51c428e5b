"""The operations a computation is made of: how each makes its numbers, and how one number is worked out by hand.

An operation is called with its inputs and gives its output; the mathematics is that of `vitral.attention.steps` and
PyTorch. `stages` writes the same for one cell: the rule in names, then in numbers. Per-head quantities carry a
leading axis of heads.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from vitral.attention import scales, steps
from vitral.explain.notation import (
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
    Words,
)
from vitral.model.feedforward import ACTIVATIONS
from vitral.model.positions import sinusoids

Index = tuple[int, ...]
EXP = Name("e")
MOST_EXPONENT = 20.0
"""Larger entries have the row's largest taken off before e is raised to them: e^20 is 485,165,195 already."""


@dataclass(frozen=True)
class Scribe:
    """How things are called in written arithmetic.

    Attributes:
        first: what the first row and column are called: 1 in worked examples, as on paper; 0 for tensors.
    """

    first: int = 1

    def cell(self, name: str, *index: int) -> Name:
        """One number: scores with 2,1 below."""
        return Name(name, below=",".join(str(place + self.first) for place in index))

    def column(self, letters: str, above: str, column: int) -> Name:
        """A column of a matrix: W^Q with :,1 below."""
        return Name(letters, below=f":,{column + self.first}", above=above)


class Operation(Protocol):
    """What makes a quantity of others. One that only passes some numbers on says where they come from: `passes`."""

    def __call__(self, *inputs: Any) -> Tensor:
        """The quantity."""
        ...

    def formula(self) -> Expression:
        """How it is written."""
        ...

    def stages(self, inputs: Sequence[Tensor], index: Index, scribe: Scribe) -> tuple[Expression, ...]:
        """The right-hand sides for one cell: the rule in names, then in numbers."""
        ...


def numbers(values: Tensor) -> list[Number]:
    """A vector's entries, to be written."""
    return [Number(value) for value in values.tolist()]


def dot(left: Tensor, right: Tensor, *extra: float) -> Sum:
    """A dot product in numbers, and what is added to it."""
    pairs = zip(numbers(left), numbers(right), strict=True)
    return Sum((*(Product(pair) for pair in pairs), *(Number(term) for term in extra)))


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
        """left + right."""
        return Sum((Name(self.left), Name(self.right)))

    def stages(self, inputs: Sequence[Tensor], index: Index, scribe: Scribe) -> tuple[Expression, ...]:
        """Two numbers."""
        rule = Sum((scribe.cell(self.left, *index), scribe.cell(self.right, *index)))
        return (rule, Sum(tuple(Number(float(term[index])) for term in inputs)))


@dataclass(frozen=True)
class Project:
    """Queries, keys or values of every head: x W + b.

    Attributes:
        letter: "Q", "K" or "V".
        of: what is projected, as "x".
    """

    letter: str
    of: str = "x"

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """[heads, time, d_head] of [time, d_model] and [heads, d_model, d_head]."""
        biases = [None] * len(weight) if bias is None else list(bias)
        return torch.stack([steps.project(x, w.T, b) for w, b in zip(weight, biases, strict=True)])

    def formula(self) -> Expression:
        """X W."""
        return Product((Name(self.of), Name("W", above=self.letter)), tight=True)

    def stages(self, inputs: Sequence[Tensor], index: Index, scribe: Scribe) -> tuple[Expression, ...]:
        """A row of x times a column of the matrix."""
        (x, weight, *bias), (head, row, column) = inputs, index
        extra = [float(bias[0][head, column])] if bias else []
        return _linear(x[row], weight[head][:, column], extra, (self.of, self.letter, row, column), scribe)


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
        return _linear(x[row], values, extra, (self.of, self.letter, row, column), scribe)


def _linear(
    x: Tensor, values: Tensor, extra: list[float], names: tuple[str, str, int, int], scribe: Scribe
) -> tuple[Expression, ...]:
    of, letter, row, column = names
    rule: Expression = Product((scribe.cell(of, row), scribe.column("W", letter, column)))
    if extra:
        rule = Sum((rule, Name("b", below=str(column + scribe.first), above=letter)))
    return (rule, dot(x, values, *extra))


@dataclass(frozen=True)
class Turn:
    """Queries or keys turned in pairs by position: rotary (Su et al. 2021, eq. 34).

    Attributes:
        letter: "q" or "k".
        frequencies: [d_head / 2], radians per position.
    """

    letter: str
    frequencies: Tensor

    def __call__(self, straight: Tensor) -> Tensor:
        """The same, turned, [heads, time, d_head]."""
        positions = torch.arange(straight.shape[-2], dtype=self.frequencies.dtype)
        angles = torch.outer(positions, self.frequencies)
        first, second = straight.chunk(2, dim=-1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)

    def formula(self) -> Expression:
        """Turned by an angle that grows with position."""
        return Apply("turn", (Name(f"{self.letter}_straight"), Name("position")))

    def stages(self, inputs: Sequence[Tensor], index: Index, scribe: Scribe) -> tuple[Expression, ...]:
        """The pair it belongs to, and the angle."""
        head, row, column = index
        values, half = inputs[0][head, row], len(self.frequencies)
        low = column % half
        angle = row * float(self.frequencies[low])
        functions = ("cos", "sin") if column < half else ("sin", "cos")
        parts = (low, low + half)
        written = Number(angle)
        rule = [
            Product((scribe.cell(f"{self.letter}_straight", row, part), Apply(function, (written,))))
            for part, function in zip(parts, functions, strict=True)
        ]
        factors = {"cos": math.cos(angle), "sin": math.sin(angle)}
        terms = [Product((Number(float(values[part])), Number(factors[f]))) for part, f in zip(parts, functions, strict=True)]
        combine = Difference if column < half else lambda left, right: Sum((left, right))
        return (combine(*rule), combine(*terms))


@dataclass(frozen=True)
class Score:
    """Every query with every key: q kᵀ."""

    def __call__(self, q: Tensor, k: Tensor) -> Tensor:
        """[heads, time, source]; fewer key heads are shared by groups of query heads."""
        return steps.score(q, k.repeat_interleave(len(q) // len(k), dim=0))

    def formula(self) -> Expression:
        """Q Kᵀ."""
        return Product((Name("q"), Name("k", above="T")), tight=True)

    def stages(self, inputs: Sequence[Tensor], index: Index, scribe: Scribe) -> tuple[Expression, ...]:
        """A dot product."""
        (q, k), (head, row, column) = inputs, index
        rule = Product((scribe.cell("q", row), scribe.cell("k", column)))
        return (rule, dot(q[head, row], k[head * len(k) // len(q), column]))


@dataclass(frozen=True)
class Scale:
    """Scores times a number: given, or 1/σ of each row's visible scores.

    Attributes:
        kind: the scale's name, or "number".
        factor: the number, or one per head, [heads, 1, 1]; for "adaptive" the number where σ cannot be used.
        allowed: for "adaptive": which keys each query may see.
        d_head: the width of a head, where it is known.
    """

    kind: str
    factor: Tensor
    allowed: Tensor | None = None
    d_head: int | None = None

    def passes(self, inputs: Sequence[Tensor], index: Index) -> tuple[str, Index] | None:
        """Without a scale the score itself."""
        return ("scores", index) if self.kind == "none" else None

    def factors(self, scores: Tensor) -> Tensor:
        """What each row of scores is multiplied with, [heads, time or 1, 1]."""
        if self.kind != "adaptive":
            return self.factor
        assert self.allowed is not None
        return scales.spread_factor(scores, self.allowed, float(self.factor))

    def __call__(self, scores: Tensor) -> Tensor:
        """[heads, time, source]."""
        return steps.scale(scores, self.factors(scores))

    def formula(self) -> Expression:
        """Scores over √d_k, or what else the scale is."""
        width = Name("d", below="k")
        below: dict[str, Expression] = {"sqrt": Root(width), "linear": width, "adaptive": Name("σ", below="row")}
        if self.kind in below:
            return Fraction(Name("scores"), below[self.kind])
        return Name("scores") if self.kind == "none" else Product((Name("s"), Name("scores")))

    def stages(self, inputs: Sequence[Tensor], index: Index, scribe: Scribe) -> tuple[Expression, ...]:
        """One score, over the root or times the factor."""
        head, row, column = index
        score = Number(float(inputs[0][index]))
        rule = scribe.cell("scores", row, column)
        factor = float(self.factors(inputs[0]).expand(len(inputs[0]), inputs[0].shape[1], 1)[head, row, 0])
        if self.kind == "none":
            return (rule,)
        if self.kind == "adaptive":
            return (Fraction(rule, Name("σ", below=str(row + scribe.first))), Fraction(score, Number(1 / factor)))
        if self.d_head is not None and self.kind in ("sqrt", "linear"):
            width = Number(self.d_head, exact=True)
            below = Root(width) if self.kind == "sqrt" else width
            return (Fraction(rule, below), Fraction(score, below))
        return (Product((rule, Name("s"))), Product((score, Number(factor))))


@dataclass(frozen=True)
class Masking:
    """−∞ where looking is not allowed, after the position's bias where there is one.

    Attributes:
        allowed: [heads or 1, time, source], or without heads.
        bias: [heads, time, source], or None.
    """

    allowed: Tensor
    bias: Tensor | None = None

    def passes(self, inputs: Sequence[Tensor], index: Index) -> tuple[str, Index] | None:
        """Where looking is allowed and nothing is added, the scaled score itself."""
        heads = self.allowed if self.allowed.dim() == 3 else self.allowed[None]
        allowed = bool(heads[index[0] % len(heads)][index[1:]])
        return ("scaled", index) if allowed and self.bias is None else None

    def __call__(self, scaled: Tensor) -> Tensor:
        """[heads, time, source]."""
        return steps.mask(scaled if self.bias is None else scaled + self.bias, self.allowed)

    def formula(self) -> Expression:
        """scaled + M."""
        terms = [Name("scaled"), Name("M")] if self.bias is None else [Name("scaled"), Name("bias"), Name("M")]
        return Sum(tuple(terms))

    def stages(self, inputs: Sequence[Tensor], index: Index, scribe: Scribe) -> tuple[Expression, ...]:
        """The number and what is added to it."""
        head, row, column = index
        terms: list[Expression] = [scribe.cell("scaled", row, column)]
        values: list[Expression] = [Number(float(inputs[0][index]))]
        if self.bias is not None:
            terms.append(scribe.cell("bias", row, column))
            values.append(Number(float(self.bias.expand(inputs[0].shape)[index])))
        if not bool(self.allowed.expand(inputs[0].shape)[index]):
            terms.append(Number(-math.inf))
            values.append(Number(-math.inf))
        return (Sum(tuple(terms)), Sum(tuple(values)))


@dataclass(frozen=True)
class Softmax:
    """Each row as shares of one.

    Attributes:
        of: what it is taken of.
    """

    of: str

    def __call__(self, entries: Tensor) -> Tensor:
        """The same shape."""
        return steps.normalise(entries)

    def formula(self) -> Expression:
        """exp over the row's sum of exp."""
        power = Power(EXP, Name(self.of, below="i,j"))
        return Fraction(power, Over("l", Power(EXP, Name(self.of, below="i,l"))))

    def stages(self, inputs: Sequence[Tensor], index: Index, scribe: Scribe) -> tuple[Expression, ...]:
        """The exponents, then the exponentials; impossible entries are not written."""
        row = inputs[0][index[:-1]]
        entries = [entry for entry in row.tolist() if entry != -math.inf]
        if not entries:
            return (Words("0"),)
        largest = max(entries) if max(abs(entry) for entry in entries) > MOST_EXPONENT else 0.0
        place = [part for part in index[-2:]]
        rule = Fraction(Power(EXP, scribe.cell(self.of, *place)), Over("l", Power(EXP, Name(self.of, below=f"{scribe.cell('', *place[:-1]).below},l".lstrip(",")))))
        entry = float(row[index[-1]])

        def raised(value: float) -> Expression:
            exponent = Number(value) if largest == 0 else Difference(Number(value), Number(largest))
            return Power(EXP, exponent)

        exponents = Fraction(raised(entry), Sum(tuple(raised(value) for value in entries)))
        values = Fraction(
            Number(math.exp(entry - largest)), Sum(tuple(Number(math.exp(value - largest)) for value in entries))
        )
        return (rule, exponents, values)


@dataclass(frozen=True)
class Weigh:
    """The weighted values: weights v."""

    def __call__(self, weights: Tensor, v: Tensor) -> Tensor:
        """[heads, time, d_head]; fewer value heads are shared by groups of query heads."""
        return steps.weigh(weights, v.repeat_interleave(len(weights) // len(v), dim=0))

    def formula(self) -> Expression:
        """weights v."""
        return Product((Name("weights"), Name("v")), tight=True)

    def stages(self, inputs: Sequence[Tensor], index: Index, scribe: Scribe) -> tuple[Expression, ...]:
        """The values it sees, each times its weight; weights of zero add nothing and are not written."""
        (weights, v), (head, row, column) = inputs, index
        shares, values = weights[head, row], v[head * len(v) // len(weights), :, column]
        seen = [j for j in range(len(shares)) if shares[j] != 0]
        rule = Over("j", Product((Name("weights", below=f"{row + scribe.first},j"), Name("v", below=f"j,{column + scribe.first}"))))
        return (rule, dot(shares[seen], values[seen]))


@dataclass(frozen=True)
class Output:
    """The heads side by side, times W_O if there is one.

    Attributes:
        num_heads: how many there are.
        projects: whether there is a matrix.
    """

    num_heads: int
    projects: bool

    def passes(self, inputs: Sequence[Tensor], index: Index) -> tuple[str, Index] | None:
        """Without a matrix one head's z."""
        head, column = divmod(index[1], inputs[0].shape[-1])
        return None if self.projects else ("z", (head, index[0], column))

    def __call__(self, z: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        """[time, d_model] of [heads, time, d_head] and [heads * d_head, d_model]."""
        together = steps.merge_heads(z)
        return together if weight is None else steps.project(together, weight.T, bias)

    def formula(self) -> Expression:
        """Concat(z) W_O."""
        together = Apply("Concat", (Name("z"),)) if self.num_heads > 1 else Name("z")
        return Product((together, Name("W", above="O")), tight=True) if self.projects else together

    def stages(self, inputs: Sequence[Tensor], index: Index, scribe: Scribe) -> tuple[Expression, ...]:
        """A row of all heads' z times a column; without a matrix, the number itself."""
        (z, *rest), (row, column) = inputs, index
        if not rest:
            width = z.shape[-1]
            name = scribe.cell("z", row, column % width)
            return (Name(name.letters, name.below, str(column // width + scribe.first)),) if self.num_heads > 1 else (name,)
        together = steps.merge_heads(z)[row]
        extra = [float(rest[1][column])] if len(rest) > 1 else []
        of = "z" if self.num_heads == 1 else "Concat(z)"
        return _linear(together, rest[0][:, column], extra, (of, "O", row, column), scribe)


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
            rule: Expression = Fraction(name, Root(Sum((Apply("mean", (Power(scribe.cell(self.of, row), two),)), Name("ε")))))
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
            return (rule, Product((Number(entry), Apply("Φ", (Number(entry),)))), Product((Number(entry), Number(share))))
        if self.kind == "swiglu":
            gate = float(inputs[1][index])
            rule = Product((Apply("SiLU", (scribe.cell("gate", *index),)), scribe.cell("pre_activation", *index)))
            return (rule, Product((Number(gate / (1 + math.exp(-gate))), Number(entry))))
        largest: Expression = Apply("max", (Number(0, exact=True), Number(entry)))
        return (rule, Power(largest, Number(2, exact=True)) if self.kind == "squared_relu" else largest)
