"""Trees of positions and of choices of the next token, what is written by hand beside a tree, and names of cells."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from vitral.core.language import N_
from vitral.explanation.examples.numerals import value_of
from vitral.explanation.expressions import Call, Constant, Reference, Tree
from vitral.explanation.expressions.primitives import hypotheses_of
from vitral.explanation.formulas.notation import Apply, Equation, Name, Number, Over, Product, Words
from vitral.model.positions import partners
from vitral.model.settings import LinearScaling, Llama3Scaling, RotaryConfig

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
        return Name(name, below=",".join(str(entry + self.first) for entry in index))

    def words(self, indices: Iterable[int]) -> Words:
        """Words of the vocabulary, each that is not plain letters in quotes."""
        words = [
            self.vocabulary[index] if index < len(self.vocabulary) else str(index + self.first) for index in indices
        ]
        return Words(" ".join(word if _PLAIN.fullmatch(word) else f"“{word}”" for word in words), own=True)


class Row(ABC):
    """The words of one quantity beside its tree, where that does not say them."""

    @abstractmethod
    def formula(self, name: str) -> Equation:
        """The formula of the quantity of this name, with the definitions of its letters."""

    @abstractmethod
    def worked(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> Equation | None:
        """The right-hand sides for one cell, in names, then in numbers, with what they use; None for the tree's."""


def _angle(
    rows: Tensor, base: float, exponents: Tensor, letters: tuple[str, str], size: int, factor: float = 1
) -> Tree:
    """Positions over powers of the base, as the number on the side that a sine takes."""
    exponent = Call("divide", (Constant.of(exponents, letters[0]), Constant(float(size), letters[1])))
    rate: Tree = Call("power", (Constant(base), exponent))
    rate = rate if factor == 1 else Call("multiply", (Constant(factor), rate))
    return Call("aside", (Call("divide", (Constant.of(rows[:, None], "p"), rate)),), ("_angle",))


def _paired(first: Tensor, half: int | None, left: Tree, right: Tree) -> Tree:
    """One tree in the first column of each pair, another in the second: the next column, or that after the half."""
    return Call("where", (Constant.of(first, f"p,i|p,i+{half}" if half else "p,2i|p,2i+1"), left, right))


def sinusoids(time: int, width: int, base: float, first: int, *, halves: bool) -> Tree:
    """The sinusoidal position embedding (Vaswani et al. 2017, §3.5), [time, width].

    Args:
        time: number of positions.
        width: of the stream.
        base: of the angles' rates.
        first: number of the first position.
        halves: whether all sines stand before all cosines.
    """
    columns, half = torch.arange(width, dtype=torch.float64), (width + 1) // 2
    even = 2 * (columns % half) if halves else columns - columns % 2
    sine = columns < half if halves else columns % 2 == 0
    angle = _angle(torch.arange(time).double() + first, base, even, ("2i", "d_model"), width)
    return _paired(sine, half if halves else None, Call("sin", (angle,)), Call("cos", (angle,)))


def rotary(x: Tree, time: int, width: int, frequencies: Tensor, rotation: RotaryConfig) -> Tree:
    """Queries or keys rotated in pairs by position: rotary positions (Su et al. 2021, eq. 34), [heads, time, width].

    Args:
        x: the queries or keys.
        time: number of positions.
        width: of a head.
        frequencies: of each pair, radians per position; the features after the pairs stay as they are.
        rotation: base, pairing and scaling.
    """
    columns, half = torch.arange(width), len(frequencies)
    is_interleaved = rotation.pairing == "interleaved"
    pair = columns // 2 if is_interleaved else columns % half
    first = columns % 2 == 0 if is_interleaved else columns < half
    rows, scaling = torch.arange(time).double(), rotation.scaling
    if isinstance(scaling, Llama3Scaling):
        rates = Constant.of(frequencies[pair.clamp(max=half - 1)], "θ_i")
        angle: Tree = Call("multiply", (Constant.of(rows[:, None], "p"), rates))
        angle = Call("aside", (angle,), ("_angle",))
    else:
        factor = scaling.factor if isinstance(scaling, LinearScaling) else 1
        angle = _angle(rows, rotation.base, pair, ("i", "h"), half, factor)
    other = Call("partner", (x,), tuple(partners(width, rotation).tolist()))
    cos, sin = Call("cos", (angle,)), Call("sin", (angle,))
    left = Call("subtract", (Call("multiply", (x, cos)), Call("multiply", (other, sin))))
    right = Call("add", (Call("multiply", (other, sin)), Call("multiply", (x, cos))))
    turned = _paired(first, None if is_interleaved else half, left, right)
    turns = Constant.of(columns < 2 * half, f"|p,i+{2 * half}")
    return turned if 2 * half == width else Call("where", (turns, turned, x))


RULES = ("temperature", "top_k", "top_p", "min_p")
"""Rules of decoding; with its number each is the name of a quantity, as top_k_2."""


def rule_of(name: str) -> tuple[str, float | None]:
    """The rule of decoding in a name, and its number, None where that is none; "" for any other name.

    >>> rule_of("top_k_2"), rule_of("weights")
    (('top_k', 2.0), ('', None))
    """
    rule, _, number = name.rpartition("_")
    return (rule, value_of(number)) if rule in RULES else ("", None)


NEXT = N_("probability of word t after the words before it")
_CHANCE = Apply("P", (Name("w"),))


@dataclass(frozen=True)
class Beam(Row):
    """The most probable continuation that beam search finds in a bigram table, or has found with a model.

    Attributes:
        start: index of the word before the continuation.
        num_beams: hypotheses kept at each step.
        length: words to add.
        probability: whether the result is the probability instead of the words.
        words: indices of the words, if they are known.
        shares: their probabilities.
    """

    start: int
    num_beams: int
    length: int
    probability: bool = False
    words: tuple[int, ...] | None = None
    shares: tuple[float, ...] = ()

    def tree(self) -> Tree:
        """Indices of the words, [length], or the probability, [1], of the table `next`, [vocab, vocab]."""
        if self.words is not None:
            values = [math.prod(self.shares)] if self.probability else self.words
            return Constant.of(torch.tensor(values, dtype=torch.float64))
        function = "best path probability" if self.probability else "best path"
        return Call(function, (Reference("next"),), (self.start, self.num_beams, self.length))

    def formula(self, name: str) -> Equation:
        """The words with the largest product of probabilities, or this product, and p in words."""
        p, best = Name("p", below="t"), Over("w", _CHANCE, sign="argmax")
        product, factor = Over("t", p, sign="Π"), Equation((p, Words(NEXT)))
        if self.probability:
            return Equation((Name(name), product), after=(factor,))
        return Equation((Name(name), best), after=(Equation((_CHANCE, product)), factor))

    def worked(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> Equation:
        """The word at its place, after the choice among the last hypotheses; or the product of the probabilities."""
        hypotheses = self.hypotheses(*inputs)
        if self.probability:
            steps = hypotheses[0][1]
            names = tuple(namer.cell("p", number) for number in range(len(steps)))
            return Equation((Product(names), Product(tuple(map(Number, steps)))))
        chances = [
            Equation((Apply("P", (namer.words(words),)), Product(tuple(map(Number, steps))), Number(math.prod(steps))))
            for words, steps in hypotheses
        ]
        best = Equation((Name("w"), Over("w", _CHANCE, sign="argmax"), namer.words(hypotheses[0][0])))
        return Equation((namer.cell("w", *index),), (*chances, best))

    def hypotheses(self, *table: Tensor) -> list[tuple[tuple[int, ...], list[float]]]:
        """The hypotheses of the last step, the best first: their words, and the probability of each."""
        if self.words is not None:
            return [(self.words, list(self.shares))]
        [steps] = table
        return [
            (words, [float(steps[before, after]) for before, after in pairwise((self.start, *words))])
            for words in map(tuple, hypotheses_of(steps, self.start, self.num_beams, self.length)[0].tolist())
        ]
