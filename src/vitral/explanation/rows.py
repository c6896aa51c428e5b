"""Quantities whose formula or arithmetic is written by hand, where their trees do not say it; and names of cells.

Sinusoidal and rotary positions have letters for pairs of columns; choices of the next token, under each rule of
`vitral.decoding`, are searches and no arithmetic of cells.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.language import N_
from vitral.decoding import Sampling
from vitral.explanation.expressions import Call, Constant, Reference, Tree, read
from vitral.explanation.expressions.primitives import hypotheses_of
from vitral.explanation.formulas.notation import Apply, Equation, Name, Number, Over, Product, Words
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

    def formula(self, name: str) -> Equation | None:
        """The formula of the quantity of this name, with the definitions of its letters; None for the tree's."""
        return None

    def worked(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> Equation | None:
        """The right-hand sides for one cell, in names, then in numbers, with what they use; None for the tree's."""
        return None


def _angle(
    rows: Tensor, base: float, exponents: Tensor, letters: tuple[str, str], size: int, factor: float = 1
) -> Tree:
    """Positions over powers of the base, as the number on the side that a sine takes."""
    exponent = Call("divide", (Constant.of(exponents, letters[0]), Constant(float(size), letters[1])))
    rate: Tree = Call("power", (Constant(base), exponent))
    rate = rate if factor == 1 else Call("multiply", (Constant(factor), rate))
    return Call("aside", (Call("divide", (Constant.of(rows[:, None], "p"), rate)),), ("_angle",))


def _paired(first: Tensor, half: int | None, one: Tree, other: Tree) -> Tree:
    """One tree in the first column of each pair, another in the second: the next column, or that after the half."""
    return Call("where", (Constant.of(first, f"p,i|p,i+{half}" if half else "p,2i|p,2i+1"), one, other))


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
        angle = _angle(torch.arange(self.time).double() + self.first, self.base, even, ("2i", "d_model"), self.width)
        return _paired(sine, half if self.halves else None, Call("sin", (angle,)), Call("cos", (angle,)))


@dataclass(frozen=True)
class Rotary(Row):
    """Queries or keys rotated in pairs by position: rotary positions (Su et al. 2021, eq. 34).

    Attributes:
        frequencies: of each pair, radians per position; the features after the pairs stay as they are.
        rotation: base, pairing and scaling.
    """

    frequencies: Tensor
    rotation: RotaryConfig = ROTARY

    def tree(self, x: Tree, time: int, width: int) -> Tree:
        """The rotation of x, [heads, time, width]."""
        columns, half = torch.arange(width), len(self.frequencies)
        is_interleaved = self.rotation.pairing == "interleaved"
        pair = columns // 2 if is_interleaved else columns % half
        first = columns % 2 == 0 if is_interleaved else columns < half
        rows, scaling = torch.arange(time).double(), self.rotation.scaling
        if isinstance(scaling, Llama3Scaling):
            rates = Constant.of(self.frequencies[pair.clamp(max=half - 1)], "θ_i")
            angle: Tree = Call("multiply", (Constant.of(rows[:, None], "p"), rates))
            angle = Call("aside", (angle,), ("_angle",))
        else:
            factor = scaling.factor if isinstance(scaling, LinearScaling) else 1
            angle = _angle(rows, self.rotation.base, pair, ("i", "h"), half, factor)
        other = Call("partner", (x,), tuple(partners(width, self.rotation).tolist()))
        cos, sin = Call("cos", (angle,)), Call("sin", (angle,))
        one = Call("subtract", (Call("multiply", (x, cos)), Call("multiply", (other, sin))))
        two = Call("add", (Call("multiply", (other, sin)), Call("multiply", (x, cos))))
        turned = _paired(first, None if is_interleaved else half, one, two)
        turns = Constant.of(columns < 2 * half, f"|p,i+{2 * half}")
        return turned if 2 * half == width else Call("where", (turns, turned, x))


NEXT = N_("probability of word t after the words before it")
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

    def tree(self) -> Tree:
        """[vocab] of the probabilities, [time, vocab].

        Raises:
            UsageError: a value that the rule does not allow.
        """
        whole = self.rule == "top_k" and self.value == int(self.value)
        Sampling.parse({self.rule: int(self.value) if whole else self.value}, self.rule)
        shares, value = read("last(probabilities)"), Constant(self.value, "T")
        if self.rule == "temperature" and self.value > 0:
            logarithms = Call("log", (shares,))
            return Call("softmax", (logarithms if self.value == 1 else Call("divide", (logarithms, value)),))
        rule, value = ("top_k", 1.0) if self.rule == "temperature" else (self.rule, self.value)
        return Call("normalised", (Call(f"keep {rule.replace('_', ' ')}", (shares, Constant(value))),))


@dataclass(frozen=True)
class Greedy(Row):
    """The most probable word, as its index in the vocabulary; ties go to the lowest index."""

    chooses: ClassVar[bool] = True

    def tree(self) -> Tree:
        """[1] of the probabilities, [time, vocab]."""
        return Call("place of largest", (read("last(probabilities)"),))


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
