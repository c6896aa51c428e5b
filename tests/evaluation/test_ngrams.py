"""Witten-Bell n-grams against dictionaries, by hand, and as probabilities."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pieces import part

from vitral.core.errors import UsageError
from vitral.evaluation import (
    NgramBaselines,
    WittenBell,
    bigram_entropy,
    entropy_by_place,
    ngram_baselines,
    rank_among_baselines,
)
from vitral.evaluation import ngrams as module

VOCAB = 5
STRETCHES = st.lists(st.lists(st.integers(0, VOCAB - 1), max_size=23), max_size=4)


class Dictionaries:
    """The definition, with dictionaries and recursion."""

    def __init__(self, segments: Sequence[Sequence[int]], vocab: int, num_orders: int) -> None:
        self.vocab = vocab
        self.followers: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for segment in segments:
            for at, token in enumerate(segment):
                for length in range(min(at, num_orders - 1) + 1):
                    self.followers[tuple(segment[at - length : at])][token] += 1

    def probability(self, token: int, context: tuple[int, ...]) -> float:
        lower = self.probability(token, context[1:]) if context else 1 / self.vocab
        followers = self.followers.get(context)
        if not followers:
            return lower
        return (followers[token] + len(followers) * lower) / (followers.total() + len(followers))

    def nats(self, segments: Sequence[Sequence[int]], order: int) -> list[float]:
        return [
            -math.log(self.probability(segment[at], tuple(segment[max(0, at - order + 1) : at])))
            for segment in segments
            for at in range(1, len(segment))
        ]


@pytest.mark.parametrize("table", [0, 2**24], ids=["by sorting", "by table"])
@given(train=STRETCHES, test=STRETCHES.filter(lambda segments: any(len(s) > 1 for s in segments)))
def test_it_is_the_definition(table: int, train: list[list[int]], test: list[list[int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TABLE", table)
        nats = WittenBell(part(*train), VOCAB, 6).nats(part(*test))
    definition = Dictionaries(train, VOCAB, 6)
    for order in range(1, 7):
        assert nats[order - 1].tolist() == pytest.approx(definition.nats(test, order), rel=1e-12)


def test_by_hand() -> None:
    # train: a a b. Unigrams: c(a) = 2, c(b) = 1, T = 2, vocab 4:
    #   p1(a) = (2 + 2/4) / (3 + 2) = 0.5, p1(b) = (1 + 2/4) / 5 = 0.3, p1(c) = (2/4) / 5 = 0.1
    # After a: a once, b once, T = 2:
    #   p2(a | a) = (1 + 2 · 0.5) / (2 + 2) = 0.5, p2(b | a) = (1 + 2 · 0.3) / 4 = 0.4, p2(c | a) = 2 · 0.1 / 4 = 0.05
    # After b nothing was seen: p2(· | b) = p1.
    train = part([0, 0, 1])
    nats = WittenBell(train, 4, 2).nats(part([0, 0, 1, 2], [0, 2]))
    assert np.exp(-nats).tolist() == [
        pytest.approx([0.5, 0.3, 0.1, 0.1]),
        pytest.approx([0.5, 0.4, 0.1, 0.05]),
    ]
    lines = ngram_baselines(train, part([0, 0, 1, 2], [0, 2]), 4, orders=2)
    assert lines.orders == pytest.approx(
        {1: -math.log(0.5 * 0.3 * 0.1 * 0.1) / 4, 2: -math.log(0.5 * 0.4 * 0.1 * 0.05) / 4}
    )


def test_a_text_of_one_character_has_no_entropy_and_no_loss() -> None:
    split = part([0] * 11)
    lines = ngram_baselines(split, split, 1)
    numbers = [*lines.orders.values(), lines.test_bigram_entropy, entropy_by_place(split, 3)]
    assert [str(number) for number in numbers] == ["0.0"] * 8
    assert "unigram" in rank_among_baselines(0.0, lines.orders)


def test_the_bigram_entropy_is_that_of_the_pairs() -> None:
    # Pairs 0 1, 0 1, 0 2, 1 0, 1 0: after 0 the entropy is H(2/3, 1/3) for 3 of 5, after 1 none for 2 of 5.
    expected = 3 / 5 * -(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3))
    assert bigram_entropy(part([0, 1, 0, 1, 0, 2], [1]), 3) == pytest.approx(expected)


def test_a_large_vocabulary_does_not_overflow() -> None:
    vocab = 2**31 - 1
    train = [vocab - 1, vocab - 2, vocab - 1, vocab - 2, 0]
    lines = ngram_baselines(part(train, dtype=np.uint32), part(train, dtype=np.uint32), vocab, orders=3)
    definition = Dictionaries([train], vocab, 3)
    for order in (1, 2, 3):
        assert lines.orders[order] == pytest.approx(float(np.mean(definition.nats([train], order))))


LINES = NgramBaselines({1: 3.264, 2: 2.520, 3: 1.949, 4: 1.595, 5: 1.420, 6: 1.379}, 2.513)


@pytest.mark.parametrize(
    ("loss", "where"),
    [
        (4.6, ["worse than every", "unigram", "3.264"]),
        (3.2, ["better than", "unigram", "3.264", "worse than", "bigram", "2.520"]),
        (1.595, ["equal", "4-gram"]),
        (1.4, ["better than", "5-gram", "1.420", "worse than", "6-gram", "1.379"]),
        (1.3, ["better than every", "6-gram", "1.379"]),
    ],
)
def test_where_a_loss_stands(loss: float, where: list[str]) -> None:
    assert re.search(".*".join(where), rank_among_baselines(loss, LINES.orders))


@pytest.mark.parametrize("plain", [{}, {"orders": 3}, {"orders": {"x": 1.0}, "test_bigram_entropy": 1.0}])
def test_malformed_plain_data_is_refused(plain: dict) -> None:
    with pytest.raises(UsageError, match=r"^n-gram baselines: malformed"):
        NgramBaselines.from_plain(plain)


def test_bad_input_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing to score"):
        ngram_baselines(part([0, 1]), part([0], [1]), 2)
    with pytest.raises(UsageError, match="no adjacent pair"):
        bigram_entropy(part(), 2)
    with pytest.raises(UsageError, match="token 7 is outside the vocabulary of 2"):
        ngram_baselines(part([0, 7]), part([0, 1]), 2)


def test_the_entropy_by_place_by_hand() -> None:
    """Windows a|b, b|a, a|a of one input: a is followed by b or a, ln 2 in two of three cases."""
    split = part([0, 1, 0, 0])
    assert entropy_by_place(split, 1) == pytest.approx(2 / 3 * math.log(2))
    # In windows of two inputs (a b, b a) and (a, a): at place 0 a is followed by b or a, at place 1 b by a.
    assert entropy_by_place(split, 2) == pytest.approx(2 / 3 * math.log(2))
    # Tokens whose follower depends on the place alone: 0 1 0 0 repeated, in windows of four.
    regular = part([0, 1, 0, 0] * 9)
    assert entropy_by_place(regular, 4) == pytest.approx(0.0)
    assert bigram_entropy(regular, 2) > 0.4
    with pytest.raises(UsageError, match="no target"):
        entropy_by_place(part([0]), 3)
