"""Words that a model writes: counted by hand, and of a model that knows a text by heart or nothing of it."""

import pytest

from vitral.data import CorpusConfig, prepare
from vitral.inspection.written_words import share_of_words, written_words
from vitral.model import ModelConfig, Transformer


def test_shares_counted_by_hand() -> None:
    known = frozenset(["the", "cat", "o'clock"])
    found = share_of_words(["The cat the dog's cut", "at four o'clock no", "x"], known, 7)
    # "cut", "no" and "x" are last words, which may be cut; "dog's" is the fourth word of its text.
    assert found == {"real": 4 / 6, "distinct": 5 / 6, "words": 6}
    assert share_of_words(["The cat the dog's cut", "at four o'clock no", "x"], known, 5)["words"] == 4
    assert share_of_words(["word"], known, 9) == {"real": 0.0, "distinct": 0.0, "words": 0}


@pytest.mark.parametrize("tokenizer", ["char", "byte", "bpe:300"])
def test_the_same_number_of_words_is_measured_whatever_the_tokens(tmp_path, tokenizer) -> None:
    (tmp_path / "t.txt").write_text("the cat sat on a mat\n" * 900, encoding="utf-8")
    dataset = prepare(CorpusConfig.parse({"source": str(tmp_path / "t.txt"), "tokenizer": tokenizer, "split": "tail"}))
    config = ModelConfig.parse({"context_length": 8, "d_model": 8, "num_heads": 2, "num_layers": 1})
    model = Transformer(config, dataset.tokenizer.vocab_size, seed=1).eval()
    found = written_words(model, dataset.tokenizer, dataset, words=16, seed=3)
    assert found == written_words(model, dataset.tokenizer, dataset, words=16, seed=3)
    assert found["words"] == 16
    assert found["test_real"] == 1.0
    assert found["test_distinct"] == 6 / 16
    assert found["real"] < 1
