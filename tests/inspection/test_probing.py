"""Linear probes beside their controls: tasks worked by hand, and models that know or cannot know."""

import json

import numpy as np
import pytest

from vitral.core.streams import numpy_stream
from vitral.data import Split, char_tokenizer
from vitral.inspection.attention import landmarks
from vitral.inspection.probing import (
    SPLITS,
    linear_probes,
    random_classes,
    since_border,
    until_border,
    with_mixed_words,
)
from vitral.model import ModelConfig, Transformer

TOKENIZER = char_tokenizer("\n abcd")
WORD = landmarks(TOKENIZER).word.numpy()


def row(text: str) -> np.ndarray:
    return np.asarray(TOKENIZER.encode(text), dtype=np.int64)


def test_words_are_mixed_and_tokens_stay() -> None:
    text = "ab abc d abcd b\nc dd a"
    mixed = with_mixed_words(row(text), WORD, numpy_stream(1, "mixed"))
    again = TOKENIZER.decode(mixed)
    assert again != text
    assert sorted(again) == sorted(text)
    assert (again[:2], again[-2:]) == ("ab", " a")
    assert sorted(again.replace("\n", " ").split()) == sorted(text.split())
    assert TOKENIZER.decode(with_mixed_words(row("abcd a"), WORD, numpy_stream(1, "mixed"))) == "abcd a"


@pytest.mark.parametrize(
    ("text", "since", "until"),
    [("xx abcdaa", 2, 3), ("xxabcd aa", 3, 1), ("xxa bcdaa", 1, 3), ("xxab cdaa", 0, 3), ("xxabc\ndaa", 3, 0)],
)
def test_borders_by_hand(text: str, since: int, until: int) -> None:
    """At the place of index 4; a space or a line break begins a word."""
    begins = WORD[row(text.replace("x", "a"))][None]
    assert (since_border(begins, 4)[0], until_border(begins, 4)[0]) == (since, until)


def test_control_classes_are_those_of_pairs() -> None:
    pairs = {"train": numpy_stream(1, "pairs").integers(5, size=(200, 2)), "test": np.array([[1, 2], [2, 1], [1, 2]])}
    classes = {"train": np.arange(200) % 3, "test": np.array([0, 1, 2])}
    found = random_classes(pairs, classes, "task")
    assert found["test"][0] == found["test"][2]
    assert set(found["train"].tolist()) == {0, 1, 2}
    drawn = {tuple(pair): int(one) for pair, one in zip(pairs["train"].tolist(), found["train"], strict=True)}
    assert all(drawn[tuple(pair)] == one for pair, one in zip(pairs["train"].tolist(), found["train"], strict=True))


def test_token_counts_know_no_order_and_a_causal_model_no_right_side() -> None:
    """A text of random words: counting is at chance, and activations of the left side do not tell the right side."""
    stream = numpy_stream(3, "text")
    letters = np.where(stream.random(30_000) < 0.3, 1, stream.integers(2, 6, size=30_000)).astype(np.uint8)
    split = Split(letters, np.array([[0, len(letters)]]))
    shape = {"context_length": 12, "d_model": 16, "num_heads": 2, "num_layers": 1, "initialisation": "pytorch"}
    models = [Transformer(ModelConfig.parse(shape), 6, seed=seed).eval() for seed in (1, 2)]
    splits = dict.fromkeys(SPLITS, split)
    sizes = {"train": 900, "validation": 300, "test": 900}
    found = linear_probes(models[0], models[1], TOKENIZER, splits, sizes)
    assert found is not None
    assert json.loads(json.dumps(found)) == found
    order = found["order"]["tokens"]
    assert order["majority"] == pytest.approx(0.5, abs=0.01)
    assert order["accuracy"] == pytest.approx(0.5, abs=0.06)
    begin, end = found["word begin"], found["word end"]
    assert begin["trained"]["accuracy"] > begin["tokens"]["accuracy"] + 0.05
    assert end["trained"]["low"] < end["tokens"]["majority"] + 0.03
    assert begin["control"]["num"] == 900
