"""Units of a text and words that a model writes, by hand and on a small model's data."""

import pytest

from vitral.data import CorpusConfig, Dataset, prepare
from vitral.inspection.text_units import characters_per_token, share_of_words, text_units, words_seen, written_words
from vitral.model import ModelConfig, Transformer, count_parameters


def data(tmp_path, text: str, tokenizer: str) -> Dataset:
    path = tmp_path / "t.txt"
    path.write_text(text, encoding="utf-8")
    return prepare(CorpusConfig.parse({"source": str(path), "tokenizer": tokenizer, "split": "tail"}))


def test_characters_per_token_by_hand(tmp_path):
    for text, tokenizer, expected in (("abab" * 3_000, "byte", 1.0), ("éa" * 3_000, "byte", 2 / 3)):
        dataset = data(tmp_path, text, tokenizer)
        assert characters_per_token(dataset.splits["test"], dataset.tokenizer) == pytest.approx(expected)
    pairs = data(tmp_path, "éa" * 3_000, "bpe")
    assert characters_per_token(pairs.splits["test"], pairs.tokenizer) > 1.5


def test_words_seen_by_hand():
    assert words_seen("the cat sat", "the dog sat, the end") == 3 / 5
    assert words_seen("o’clock", "o’clock clock") == 0.5
    assert words_seen("", "") == 0


def test_units_of_a_training(tmp_path):
    dataset = data(tmp_path, "ab b" * 3_001, "char")
    model = ModelConfig.parse({"context_length": 7, "d_model": 8, "num_heads": 2, "num_layers": 1})
    vocab, train = dataset.tokenizer.vocab_size, dataset.splits["train"].tokens
    measured = text_units(model, dataset, 210)
    assert measured["vocab_size"] == vocab
    assert measured["characters_per_token"] == 1.0
    assert measured["context_characters"] == 7.0
    # Token embedding and head of 8 numbers for each token, and the head's bias where there is one.
    share = measured["token_share"] * count_parameters(model, vocab)
    assert share == pytest.approx(2 * 8 * vocab, abs=vocab)
    assert (measured["tokens"], measured["characters"]) == (210, 210.0)
    assert measured["passes"] == 210 / len(train)
    counts = sorted((train == token).sum() for token in range(vocab))
    middle = (counts[(vocab - 1) // 2] + counts[vocab // 2]) / 2
    assert measured["median_seen"] == pytest.approx(middle * 210 / len(train))


def test_shares_counted_by_hand() -> None:
    known = frozenset(["the", "cat", "o'clock"])
    measured = share_of_words(["The cat the dog's cut", "at four o'clock no", "x"], known, 7)
    # "cut", "no" and "x" are last words, which may be cut; "dog's" is the fourth word of its text.
    assert measured == {"real": 4 / 6, "distinct": 5 / 6, "words": 6}
    assert share_of_words(["The cat the dog's cut", "at four o'clock no", "x"], known, 5)["words"] == 4
    assert share_of_words(["word"], known, 9) == {"real": 0.0, "distinct": 0.0, "words": 0}


@pytest.mark.parametrize("tokenizer", ["char", "byte", "bpe:300"])
def test_the_same_number_of_words_is_measured_whatever_the_tokens(tmp_path, tokenizer) -> None:
    (tmp_path / "t.txt").write_text("the cat sat on a mat\n" * 900, encoding="utf-8")
    dataset = prepare(CorpusConfig.parse({"source": str(tmp_path / "t.txt"), "tokenizer": tokenizer, "split": "tail"}))
    config = ModelConfig.parse({"context_length": 8, "d_model": 8, "num_heads": 2, "num_layers": 1})
    model = Transformer(config, dataset.tokenizer.vocab_size, seed=1).eval()
    measured = written_words(model, dataset.tokenizer, dataset, words=16, seed=3)
    assert measured == written_words(model, dataset.tokenizer, dataset, words=16, seed=3)
    assert measured["words"] == 16
    assert measured["test_real"] == 1.0
    assert measured["test_distinct"] == 6 / 16
    assert measured["real"] < 1
