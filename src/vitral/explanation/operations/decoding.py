"""The choice of the next token under each rule of `vitral.decoding`, from a table of probabilities."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.decoding import Sampling, distribution
from vitral.explanation.expressions.built_in import best_path
from vitral.explanation.expressions.tree import Call, Constant, Tree
from vitral.explanation.formulas.notation import (
    Apply,
    Expression,
    Fraction,
    Name,
    Number,
    Over,
    Power,
    Product,
    Sum,
    Words,
)
from vitral.explanation.operations.base import CellNamer, Index, named, numbers


@dataclass(frozen=True)
class Filtered:
    """The distribution to sample from under one rule, from the last position's probabilities.

    Attributes:
        rule: "temperature", "top_k", "top_p" or "min_p".
        value: its parameter.
    """

    rule: str
    value: float

    def __call__(self, probabilities: Tensor) -> Tensor:
        """[vocab] of [time, vocab]."""
        return distribution(probabilities[-1:].log(), self.sampling())[0]

    def sampling(self) -> Sampling:
        """The rule as a configuration of `vitral.decoding`.

        Raises:
            UsageError: a value that the rule does not allow.
        """
        whole = self.rule == "top_k" and self.value == int(self.value)
        return Sampling.parse({self.rule: int(self.value) if whole else self.value}, self.rule)

    def tree(self, inputs: Sequence[str]) -> Tree:
        """See `Operation`."""
        shares: Tree = Call("last row", tuple(named(inputs)))
        if self.rule == "temperature" and self.value > 0:
            return Call("softmax of scores", (Call("divide", (Call("log", (shares,)), Constant(self.value))),))
        rule, value = ("top_k", 1.0) if self.rule == "temperature" else (self.rule, self.value)
        kept = Call(f"keep {rule.replace('_', ' ')}", (shares, Constant(value)))
        return Call("divide", (kept, Call("sum", (kept,), (-1,))))

    def formula(self) -> Expression:
        """p^(1/T) over the sum of such powers, or p over the sum of the kept probabilities."""
        share: Expression = Name("p", below="i")
        other: Expression = Name("p", below="l")
        if self.rule == "temperature":
            exponent = Fraction(Number(1, exact=True), Name("T"))
            return Fraction(Power(share, exponent), Over("l", Power(other, exponent)))
        return Fraction(share, Over("kept", other))

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """One probability over the sum of the kept ones."""
        probabilities, (word,) = inputs[0][-1], index
        shares = self(inputs[0])
        if self.rule == "temperature" and self.value > 0:
            return self._warmed(probabilities, word)
        kept = [number for number, share in zip(numbers(probabilities), shares.tolist(), strict=True) if share > 0]
        if float(shares[word]) == 0:
            return (Words("0"),)
        return (Fraction(Number(float(probabilities[word])), Sum(tuple(kept))),)

    def _warmed(self, probabilities: Tensor, word: int) -> tuple[Expression, ...]:
        if self.value == 1:
            return (Number(float(probabilities[word])),)
        powers = probabilities ** (1 / self.value)
        exponent = Fraction(Number(1, exact=True), Number(self.value, exact=True))
        rule = Fraction(
            Power(Number(float(probabilities[word])), exponent),
            Sum(tuple(Power(number, exponent) for number in numbers(probabilities))),
        )
        return (rule, Fraction(Number(float(powers[word])), Sum(tuple(numbers(powers)))))


@dataclass(frozen=True)
class Greedy:
    """The most probable word, as its index in the vocabulary."""

    def __call__(self, probabilities: Tensor) -> Tensor:
        """[1] of [time, vocab]; ties go to the lowest index."""
        return distribution(probabilities[-1:].log(), Sampling(temperature=0.0)).argmax(dim=-1).double()

    def tree(self, inputs: Sequence[str]) -> Tree:
        """See `Operation`."""
        return Call("place of largest", (Call("last row", tuple(named(inputs))),))

    def formula(self) -> Expression:
        """Arg max p."""
        return Apply("argmax", (Name("p", below="i"),))

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """The maximum."""
        return (Apply("max", tuple(numbers(inputs[0][-1]))),)


@dataclass(frozen=True)
class Beam:
    """The most probable continuation that beam search finds in a bigram table.

    Attributes:
        start: index of the word before the continuation.
        num_beams: hypotheses kept at each step.
        length: words to add.
        probability: whether the result is the probability instead of the words.
    """

    start: int
    num_beams: int
    length: int
    probability: bool = False

    def __call__(self, table: Tensor) -> Tensor:
        """Indices of the words, [length], or the probability, [1], of [vocab, vocab]."""
        words, score = self._search(table)
        return torch.tensor([math.exp(score)] if self.probability else words, dtype=torch.float64)

    def _search(self, table: Tensor) -> tuple[tuple[int, ...], float]:
        return best_path(table, self.start, self.num_beams, self.length)

    def tree(self, inputs: Sequence[str]) -> Tree:
        """See `Operation`."""
        function = "best path probability" if self.probability else "best path"
        return Call(function, tuple(named(inputs)), (self.start, self.num_beams, self.length))

    def formula(self) -> Expression:
        """Arg max of the product of probabilities."""
        product = Apply("Π", (Apply("P", (Words("w | …"),)),))
        return product if self.probability else Apply("argmax", (product,))

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """The product of the probabilities of the words found."""
        return (Product(tuple(Number(step) for step in self.steps(inputs[0]))),)

    def steps(self, table: Tensor) -> list[float]:
        """The probability of each word found."""
        path = [self.start, *self._search(table)[0]]
        return [float(table[before, after]) for before, after in pairwise(path)]


@dataclass(frozen=True)
class FoundBeam(Beam):
    """The result of a beam search with a model.

    Attributes:
        found: indices of the words.
        shares: probability of each.
    """

    found: tuple[int, ...] = ()
    shares: tuple[float, ...] = ()

    def __call__(self, *_: Tensor) -> Tensor:
        """Indices of the words, [length], or their probability, [1]."""
        return torch.tensor([math.prod(self.shares)] if self.probability else self.found, dtype=torch.float64)

    def tree(self, inputs: Sequence[str]) -> Tree:
        """See `Operation`."""
        return Constant.of(self())

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """The product of the probabilities."""
        return (Product(tuple(map(Number, self.shares))),)


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
