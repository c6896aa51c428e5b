"""Linear probes: what is linearly separable and nothing else, in words and in passages of works."""

import json
from pathlib import Path

import numpy as np
import pytest

from vitral.core.streams import numpy_stream
from vitral.data import CorpusConfig, Dataset, Split, char_tokenizer, prepare
from vitral.inspection.attention import landmarks
from vitral.inspection.probing import (
    BORDERS,
    PENALTIES,
    SPLITS,
    Classes,
    Features,
    classify_passages,
    linear_probe,
    linear_probes,
    passages_by_work,
    random_classes,
    to_border,
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
    assert [to_border(begins[:, 4 + steps])[0] for steps in BORDERS.values()] == [since, until]


def test_control_classes_are_those_of_pairs() -> None:
    pairs = {"train": numpy_stream(1, "pairs").integers(5, size=(200, 2)), "test": np.array([[1, 2], [2, 1], [1, 2]])}
    classes = {"train": np.arange(200) % 3, "test": np.array([0, 1, 2])}
    measured = random_classes(pairs, classes, "task")
    assert measured["test"][0] == measured["test"][2]
    assert set(measured["train"].tolist()) == {0, 1, 2}
    drawn = {tuple(pair): int(one) for pair, one in zip(pairs["train"].tolist(), measured["train"], strict=True)}
    assert all(drawn[tuple(pair)] == one for pair, one in zip(pairs["train"].tolist(), measured["train"], strict=True))


def test_token_counts_know_no_order_and_a_causal_model_no_right_side() -> None:
    """A text of random words: counting is at chance, and activations of the left side do not tell the right side."""
    stream = numpy_stream(3, "text")
    letters = np.where(stream.random(30_000) < 0.3, 1, stream.integers(2, 6, size=30_000)).astype(np.uint8)
    split = Split(letters, np.array([[0, len(letters)]]))
    shape = {"context_length": 12, "d_model": 16, "num_heads": 2, "num_layers": 1, "initialisation": "pytorch"}
    models = [Transformer(ModelConfig.parse(shape), 6, seed=seed).eval() for seed in (1, 2)]
    splits = dict.fromkeys(SPLITS, split)
    sizes = {"train": 900, "validation": 300, "test": 900}
    measured = linear_probes(models[0], models[1], TOKENIZER, splits, sizes)
    assert measured is not None
    assert json.loads(json.dumps(measured)) == measured
    order = measured["order"]["tokens"]
    assert order["majority"] == pytest.approx(0.5, abs=0.01)
    assert order["accuracy"] == pytest.approx(0.5, abs=0.06)
    begin, end = measured["word begin"], measured["word end"]
    assert begin["trained"]["accuracy"] > begin["tokens"]["accuracy"] + 0.05
    assert end["trained"]["accuracy"] < end["tokens"]["majority"] + 0.1
    assert begin["control"]["num"] == 900


TITLES = ["THE KING", "A STORM", "TWO FOOLS", "THE END", "LOST"]


def examples(apart: float) -> tuple[Features, Classes]:
    """Three classes whose means are `apart` on axes of their own."""
    random, counts = np.random.default_rng(1), dict(zip(SPLITS, (300, 90, 300), strict=True))
    classes = {split: np.arange(count) % 3 for split, count in counts.items()}
    return {
        split: random.normal(size=(len(each), 5)) + apart * np.eye(5)[each] for split, each in classes.items()
    }, classes


def test_a_probe_separates_what_is_apart_and_nothing_else() -> None:
    assert linear_probe(*examples(8.0))["accuracy"] > 0.99
    chance = linear_probe(*examples(0.0))
    assert chance["accuracy"] == pytest.approx(1 / 3, abs=0.1)
    assert chance["majority"] == pytest.approx(1 / 3)
    assert chance["penalty"] in PENALTIES


def small_model(vocab_size: int) -> Transformer:
    config = {"context_length": 13, "d_model": 12, "num_heads": 3, "num_layers": 1}
    return Transformer(ModelConfig.parse(config), vocab_size, seed=1).eval()


def collection() -> str:
    """Five works of their own letters behind a table of contents; the last title does not occur again."""
    letters = ["abc ", "efg ", "ijk ", "mno "]
    body = "".join(f"{title}\n\n{letter * 50_000}\n" for title, letter in zip(TITLES, letters, strict=False))
    return "A book\n\n   Contents\n\n" + "".join(f"   {title}\n\n" for title in TITLES) + body


def prepared(text: str, folder: Path) -> Dataset:
    path = folder / "works.txt"
    path.write_text(text, encoding="utf-8", newline="\n")
    return prepare(CorpusConfig.parse({"source": str(path), "split": "blocks"}))


def test_passages_of_works_of_their_own_letters_are_classified_by_token_counts(tmp_path: Path) -> None:
    dataset = prepared(collection() + f"LOST\n\n{'uvw ' * 50_000}", tmp_path)
    titles, passages, works = passages_by_work(dataset, 16, {"train": 20, "test": 5})
    letter = {"THE KING": "b", "A STORM": "f", "TWO FOOLS": "j", "THE END": "n", "LOST": "v"}
    for split, rows in passages.items():
        assert set(np.bincount(works[split], minlength=len(titles)).tolist()) == {len(rows) // len(titles)}
        stored = dataset.tokenizer.decode(np.asarray(dataset.splits[split].tokens))
        for row, work in zip(map(dataset.tokenizer.decode, rows), works[split], strict=True):
            assert row in stored
            assert letter[titles[work]] in row
    sizes = dict(zip(SPLITS, (20, 7, 11), strict=True))
    measured = classify_passages(small_model(dataset.tokenizer.vocab_size), dataset, sizes)
    assert measured is not None
    assert len(measured["titles"]) == 5
    assert measured["passages"] == {"train": 100, "validation": 35, "test": 55}
    assert measured["frequencies"]["accuracy"] == 1.0
    assert measured["activations"]["majority"] == pytest.approx(0.2)
