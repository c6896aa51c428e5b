"""Written texts: how much they repeat, how varied they are, what they copy, and what is said of the strategies."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitral.evaluation import longest_copy, novel_share
from vitral.studies import StudyResult
from vitral.studies.probes import decoding_shown as strategies_shown
from vitral.studies.probes.written_texts import copied, distinct, longest_loop, repeated_share, words

Made = Callable[..., StudyResult]


class TestWrittenTexts:
    """Measures of texts, by hand."""

    def test_repeated_tokens_by_hand(self) -> None:
        assert repeated_share("abcdefg", 3) == 0.0
        assert repeated_share("aaaa", 2) == 3 / 4  # aa at 1 and at 2 have stood before
        assert repeated_share("abcxabcyabc", 3) == 6 / 11
        assert repeated_share("ab", 3) == 0.0
        assert repeated_share("", 3) == 0.0

    def test_loops_by_hand(self) -> None:
        assert longest_loop("abcdef") == 0
        assert longest_loop("xaay") == 2
        assert longest_loop("abcabcab") == 8
        assert longest_loop("abcab") == 0  # not two whole turns
        assert longest_loop([5, 5, 5]) == 3
        assert longest_loop([]) == 0

    def test_distinct_by_hand(self) -> None:
        assert distinct(words("The king, the king's the KING"), 1) == 3 / 6
        assert distinct(words("The king, the king's the KING"), 2) == 4 / 5
        assert distinct("ab", 3) is None

    @given(
        st.lists(st.text("ab c", max_size=25), min_size=1, max_size=4),
        st.text("ab c", min_size=1, max_size=120),
    )
    def test_copies_are_what_the_copying_meter_finds(self, texts: list[str], train: str) -> None:
        for text, found in zip(texts, copied(texts, train, 7), strict=True):
            assert found.longest == longest_copy(text, train).length
            assert found.novel == (pytest.approx(novel_share(text, train, 7)) if len(text) >= 7 else None)

    def test_a_long_copy_in_a_long_text(self) -> None:
        train = "".join(chr(0x41 + value) for value in np.random.default_rng(1).integers(26, size=5000))
        texts = ["zzz" + train[100:250] + "zzz", train[-40:] + "A", train[:9]]
        assert [found.longest for found in copied(texts, train, 12)] == [
            longest_copy(text, train).length for text in texts
        ]


def strategies_data(by_strategy: Mapping[str, list[tuple[float, float]]]) -> dict[str, Any]:
    """Measures of one run: by strategy, repeated share and n-gram nats for each prompt; all else the same."""
    rest = {
        "text": "a b",
        "loop": 0,
        "words": [1.0] * 4,
        "characters": [1.0] * 4,
        "copied": 5,
        "novel": 0.5,
        "model": 2.0,
    }
    return {
        "length": 5,
        "prompts": ["p"] * len(next(iter(by_strategy.values()))),
        "strategies": {
            name: [rest | {"repeated": repeated, "ngram": ngram} for repeated, ngram in rows]
            for name, rows in by_strategy.items()
        },
    }


def test_what_is_said_of_strategies_follows_the_numbers(made: Made) -> None:
    result = made({"full": [2.0]})
    truth = [(0.01 * i, 2.0 + 0.1 * i) for i in range(5)]
    more = [(a + 0.5 + 0.01 * (i % 2), b - 0.3) for i, (a, b) in enumerate(truth)]
    near = [(a + 0.02 * (-1) ** i, b + 0.01 * (-1) ** i) for i, (a, b) in enumerate(truth)]
    data = strategies_data({strategies_shown.TRUTH: truth, "loud": more, "near": near})
    said = [finding.text for finding in strategies_shown.show(result, {"full": {1: data}}).findings]
    assert any(text.startswith("Texts that repeat themselves more") and "loud (+0.504)" in text for text in said)
    assert not any("near" in text.split(":")[1] and text.startswith("Texts that repeat") for text in said)
    assert any("Texts that are likelier under the 5-gram" in text and "loud" in text for text in said)
    assert any(text.startswith("No strategy is seen to differ") and "copied" in text for text in said)
    assert any("Nearest to the text itself under the 5-gram model: near" in text for text in said)
    # The other way round, other sentences.
    turned = strategies_data({strategies_shown.TRUTH: more, "loud": truth, "near": near})
    said = [finding.text for finding in strategies_shown.show(result, {"full": {1: turned}}).findings]
    assert any(text.startswith("Texts that repeat themselves less") and "loud" in text for text in said)


def test_seeds_of_one_prompt_are_averaged_and_prompts_are_the_sample(made: Made) -> None:
    result = made({"full": [2.0, 2.0]})
    runs = {
        seed: strategies_data({strategies_shown.TRUTH: [(0.0, 2.0)] * 4, "one": [(0.1 * seed, 2.0 + seed)] * 4})
        for seed in (1, 3)
    }
    values = strategies_shown._values(list(runs.values()), ["one"], strategies_shown.MEASURES["ngram"])
    assert values == {"one": [4.0] * 4}
    text = strategies_shown.show(result, {"full": runs}).findings[-1].text
    assert "one, +2.000 nats per token (95% interval +2.000 to +2.000" in text
