"""Quantities whose formula or arithmetic is written by hand, where their trees do not say it; and names of cells.

Sinusoidal and rotary positions have letters for pairs of columns; choices of the next token, under each rule of
`vitral.decoding`, are searches and no arithmetic of cells.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.language import N_
from vitral.decoding import Sampling
from vitral.explanation.expressions import Call, Constant, Reference, Tree, compute, read
from vitral.explanation.expressions.primitives import hypotheses_of
from vitral.explanation.formulas.notation import (
    Apply,
    Equation,
    Expression,
    Name,
    Number,
    Over,
    Product,
    Sum,
    Words,
    exact,
)
from vitral.model.positions import partners
from vitral.model.settings import ROTARY, LinearScaling, Llama3Scaling, RotaryConfig

Index = tuple[int, ...]
_PLAIN = re.compile(r"[^\W\d_][\w'’-]*")
"""A word that needs no quotes among the names of a formula."""


@dataclass(frozen=True)
class CellNamer:
    """Names of cells, and words of the vocabulary, in written arithmetic.

    Attributes:
        first: the number of the first row and column: 1 in worked examples, as on paper; 0 for tensors.
        vocabulary: the words, if there are any.
    """

    first: int = 1
    vocabulary: tuple[str, ...] = ()

    def cell(self, name: str, *index: int) -> Name:
        """One number: scores with subscript 2,1."""
        return Name(name, below=",".join(str(place + self.first) for place in index))

    def words(self, indices: Iterable[int]) -> Words:
        """Words of the vocabulary, each that is not plain letters in quotes."""
        found = [
            self.vocabulary[index] if index < len(self.vocabulary) else str(index + self.first) for index in indices
        ]
        return Words(" ".join(word if _PLAIN.fullmatch(word) else f"“{word}”" for word in found), own=True)


class Row:
    """The words of one quantity beside its tree.

    Attributes:
        chooses: whether the numbers of the quantity are indices of words.
    """

    chooses = False

    def formula(self, name: str) -> Equation:
        """The formula of the quantity of this name, with the definitions of its letters."""
        raise NotImplementedError

    def worked(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> Equation | None:
        """The right-hand sides for one cell, in names, then in numbers, with what they use; None for the tree's."""
        return None


def numbers(values: Tensor) -> list[Number]:
    """The entries of a vector."""
    return [Number(value) for value in values.tolist()]


FROM_ONE = N_("position p is counted from 1, column 2i from 0")
FROM_ZERO = N_("p and 2i are counted from 0")
LLAMA3 = N_("the rate of pair i, 1 over the base to the power of i/h, scaled as in Llama 3.1")


def _angle(rows: Tensor, base: float, exponents: Tensor, size: int, factor: float | None = None) -> Tree:
    """Positions over powers of the base, as the number on the side that a sine takes."""
    rate: Tree = Call("power", (Constant(base), Call("divide", (Constant.of(exponents), Constant(float(size))))))
    rate = rate if factor is None else Call("multiply", (Constant(factor), rate))
    return Call("aside", (Call("divide", (Constant.of(rows[:, None]), rate)),), ("_angle",))


@dataclass(frozen=True)
class Sinusoids(Row):
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

    def tree(self) -> Tree:
        """The table, [time, width]."""
        columns, half = torch.arange(self.width, dtype=torch.float64), (self.width + 1) // 2
        even = 2 * (columns % half) if self.halves else columns - columns % 2
        sine = columns < half if self.halves else columns % 2 == 0
        angle = _angle(torch.arange(self.time).double() + self.first, self.base, even, self.width)
        return Call("where", (Constant.of(sine), Call("sin", (angle,)), Call("cos", (angle,))))

    def formula(self, name: str) -> Equation:
        """Sine of even columns, or of the first half; then the cosine of the others, and the meaning of the letters."""
        width = Name("d", below="model")
        angle = Name("p") / exact(self.base) ** (Name("2i") / width)
        sine, cosine = ("p,i", "p,i+h") if self.halves else ("p,2i", "p,2i+1")
        half = Equation((Name("h"), exact((self.width + 1) // 2)))
        after = [Equation((Name(name, below=cosine), Apply("cos", (angle,)))), Equation((width, exact(self.width)))]
        after[1:1] = [half] if self.halves else []
        after += [] if self.halves else [Equation((Words(FROM_ONE if self.first == 1 else FROM_ZERO),))]
        return Equation((Name(name, below=sine), Apply("sin", (angle,))), after=tuple(after))


@dataclass(frozen=True)
class Rotary(Row):
    """Queries or keys rotated in pairs by position: rotary positions (Su et al. 2021, eq. 34).

    Attributes:
        letter: "q" or "k".
        frequencies: of each pair, radians per position; the features after the pairs stay as they are.
        rotation: base, pairing and scaling.
    """

    letter: str
    frequencies: Tensor
    rotation: RotaryConfig = ROTARY

    @property
    def width(self) -> int:
        """Number of features that turn."""
        return 2 * len(self.frequencies)

    @property
    def _is_interleaved(self) -> bool:
        return self.rotation.pairing == "interleaved"

    def tree(self, x: Tree, time: int, width: int) -> Tree:
        """The rotation of x, [heads, time, width]."""
        columns, half = torch.arange(width), len(self.frequencies)
        pair = columns // 2 if self._is_interleaved else columns % half
        first = columns % 2 == 0 if self._is_interleaved else columns < half
        rows, scaling = torch.arange(time).double(), self.rotation.scaling
        if isinstance(scaling, Llama3Scaling):
            rates = Constant.of(self.frequencies[pair.clamp(max=half - 1)], "θ")
            angle: Tree = Call("multiply", (Constant.of(rows[:, None]), rates))
            angle = Call("aside", (angle,), ("_angle",))
        else:
            factor = scaling.factor if isinstance(scaling, LinearScaling) else None
            angle = _angle(rows, self.rotation.base, pair, half, factor)
        other = Call("partner", (x,), tuple(partners(width, self.rotation).tolist()))
        cos, sin = Call("cos", (angle,)), Call("sin", (angle,))
        one = Call("subtract", (Call("multiply", (x, cos)), Call("multiply", (other, sin))))
        two = Call("add", (Call("multiply", (other, sin)), Call("multiply", (x, cos))))
        turned = Call("where", (Constant.of(first), one, two))
        return turned if self.width == width else Call("where", (Constant.of(columns >= self.width), x, turned))

    def formula(self, name: str) -> Equation:
        """The first of each pair; then the second, the features that stay, the number of pairs, and scaled rates."""
        scaling, rate = self.rotation.scaling, exact(self.rotation.base) ** (Name("i") / Name("h"))
        angle: Expression = Name("p") / (exact(scaling.factor) * rate if isinstance(scaling, LinearScaling) else rate)
        if isinstance(scaling, Llama3Scaling):
            angle = Name("p") * Name("θ", below="i")
        places = ("p,2i", "p,2i+1") if self._is_interleaved else ("p,i", "p,i+h")
        one, other = (Name(f"{self.letter}_pre", below=place) for place in places)
        cos, sin = Apply("cos", (angle,)), Apply("sin", (angle,))
        after = [Equation((Name(name, below=places[1]), one * sin + other * cos))]
        after += [Equation((Name("h"), exact(len(self.frequencies))))]
        if self.rotation.fraction < 1:
            after += [Equation((Name(name, below="p,i+w"), Name(f"{self.letter}_pre", below="p,i+w")))]
            after += [Equation((Name("w"), exact(self.width)))]
        if isinstance(scaling, Llama3Scaling):
            after += [Equation((Name("θ", below="i"), Words(LLAMA3)))]
        return Equation((Name(name, below=places[0]), one * cos - other * sin), after=tuple(after))


LAST = N_("last row of the probabilities")
ZERO = N_("0 for words that are not kept")
NEXT = N_("probability of word t after the words before it")
LEAST_POWER = 1e-3
"""If the largest power of a probability is smaller, all are divided by the largest probability first."""
_CHANCE = Apply("P", (Name("w"),))


@dataclass(frozen=True)
class Filtered(Row):
    """The distribution to sample from under one rule, from the last position's probabilities.

    Attributes:
        rule: "temperature", "top_k", "top_p" or "min_p".
        value: its parameter.
    """

    rule: str
    value: float

    @property
    def _is_warm(self) -> bool:
        return self.rule == "temperature" and self.value > 0

    def tree(self) -> Tree:
        """[vocab] of the probabilities, [time, vocab].

        Raises:
            UsageError: a value that the rule does not allow.
        """
        whole = self.rule == "top_k" and self.value == int(self.value)
        Sampling.parse({self.rule: int(self.value) if whole else self.value}, self.rule)
        shares = read("last(probabilities)")
        if self._is_warm:
            return Call("softmax", (Call("divide", (Call("log", (shares,)), Constant(self.value))),))
        rule, value = ("top_k", 1.0) if self.rule == "temperature" else (self.rule, self.value)
        kept = Call(f"keep {rule.replace('_', ' ')}", (shares, Constant(value)))
        return Call("divide", (kept, Call("sum", (kept,), (-1,))))

    def formula(self, name: str) -> Equation:
        """p^(1/T) over the sum of such powers, or p over the sum of the kept probabilities."""
        share, other, last = Name("p", below="i"), Name("p", below="l"), Equation((Name("p"), Words(LAST)))
        exponent = exact(1) / Name("T")
        made, after = share / Over("kept", other), (last, Equation((Words(ZERO),)))
        if self._is_warm:
            made, after = share**exponent / Over("l", other**exponent), (Equation((Name("T"), exact(self.value))), last)
        return Equation((Name(name, below="i"), made), after=after)

    def worked(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> Equation:
        """One probability over the sum of the kept ones; 0 if it is not kept. Tiny powers are those of ratios."""
        probabilities, (word,) = inputs[0][-1], index
        name = namer.cell("probabilities", len(inputs[0]) - 1, word)
        other, shares = replace(name, below=f"{name.below.partition(',')[0]},l"), probabilities.tolist()
        if not self._is_warm:
            is_kept = (compute(self.tree(), {"probabilities": inputs[0]}) > 0).tolist()
            kept = tuple(Number(share) for share, is_in in zip(shares, is_kept, strict=True) if is_in)
            sides = (name / Over("kept", other), Number(shares[word]) / Sum(kept))
            return Equation(sides if is_kept[word] else (exact(0),))
        if self.value == 1:
            return Equation((name, Number(shares[word])))
        exponent, largest = exact(1) / exact(self.value), max(shares)
        is_tiny = largest ** (1 / self.value) < LEAST_POWER
        powers = numbers((probabilities / largest if is_tiny else probabilities) ** (1 / self.value))
        raised = [(Number(each) / Number(largest) if is_tiny else Number(each)) ** exponent for each in shares]
        sides = (raised[word] / Sum(tuple(raised)), powers[word] / Sum(tuple(powers)))
        return Equation((name**exponent / Over("l", other**exponent), *sides))


@dataclass(frozen=True)
class Greedy(Row):
    """The most probable word, as its index in the vocabulary; ties go to the lowest index."""

    chooses: ClassVar[bool] = True

    def tree(self) -> Tree:
        """[1] of the probabilities, [time, vocab]."""
        return Call("place of largest", (read("last(probabilities)"),))

    def formula(self, name: str) -> Equation:
        """Arg max p."""
        best = Over("w", Name("p", below="w"), sign="argmax")
        return Equation((Name(name), best), after=(Equation((Name("p"), Words(LAST))),))

    def worked(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> Equation:
        """The largest probability, and the word that has it."""
        last, row = inputs[0][-1], len(inputs[0]) - 1 + namer.first
        largest = Equation((Apply("max", tuple(numbers(last))), Number(float(last.max()))))
        return Equation((Over("w", Name("probabilities", below=f"{row},w"), sign="argmax"),), (largest,))


@dataclass(frozen=True)
class Beam(Row):
    """The most probable continuation that beam search finds in a bigram table, or has found with a model.

    Attributes:
        start: index of the word before the continuation.
        num_beams: hypotheses kept at each step.
        length: words to add.
        probability: whether the result is the probability instead of the words.
        found: indices of the words, if they are known.
        shares: their probabilities.
    """

    start: int
    num_beams: int
    length: int
    probability: bool = False
    found: tuple[int, ...] | None = None
    shares: tuple[float, ...] = ()

    @property
    def chooses(self) -> bool:  # pyright: ignore
        """Whether the result is words."""
        return not self.probability

    def tree(self) -> Tree:
        """Indices of the words, [length], or the probability, [1], of the table `next`, [vocab, vocab]."""
        if self.found is not None:
            values = [math.prod(self.shares)] if self.probability else self.found
            return Constant.of(torch.tensor(values, dtype=torch.float64))
        function = "best path probability" if self.probability else "best path"
        return Call(function, (Reference("next"),), (self.start, self.num_beams, self.length))

    def formula(self, name: str) -> Equation:
        """The words with the largest product of probabilities, or this product, and p in words."""
        p, best = Name("p", below="t"), Over("w", _CHANCE, sign="argmax")
        product, each = Over("t", p, sign="Π"), Equation((p, Words(NEXT)))
        if self.probability:
            return Equation((Name(name), product), after=(each,))
        return Equation((Name(name), best), after=(Equation((_CHANCE, product)), each))

    def worked(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> Equation:
        """The word at its place, after the choice among the last hypotheses; or the product of the probabilities."""
        found = self.hypotheses(*inputs)
        if self.probability:
            steps = found[0][1]
            names = tuple(namer.cell("p", place) for place in range(len(steps)))
            return Equation((Product(names), Product(tuple(map(Number, steps)))))
        chances = [
            Equation((Apply("P", (namer.words(words),)), Product(tuple(map(Number, steps))), Number(math.prod(steps))))
            for words, steps in found
        ]
        best = Equation((Name("w"), Over("w", _CHANCE, sign="argmax"), namer.words(found[0][0])))
        return Equation((namer.cell("w", *index),), (*chances, best))

    def hypotheses(self, *table: Tensor) -> list[tuple[tuple[int, ...], list[float]]]:
        """The hypotheses of the last step, the best first: their words, and the probability of each."""
        if self.found is not None:
            return [(self.found, list(self.shares))]
        [steps] = table
        return [
            (words, [float(steps[before, after]) for before, after in pairwise((self.start, *words))])
            for words in map(tuple, hypotheses_of(steps, self.start, self.num_beams, self.length)[0].tolist())
        ]


def word_index(word: Any, vocabulary: Sequence[str], where: str) -> int:
    """The index of a word in the vocabulary.

    Raises:
        UsageError: the vocabulary does not contain it.
    """
    if word not in vocabulary:
        raise UsageError(
            "{where}: {word!r} is not in the vocabulary ({vocabulary})",
            where=where,
            word=word,
            vocabulary=", ".join(vocabulary),
        )
    return list(vocabulary).index(word)
