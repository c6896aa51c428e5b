"""Written texts: how much they repeat, how varied they are, what they copy, and what is said of the strategies."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitral.evaluation import longest_copy, novel_share
from vitral.figures.sections import Table
from vitral.studies import StudyResult
from vitral.studies.probes import decoding_shown as strategies_shown
from vitral.studies.probes.protocol import Plot
from vitral.studies.probes.written_texts import copied, distinct, longest_loop, repeated_share, words
from vitral.studies.statistics import paired_difference

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
    assert "Every other strategy is shown to be further" in text


def nearest(made: Made, by_strategy: Mapping[str, list[float]]) -> tuple[str, bool | None]:
    """What is said of the nearest strategy, from nats for each prompt."""
    data = strategies_data({name: [(0.0, value) for value in values] for name, values in by_strategy.items()})
    finding = strategies_shown.show(made({"full": [2.0]}), {"full": {1: data}}).findings[-1]
    return finding.text, finding.holds


def test_strategies_that_are_as_near_share_the_place(made: Made) -> None:
    truth = [2.0 + 0.1 * i for i in range(6)]

    def off(mean: float, own: int) -> list[float]:
        return [value + mean + 0.02 * math.sin(1 + own * i) for i, value in enumerate(truth)]

    by_strategy = {strategies_shown.TRUTH: truth, "one": off(0.10, 2), "two": off(0.11, 3), "far": off(0.9, 5)}
    text, alone = nearest(made, by_strategy)
    assert "Nearest to the text itself under the 5-gram model: one" in text or "model: two" in text
    assert "Not shown to be further from it" in text
    assert "far" not in text
    assert alone is False
    # As far off on the other side is as near.
    text, alone = nearest(made, by_strategy | {"two": off(-0.11, 3)})
    assert "Not shown to be further from it" in text
    assert alone is False
    text, alone = nearest(made, by_strategy | {"two": off(0.5, 3)})
    assert "model: one" in text
    assert "Every other strategy is shown to be further" in text
    assert alone is True
    few = {name: values[:2] for name, values in by_strategy.items()}
    text, alone = nearest(made, few)
    assert "from 2 prompts: too few to tell it from the others" in text
    assert alone is None


def test_perplexities_stand_beside_nats(made: Made) -> None:
    data = strategies_data({strategies_shown.TRUTH: [(0.0, 1.0), (0.0, 2.0)], "one": [(0.0, 3.0), (0.0, 1.0)]})
    sections = strategies_shown.show(made({"full": [2.0]}), {"full": {1: data}}).sections
    table = next(section for section in sections if isinstance(section, Table))
    place = table.columns.index("perplexity under the 5-gram")
    assert [row[place] for row in table.rows] == [f"{math.exp(1.5):.2f}", f"{math.exp(2.0):.2f}"]
    assert table.columns[place - 1] == "nats under the 5-gram"


def test_every_arm_that_was_measured_is_shown(made: Made) -> None:
    result = made({"full": [2.0], "no-attention": [2.0], "no-feed-forward": [2.0]})
    data = strategies_data({strategies_shown.TRUTH: [(0.0, 2.0)] * 4, "one": [(0.1, 2.5)] * 4})
    exhibit = strategies_shown.show(result, {"full": {1: data}, "no-feed-forward": {1: data}})
    names = [section.name for section in exhibit.sections if isinstance(section, Plot)]
    assert len(names) == len(set(names)) == 2 * len(strategies_shown.DRAWN)
    assert {finding.arm for finding in exhibit.findings} == {"full", "no-feed-forward"}
    assert strategies_shown.show(result, {}).sections == ()


def test_texts_without_two_words_have_no_figure_of_pairs(made: Made) -> None:
    data = strategies_data({strategies_shown.TRUTH: [(0.0, 2.0)] * 4, "one": [(0.1, 2.5)] * 4})
    for rows in data["strategies"].values():
        for row in rows:
            row["words"] = [1.0, None, None, None]
    exhibit = strategies_shown.show(made({"full": [2.0]}), {"full": {1: data}})
    names = [section.name for section in exhibit.sections if isinstance(section, Plot)]
    assert "strategies-repeated" in names
    assert "strategies-distinct-pairs-of-words" not in names


def test_p_values_are_corrected_over_all_measures(made: Made) -> None:
    """One difference at p = 0.02 among many comparisons is no finding."""
    truth = [(0.0, 2.0)] * 5
    one = [(value, 2.0) for value in (0.1, 0.2, 0.05, 0.25, 0.02)]
    data = strategies_data({strategies_shown.TRUTH: truth, "one": one})
    assert 0.01 < (paired_difference([value for value, _ in one], [0.0] * 5).p_value or 0.0) < 0.05
    exhibit = strategies_shown.show(made({"full": [2.0]}), {"full": {1: data}})
    assert not any(finding.text.startswith("Texts that repeat") for finding in exhibit.findings)
