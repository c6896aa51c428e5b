"""Passages are of their work and split; a linear probe finds what is linearly separable and nothing else."""

from pathlib import Path

import numpy as np
import pytest

from vitral.data import CorpusConfig, Dataset, prepare
from vitral.inspection import classify_passages
from vitral.inspection.classification import (
    PENALTIES,
    Examples,
    linear_probe,
    passages_by_work,
)
from vitral.model import ModelConfig, Transformer

TITLES = ["THE KING", "A STORM", "TWO FOOLS", "THE END", "LOST"]


def examples(count: int, seed: int, apart: float) -> Examples:
    """Three classes whose means are `apart` on axes of their own."""
    drawn, classes = np.random.default_rng(seed).normal(size=(count, 5)), np.arange(count) % 3
    drawn[np.arange(count), classes] += apart
    return drawn, classes


class TestLinearProbe:
    def test_it_separates_what_is_apart_and_nothing_else(self) -> None:
        far, near = (
            [examples(count, seed, apart) for seed, count in enumerate((300, 90, 300))] for apart in (8.0, 0.0)
        )
        assert linear_probe(*far)["accuracy"] > 0.99
        chance = linear_probe(*near)
        assert chance["low"] < 1 / 3 < chance["high"]
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


@pytest.mark.usefixtures("own_cache")
class TestPassages:
    @pytest.mark.parametrize("last", ["uvw ", None])
    def test_passages_are_of_their_work_and_split(self, last: str | None, tmp_path: Path) -> None:
        dataset = prepared(collection() + (f"LOST\n\n{last * 50_000}" if last else ""), tmp_path)
        titles, are_works, found = passages_by_work(dataset, 16, {"train": 20, "test": 5})
        assert are_works is (last is not None)
        for split, (tokens, works) in found.items():
            counts = np.bincount(works, minlength=len(titles))
            assert set(counts.tolist()) == {len(works) // len(titles)}
            stored = dataset.tokenizer.decode(np.asarray(dataset.splits[split].tokens))
            assert all(dataset.tokenizer.decode(row.numpy()) in stored for row in tokens)
        if are_works:
            letter = {"THE KING": "b", "A STORM": "f", "TWO FOOLS": "j", "THE END": "n", "LOST": "v"}
            for row, work in zip(*found["train"], strict=True):
                assert letter[titles[work]] in dataset.tokenizer.decode(row.numpy())

    def test_works_of_their_own_letters_are_classified_by_token_counts(self, tmp_path: Path) -> None:
        dataset = prepared(collection() + f"LOST\n\n{'uvw ' * 50_000}", tmp_path)
        found = classify_passages(small_model(dataset.tokenizer.vocab_size), dataset, 20, 7, 11)
        assert found is not None
        assert (len(found["titles"]), found["works"]) == (5, True)
        assert found["passages"] == {"train": 100, "validation": 35, "test": 55}
        assert found["frequencies"]["accuracy"] == 1.0
        assert found["activations"]["majority"] == pytest.approx(0.2)
