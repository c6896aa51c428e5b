"""The choice of the next token under each rule of `vitral.decoding`, from a table of probabilities.

Choices are searches, no arithmetic of cells: what is written of them is written here by hand.
"""

import math
from collections.abc import Sequence
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
from vitral.explanation.rows.base import CellNamer, Row, numbers

Index = tuple[int, ...]
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
    subscript: ClassVar[str] = "i"

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

    def formula(self) -> Expression:
        """p^(1/T) over the sum of such powers, or p over the sum of the kept probabilities."""
        share, other = Name("p", below="i"), Name("p", below="l")
        if not self._is_warm:
            return share / Over("kept", other)
        exponent = exact(1) / Name("T")
        return share**exponent / Over("l", other**exponent)

    def after(self, name: str) -> tuple[Equation, ...]:
        """The temperature, and p in words."""
        last = Equation((Name("p"), Words(LAST)))
        return (Equation((Name("T"), exact(self.value))), last) if self._is_warm else (last, Equation((Words(ZERO),)))

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """One probability over the sum of the kept ones; 0 if it is not kept. Tiny powers are those of ratios."""
        probabilities, (word,) = inputs[0][-1], index
        name = namer.cell("probabilities", len(inputs[0]) - 1, word)
        other, shares = replace(name, below=f"{name.below.partition(',')[0]},l"), probabilities.tolist()
        if not self._is_warm:
            is_kept = (compute(self.tree(), {"probabilities": inputs[0]}) > 0).tolist()
            kept = tuple(Number(share) for share, is_in in zip(shares, is_kept, strict=True) if is_in)
            return (name / Over("kept", other), Number(shares[word]) / Sum(kept)) if is_kept[word] else (exact(0),)
        if self.value == 1:
            return name, Number(shares[word])
        exponent, largest = exact(1) / exact(self.value), max(shares)
        is_tiny = largest ** (1 / self.value) < LEAST_POWER
        powers = numbers((probabilities / largest if is_tiny else probabilities) ** (1 / self.value))
        raised = [(Number(each) / Number(largest) if is_tiny else Number(each)) ** exponent for each in shares]
        return (
            name**exponent / Over("l", other**exponent),
            raised[word] / Sum(tuple(raised)),
            powers[word] / Sum(tuple(powers)),
        )


@dataclass(frozen=True)
class Greedy(Row):
    """The most probable word, as its index in the vocabulary; ties go to the lowest index."""

    chooses: ClassVar[bool] = True

    def tree(self) -> Tree:
        """[1] of the probabilities, [time, vocab]."""
        return Call("place of largest", (read("last(probabilities)"),))

    def formula(self) -> Expression:
        """Arg max p."""
        return Over("w", Name("p", below="w"), sign="argmax")

    def after(self, name: str) -> tuple[Equation, ...]:
        """P in words."""
        return (Equation((Name("p"), Words(LAST))),)

    def before(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Equation, ...]:
        """The largest probability."""
        last = inputs[0][-1]
        return (Equation((Apply("max", tuple(numbers(last))), Number(float(last.max())))),)

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """The word with this probability."""
        row = len(inputs[0]) - 1 + namer.first
        return (Over("w", Name("probabilities", below=f"{row},w"), sign="argmax"),)


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

    def formula(self) -> Expression:
        """The words with the largest product of probabilities, or this product."""
        return Over("t", Name("p", below="t"), sign="Π") if self.probability else Over("w", _CHANCE, sign="argmax")

    def after(self, name: str) -> tuple[Equation, ...]:
        """The probability of a continuation, and p in words."""
        product = Over("t", Name("p", below="t"), sign="Π")
        each = Equation((Name("p", below="t"), Words(NEXT)))
        return (each,) if self.probability else (Equation((_CHANCE, product)), each)

    def before(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Equation, ...]:
        """For words: the probabilities of the last hypotheses, and the choice among them."""
        if self.probability:
            return ()
        found = self.hypotheses(*inputs)
        chances = [
            Equation((Apply("P", (namer.words(words),)), Product(tuple(map(Number, steps))), Number(math.prod(steps))))
            for words, steps in found
        ]
        best = Equation((Name("w"), Over("w", _CHANCE, sign="argmax"), namer.words(found[0][0])))
        return (*chances, best)

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """The word at its place, or the product of the probabilities of the words found."""
        if not self.probability:
            return (namer.cell("w", *index),)
        steps = self.hypotheses(*inputs)[0][1]
        names = tuple(namer.cell("p", place) for place in range(len(steps)))
        return (Product(names), Product(tuple(map(Number, steps))))

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
