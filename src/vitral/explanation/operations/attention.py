"""The operations of attention: the steps of `vitral.attention.steps`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from vitral.attention import scales, steps
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
    Over,
    Power,
    Product,
    Root,
    Sum,
    Words,
)
from vitral.explanation.operations.base import (
    CellNamer,
    Index,
    dot,
    linear_stages,
    linear_tree,
    named,
    spread,
)

EXP = Name("e")
MOST_EXPONENT = 20.0
"""If an exponent is larger, the largest of its row is subtracted first: e^20 is already 485,165,195."""
LEAST_EXPONENT = -5.0
"""If all exponents of a row are smaller, too: e^−5 is already 0.007."""
CONCATENATED = "Concat(z)"
"""Name of the heads' outputs side by side."""
SPREAD = N_("standard deviation of the visible scores of its row, or the root of d_k if they do not differ")
MASK = N_("0 where attention is allowed, −∞ elsewhere")


@dataclass(frozen=True)
class Project:
    """Queries, keys or values of every head: x W + b.

    Attributes:
        letter: "Q", "K" or "V".
        of: name of the input, as "x".
    """

    letter: str
    of: str = "x"

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """[heads, time, d_head] of [time, d_model] and [heads, d_model, d_head]."""
        biases = [None] * len(weight) if bias is None else list(bias)
        return torch.stack([steps.project(x, w.T, b) for w, b in zip(weight, biases, strict=True)])

    def tree(self, inputs: Sequence[str]) -> Tree:
        """See `Operation`."""
        x, weight, *bias = named(inputs)
        return linear_tree(Call("split head axis", (x,)), weight, [Call("row axis", (each,)) for each in bias])

    def formula(self) -> Expression:
        """X W."""
        return Product((Name(self.of), Name("W", above=self.letter)), tight=True)

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """A row of x times a column of the matrix."""
        (x, weight, *bias), (head, row, column) = inputs, index
        extra = [float(bias[0][head, column])] if bias else []
        return linear_stages(x[row], weight[head][:, column], extra, (self.of, self.letter, row, column), namer)


@dataclass(frozen=True)
class Score:
    """Every query with every key: q kᵀ."""

    def __call__(self, q: Tensor, k: Tensor) -> Tensor:
        """[heads, time, source]; with fewer key heads than query heads, each serves a group of them."""
        return steps.score(q, k.repeat_interleave(len(q) // len(k), dim=0))

    def tree(self, inputs: Sequence[str]) -> Tree:
        """See `Operation`."""
        q, k = named(inputs)
        return Call("matmul", (q, Call("transpose", (Call("match heads", (k, q)),))))

    def formula(self) -> Expression:
        """Q Kᵀ."""
        return Product((Name("q"), Name("k", above="T")), tight=True)

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """A dot product."""
        (q, k), (head, row, column) = inputs, index
        rule = Product((namer.cell("q", row), namer.cell("k", column)))
        return (rule, dot(q[head, row], k[head * len(k) // len(q), column]))


@dataclass(frozen=True)
class Scale:
    """Scores times a factor: a given one, or 1/σ of each row's visible scores.

    Attributes:
        kind: the scale's name, or "number".
        factor: the factor, or one for each head, [heads, 1, 1]; of "adaptive" the factor for rows without spread.
        allowed: for "adaptive", the keys that each query may attend to.
        d_head: the width of a head, if it is known.
    """

    kind: str
    factor: Tensor
    allowed: Tensor | None = None
    d_head: int | None = None

    def passes(self, inputs: Sequence[Tensor], index: Index) -> tuple[str, Index] | None:
        """Without scaling, the score."""
        return ("scores", index) if self.kind == "none" else None

    def factors(self, scores: Tensor) -> Tensor:
        """The factor of each row of scores, [heads, time or 1, 1]."""
        if self.kind != "adaptive":
            return self.factor
        assert self.allowed is not None
        return scales.spread_factor(scores, self.allowed, float(self.factor))

    def has_spread(self, scores: Tensor) -> Tensor:
        """For "adaptive", whether a row has two visible scores or more that differ, [heads, time]."""
        assert self.allowed is not None
        return scales.spread_factor(scores, self.allowed, 0.0)[:, :, 0] != 0

    def __call__(self, scores: Tensor) -> Tensor:
        """[heads, time, source]."""
        return steps.scale(scores, self.factors(scores))

    def tree(self, inputs: Sequence[str]) -> Tree:
        """See `Operation`."""
        [scores] = named(inputs)
        if self.kind == "none":
            return scores
        if self.kind in ("sqrt", "linear") and self.d_head is not None:
            width: Tree = Constant(float(self.d_head))
            return Call("divide", (scores, Call("sqrt", (width,)) if self.kind == "sqrt" else width))
        if self.kind != "adaptive":
            return Call("multiply", (scores, Constant.of(self.factor)))
        assert self.allowed is not None
        factor = Call("spread factor", (scores, Constant.of(self.allowed), Constant.of(self.factor)))
        return Call("multiply", (scores, factor))

    def formula(self) -> Expression:
        """Scores over √d_k, over d_k, over σ, or times a factor."""
        width = Name("d", below="k")
        below: dict[str, Expression] = {"sqrt": Root(width), "linear": width, "adaptive": Name("σ", below="row")}
        if self.kind in below:
            return Fraction(Name("scores"), below[self.kind])
        return Name("scores") if self.kind == "none" else Product((Name("s"), Name("scores")))

    def after(self, name: str) -> tuple[Equation, ...]:
        """The width of a head, the factor, or the spread of a row in words."""
        if self.kind in ("sqrt", "linear"):
            width = None if self.d_head is None else Number(self.d_head, exact=True)
            return () if width is None else (Equation((Name("d", below="k"), width)),)
        if self.kind == "adaptive":
            return (Equation((Name("σ", below="row"), Words(SPREAD))),)
        single = self.kind != "none" and self.factor.numel() == 1
        return (Equation((Name("s"), Number(float(self.factor)))),) if single else ()

    def before(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Equation, ...]:
        """For "adaptive", mean and standard deviation of the row's visible scores."""
        head, row, _ = index
        if self.kind != "adaptive" or not self.has_spread(inputs[0])[head, row]:
            return ()
        assert self.allowed is not None
        visible = inputs[0][head, row][self.allowed.expand(inputs[0].shape)[head, row]]
        mean, variance = spread(visible)
        below = Name("σ", below=str(row + namer.first))
        root = Number(float(visible.std(unbiased=False)))
        return mean, Equation((below, Root(variance.sides[1]), Root(variance.sides[2]), root))

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """One score, divided by √d_k, d_k or σ, or times the factor."""
        head, row, column = index
        score = Number(float(inputs[0][index]))
        rule = namer.cell("scores", row, column)
        factor = float(self.factors(inputs[0]).expand(len(inputs[0]), inputs[0].shape[1], 1)[head, row, 0])
        if self.kind == "none":
            return (rule,)
        if self.kind == "adaptive" and self.d_head is not None and not self.has_spread(inputs[0])[head, row]:
            below = Root(Number(self.d_head, exact=True))  # a single key, or equal scores
            return (Fraction(rule, below), Fraction(score, below))
        if self.kind == "adaptive":
            return (Fraction(rule, Name("σ", below=str(row + namer.first))), Fraction(score, Number(1 / factor)))
        if self.d_head is not None and self.kind in ("sqrt", "linear"):
            width = Number(self.d_head, exact=True)
            below = Root(width) if self.kind == "sqrt" else width
            return (Fraction(rule, below), Fraction(score, below))
        return (Product((rule, Name("s"))), Product((score, Number(factor))))


@dataclass(frozen=True)
class ApplyMask:
    """Add the position bias, if there is one, and put −∞ where attention is not allowed.

    Attributes:
        allowed: [heads or 1, time, source], or without heads.
        bias: [heads, time, source], or None.
    """

    allowed: Tensor
    bias: Tensor | None = None

    def passes(self, inputs: Sequence[Tensor], index: Index) -> tuple[str, Index] | None:
        """Where attention is allowed and there is no bias, the scaled score."""
        heads = self.allowed if self.allowed.dim() == 3 else self.allowed[None]
        allowed = bool(heads[index[0] % len(heads)][index[1:]])
        return ("scaled", index) if allowed and self.bias is None else None

    def __call__(self, scaled: Tensor) -> Tensor:
        """[heads, time, source]."""
        return steps.mask(scaled if self.bias is None else scaled + self.bias, self.allowed)

    def tree(self, inputs: Sequence[str]) -> Tree:
        """See `Operation`."""
        [scaled] = named(inputs)
        if self.bias is not None:
            scaled = Call("add", (scaled, Constant.of(self.bias)))
        if bool(self.allowed.all()):
            return scaled
        return Call("where", (Constant.of(self.allowed), scaled, Constant(-math.inf)))

    def formula(self) -> Expression:
        """Scaled + M."""
        terms = [Name("scaled"), Name("M")] if self.bias is None else [Name("scaled"), Name("bias"), Name("M")]
        return Sum(tuple(terms))

    def after(self, name: str) -> tuple[Equation, ...]:
        """The mask in words."""
        return (Equation((Name("M"), Words(MASK))),)

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """The scaled score and the numbers added to it."""
        _, row, column = index
        terms: list[Expression] = [namer.cell("scaled", row, column)]
        values: list[Expression] = [Number(float(inputs[0][index]))]
        if self.bias is not None:
            terms.append(namer.cell("bias", row, column))
            values.append(Number(float(self.bias.expand(inputs[0].shape)[index])))
        if not bool(self.allowed.expand(inputs[0].shape)[index]):
            terms.append(Number(-math.inf))
            values.append(Number(-math.inf))
        return (Sum(tuple(terms)), Sum(tuple(values)))


@dataclass(frozen=True)
class Softmax:
    """Softmax of each row.

    Attributes:
        of: name of the input.
        base: of the exponentials; e as in the definition.
    """

    of: str
    base: float = math.e
    subscript: ClassVar[str] = "i,j"

    def __call__(self, entries: Tensor) -> Tensor:
        """The same shape."""
        return steps.normalise(entries if self.base == math.e else entries * math.log(self.base))

    @property
    def _base(self) -> Expression:
        return EXP if self.base == math.e else Number(self.base, exact=True)

    def tree(self, inputs: Sequence[str]) -> Tree:
        """See `Operation`."""
        scores: Tree = Reference(inputs[0])
        if self.base != math.e:
            scores = Call("multiply", (scores, Constant(math.log(self.base))))
        return Call("softmax of scores", (scores,))

    def formula(self) -> Expression:
        """Exponential over the row's sum of exponentials."""
        power = Power(self._base, Name(self.of, below="i,j"))
        return Fraction(power, Over("l", Power(self._base, Name(self.of, below="i,l"))))

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """The exponents, then the exponentials; that of a masked entry is 0."""
        row = inputs[0][index[:-1]]
        entries = row.tolist()
        visible = [entry for entry in entries if entry != -math.inf]
        if not visible:
            return (Number(0, exact=True),)
        shifts = max(map(abs, visible)) > MOST_EXPONENT or max(visible) < LEAST_EXPONENT
        largest = max(visible) if shifts else 0.0
        place = index[-2:]
        rule = Fraction(
            Power(self._base, namer.cell(self.of, *place)),
            Over("l", Power(self._base, Name(self.of, below=f"{namer.cell('', *place[:-1]).below},l".lstrip(",")))),
        )
        entry = float(row[index[-1]])

        def raised(value: float) -> Expression:
            is_plain = largest == 0 or value == -math.inf
            return Power(self._base, Number(value) if is_plain else Difference(Number(value), Number(largest)))

        exponents = Fraction(raised(entry), Sum(tuple(raised(value) for value in entries)))
        values = Fraction(
            Number(self.base ** (entry - largest)),
            Sum(tuple(Number(self.base ** (value - largest)) for value in entries)),
        )
        return (rule, exponents, values)


@dataclass(frozen=True)
class Weigh:
    """The weighted sum of values: weights v."""

    def __call__(self, weights: Tensor, v: Tensor) -> Tensor:
        """[heads, time, d_head]; with fewer value heads than query heads, each serves a group of them."""
        return steps.weigh(weights, v.repeat_interleave(len(weights) // len(v), dim=0))

    def tree(self, inputs: Sequence[str]) -> Tree:
        """See `Operation`."""
        weights, v = named(inputs)
        return Call("matmul", (weights, Call("match heads", (v, weights))))

    def formula(self) -> Expression:
        """Weights v."""
        return Product((Name("weights"), Name("v")), tight=True)

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """Each value times its weight; terms with weight 0 are omitted."""
        (weights, v), (head, row, column) = inputs, index
        shares, values = weights[head, row], v[head * len(v) // len(weights), :, column]
        seen = [j for j in range(len(shares)) if shares[j] != 0]
        rule = Over(
            "j",
            Product((Name("weights", below=f"{row + namer.first},j"), Name("v", below=f"j,{column + namer.first}"))),
        )
        return (rule, dot(shares[seen], values[seen]))


@dataclass(frozen=True)
class Output:
    """The heads concatenated, times W_O if there is one.

    Attributes:
        num_heads: number of query heads.
        projects: whether there is a matrix.
    """

    num_heads: int
    projects: bool

    def passes(self, inputs: Sequence[Tensor], index: Index) -> tuple[str, Index] | None:
        """Without a matrix, a cell of one head's z."""
        head, column = divmod(index[1], inputs[0].shape[-1])
        return None if self.projects else ("z", (head, index[0], column))

    def __call__(self, z: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        """[time, d_model] of [heads, time, d_head] and [heads * d_head, d_model]."""
        together = steps.merge_heads(z)
        return together if weight is None else steps.project(together, weight.T, bias)

    def tree(self, inputs: Sequence[str]) -> Tree:
        """See `Operation`."""
        z, *rest = named(inputs)
        together = Call("merge heads", (z,))
        return linear_tree(together, rest[0], rest[1:]) if rest else together

    def formula(self) -> Expression:
        """Concat(z) W_O."""
        together = Apply("Concat", (Name("z"),)) if self.num_heads > 1 else Name("z")
        return Product((together, Name("W", above="O")), tight=True) if self.projects else together

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """A row of the concatenated heads times a column of W_O; without a matrix, the number itself."""
        (z, *rest), (row, column) = inputs, index
        if not rest:
            width = z.shape[-1]
            head = (column // width,) if self.num_heads > 1 else ()
            return (namer.cell("z", *head, row, column % width),)
        together = steps.merge_heads(z)[row]
        extra = [float(rest[1][column])] if len(rest) > 1 else []
        of = "z" if self.num_heads == 1 else CONCATENATED
        return linear_stages(together, rest[0][:, column], extra, (of, "O", row, column), namer)
