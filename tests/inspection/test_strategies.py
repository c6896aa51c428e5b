"""Generated texts: repetition, variety and copying by hand, and every decoding strategy on the same prompts."""

import json
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from pieces import ten_words

from vitral.data import CorpusConfig, Dataset, Split, prepare
from vitral.data.tokenizers import byte_tokenizer, char_tokenizer
from vitral.decoding import GenerateOptions, Sampling, beam_search, generate
from vitral.evaluation import longest_copy, novel_share
from vitral.inspection.strategies import (
    BEAM,
    SAMPLINGS,
    TRUTH,
    copied,
    cut_prompts,
    distinct,
    given,
    longest_loop,
    repeated_share,
    sampled,
    split_words,
    strategy_measures,
)
from vitral.model import ModelConfig, Transformer

CONTEXT = 8


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A text of words drawn by chance."""
    source = ten_words(tmp_path_factory.mktemp("corpus") / "words.txt", 1500)
    return prepare(CorpusConfig.parse({"source": source, "tokenizer": "char", "split": "tail"}))


def model_of(dataset: Dataset, mask: Any = "causal") -> Transformer:
    """A fresh model whose numbers are large enough to tell tokens apart."""
    sizes = {"context_length": CONTEXT, "d_model": 12, "num_heads": 2, "num_layers": 2}
    config = ModelConfig.parse({**sizes, "initialisation": "pytorch", "attention": {"mask": mask}})
    return Transformer(config, dataset.tokenizer.vocab_size, seed=3).eval()


@pytest.fixture(scope="module")
def model(dataset: Dataset) -> Transformer:
    """A causal one."""
    return model_of(dataset)


def test_repeated_tokens_by_hand() -> None:
    assert repeated_share("abcdefg", 3) == 0.0
    assert repeated_share("aaaa", 2) == 3 / 4  # aa at 1 and at 2 have stood before
    assert repeated_share("abcxabcyabc", 3) == 6 / 11
    assert repeated_share("ab", 3) == 0.0


def test_loops_by_hand() -> None:
    assert longest_loop("xaay") == 2
    assert longest_loop("abcab") == 0  # not two whole turns
    assert longest_loop([5, 5, 5]) == 3
    assert longest_loop([]) == longest_loop("abcdef") == 0


def test_distinct_by_hand() -> None:
    assert distinct(split_words("The king, the king's the KING"), 1) == 3 / 6
    assert distinct(split_words("The king, the king's the KING"), 2) == 4 / 5
    assert distinct("ab", 3) == 0.0  # no n-gram is no variety
    assert distinct(split_words("   \n  "), 1) == 0.0


@hypothesis.given(
    st.lists(st.text("ab c", max_size=25), min_size=1, max_size=4),
    st.text("ab c", min_size=1, max_size=120),
)
def test_copies_are_what_the_copying_meter_finds(texts: list[str], train: str) -> None:
    for text, measured in zip(texts, copied(texts, train, 7), strict=True):
        assert measured["copied"] == longest_copy(text, train).length
        assert measured["novel"] == (pytest.approx(novel_share(text, train, 7)) if len(text) >= 7 else None)


def test_pieces_are_fixed_apart_and_within_their_stretches() -> None:
    text = Split(np.arange(1, 201, dtype=np.uint8), np.array([[0, 100], [100, 200]]))
    tokenizer = char_tokenizer("".join(map(chr, range(0x100, 0x100 + 200))))
    rows = cut_prompts(text, tokenizer, 5, 8, 9)
    assert rows.tolist() == cut_prompts(text, tokenizer, 5, 8, 9).tolist()
    assert len(set(rows.ravel().tolist())) == 9 * 13
    assert len(cut_prompts(text, tokenizer, 5, 8, 100)) == 14
    assert all((row[0] - 1) // 100 == (row[-1] - 1) // 100 and row[-1] - row[0] == 12 for row in rows)


def test_no_prompt_begins_or_ends_inside_a_character() -> None:
    tokenizer = byte_tokenizer()
    tokens = tokenizer.encode("aé" * 50)[1:-2].astype(np.uint8)
    text = Split(tokens, np.array([[1, len(tokens)]]))  # begins with the second byte of é
    rows = cut_prompts(text, tokenizer, 4, 7, 100)
    assert len(rows) > 3
    for row in rows:
        assert tokenizer.encode(tokenizer.decode(row[:4])).tolist() == row[:4].tolist()
    pieces = [row.tobytes() for row in rows]
    assert all(piece in tokens.astype(np.int64).tobytes() for piece in pieces)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.5, repetition_penalty=1.2)])
def test_the_text_of_a_prompt_is_what_generate_gives_for_its_number(
    model: Transformer, dataset: Dataset, sampling: Sampling
) -> None:
    prompts = cut_prompts(dataset.splits["test"], dataset.tokenizer, 5, 19, 3)[:, :5]
    written = sampled(model, dataset.tokenizer, prompts, 19, sampling, 7)[0]
    for number, row in enumerate(prompts):
        options = GenerateOptions(first_sample=number)
        prompt = dataset.tokenizer.decode(row)
        sample = generate(
            model, dataset.tokenizer, [prompt], max_tokens=19, sampling=sampling, seed=7, options=options
        )[0]
        assert written[number].tolist() == list(sample.tokens)


def test_the_score_is_that_of_beam_search_past_the_context_length_too(model: Transformer, dataset: Dataset) -> None:
    sample = beam_search(model, dataset.tokenizer, "the ", max_tokens=31, num_beams=3)[0]
    prompts = np.array([dataset.tokenizer.encode("the ")] * 2)
    nats = given(model, dataset.tokenizer, prompts, np.array([sample.tokens] * 2))[1]
    assert nats.shape == (2, 31)
    assert sample.score is not None
    assert -nats.sum(axis=1) == pytest.approx([sample.score] * 2, rel=1e-5)


def test_measures_of_strategies_are_plain_data_and_the_same_again(model: Transformer, dataset: Dataset) -> None:
    first, measured = (
        strategy_measures(model, dataset.tokenizer, dataset, prompts=3, length=17, seed=1) for _ in range(2)
    )
    assert json.loads(json.dumps(measured, allow_nan=False)) == measured == first
    assert (measured["length"], len(measured["prompts"])) == (17, 3)  # past the context length
    assert list(measured["strategies"])[:3] == [TRUTH, "greedy", BEAM]
    assert len(measured["strategies"]) == len(SAMPLINGS) + 2
    test = dataset.tokenizer.decode(np.asarray(dataset.splits["test"].tokens))
    for prompt, row in zip(measured["prompts"], measured["strategies"][TRUTH], strict=True):
        assert prompt + row["text"] in test
    assert all(
        row["looping"] == longest_loop(row["text"]) / 17 for rows in measured["strategies"].values() for row in rows
    )
