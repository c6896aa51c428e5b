"""The page's n-gram probabilities are those of the run's baselines."""

import base64
import json
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from browser import needs_node
from pages import in_page

from vitral.data import Split
from vitral.evaluation.ngrams import WittenBell
from vitral.page import counts
from vitral.page.counts import carried_counts

RATE = """
const ngrams = await page.Ngrams.open(given.counts);
return {
  rated: given.sentences.map((ids) => ngrams.probabilities(ids)),
  following: given.sentences.map((ids) => Array.from(ngrams.following(ids))),
  guesses: given.sentences.map((ids) => ngrams.guesses(ids, 3).map(({ id }) => id)),
};
"""
VOCABULARY = 211
"""Token and context numbers of one and of two groups of seven bits."""


def drawn_split(seed: int, *lengths: int) -> Split:
    """Segments of a Markov chain, so that contexts recur; the last token of the vocabulary never occurs."""
    generator = np.random.default_rng(seed)
    tokens = np.minimum(generator.geometric(0.05, sum(lengths)) - 1, VOCABULARY - 2)
    tokens[1::2] = tokens[::2][: len(tokens[1::2])] // 3
    ends = np.cumsum(lengths)
    return Split(tokens.astype(np.uint16), np.stack([ends - lengths, ends], axis=1))


def sentences(seed: int) -> list[list[int]]:
    generator = np.random.default_rng(seed)
    seen = drawn_split(seed, 400).tokens.tolist()
    return [seen[:30], seen[31:33], [seen[0]], [], generator.integers(0, VOCABULARY, 40).tolist(), [VOCABULARY - 1] * 5]


def witten_bell(train: Split, order: int, ids: Sequence[int]) -> list[float]:
    """Of every token but the first."""
    if len(ids) < 2:
        return []
    text = Split(np.array(ids, dtype=np.uint16), np.array([[0, len(ids)]]))
    return np.exp(-WittenBell(train, VOCABULARY, order).nats(text)[-1]).tolist()


def made(train: Split, test: Split) -> tuple[dict[str, Any], WittenBell]:
    found = carried_counts(train, test, VOCABULARY)
    assert found is not None
    return found


@pytest.mark.merge
@needs_node
@pytest.mark.parametrize("most", [1, 2, 6])
def test_probabilities_are_those_of_the_baselines(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "MOST_ORDER", most)
    train = drawn_split(3, 2000, 1, 700, 30)
    carried, model = made(train, drawn_split(4, 50))
    assert (carried["order"], carried["counted"]) == (most, 2731)
    given = sentences(5)
    told = in_page(RATE, [{"counts": json.loads(json.dumps(carried)), "sentences": given}])[0]
    for ids, rated, following, guesses in zip(given, told["rated"], told["following"], told["guesses"], strict=True):
        assert rated[1:] == pytest.approx(witten_bell(train, most, ids), rel=1e-12, abs=0)
        assert following[0] > 0
        assert sum(following) == pytest.approx(1, abs=1e-12)
        each = [witten_bell(train, most, [*ids, token])[-1] for token in range(0, VOCABULARY, 13)] if ids else []
        assert following[::13][: len(each)] == pytest.approx(each, rel=1e-12, abs=0)
        assert following == pytest.approx(model.following(np.array(ids, dtype=np.int64)).tolist(), rel=1e-12, abs=0)
        assert guesses == np.argsort(-np.array(following), kind="stable")[:3].tolist()


def numbers(data: str) -> list[int]:
    """Whole numbers in groups of seven bits, the lowest first; the eighth bit says that another group follows."""
    found, value, shift = [], 0, 0
    for byte in zlib.decompress(base64.b64decode(data)):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            found.append(value)
            value = shift = 0
    return found


def test_the_carried_counts_are_those_of_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "MOST_ORDER", 1)
    train = drawn_split(3, 2000, 1, 700, 30)
    occurrences = np.bincount(train.tokens)
    kinds, *rest = numbers(made(train, drawn_split(4, 50))[0]["data"])
    steps, less = rest[:kinds], rest[kinds:]
    assert np.cumsum(steps).tolist() == np.flatnonzero(occurrences).tolist()
    assert [each + 1 for each in less] == occurrences[occurrences > 0].tolist()


def test_the_highest_order_that_fits_is_carried(monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = drawn_split(6, 5000), drawn_split(7, 50)
    sizes = []
    for order in (1, 2, 3):
        monkeypatch.setattr(counts, "MOST_ORDER", order)
        sizes.append(len(made(train, test)[0]["data"]))
    monkeypatch.setattr(counts, "MOST_ORDER", 6)
    assert sizes == sorted(sizes)
    for order, size in enumerate(sizes, start=1):
        monkeypatch.setattr(counts, "MOST_LETTERS", size)
        assert made(train, test)[0]["order"] == order
    monkeypatch.setattr(counts, "MOST_LETTERS", sizes[0] - 1)
    assert carried_counts(train, test, VOCABULARY) is None
