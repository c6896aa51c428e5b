"""Passages are of their work and split; a linear probe finds what is linearly separable and nothing else."""

from pathlib import Path

import numpy as np
import pytest
import torch

from vitral.data import CorpusConfig, Dataset, prepare
from vitral.inspection import classify_passages
from vitral.inspection.classification import (
    PENALTIES,
    Examples,
    equal_segments,
    fit,
    linear_probe,
    mean_activations,
    passages_by_work,
)
from vitral.model import ModelConfig, Transformer

TITLES = ["THE KING", "A STORM", "TWO FOOLS", "THE END", "LOST"]


def examples(count: int, seed: int, apart: float) -> Examples:
    """Three classes whose means are `apart` on axes of their own."""
    drawn, classes = np.random.default_rng(seed).normal(size=(count, 5)), np.arange(count) % 3
    drawn[np.arange(count), classes] += apart
    return Examples(drawn, classes)


class TestLinearProbe:
    def test_it_separates_what_is_apart_and_nothing_else(self) -> None:
        far, near = (
            [examples(count, seed, apart) for seed, count in enumerate((300, 90, 300))] for apart in (8.0, 0.0)
        )
        assert linear_probe(*far).accuracy > 0.99
        chance = linear_probe(*near)
        assert chance.low < 1 / 3 < chance.high
        assert chance.majority == pytest.approx(1 / 3)
        assert chance.penalty in PENALTIES

    def test_its_weights_have_no_slope_left(self) -> None:
        """At the optimum the penalty's pull equals the mean of features times errors."""
        sample, penalty = examples(60, 3, 1.0), 0.1
        weights = fit(sample, 3, penalty)
        logits = sample.features @ weights[:-1] + weights[-1]
        errors = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True) - np.eye(3)[sample.classes]
        assert sample.features.T @ errors / 60 + penalty * weights[:-1] == pytest.approx(np.zeros((5, 3)), abs=1e-4)
        assert errors.sum(axis=0) / 60 == pytest.approx(np.zeros(3), abs=1e-4)

    def test_mean_activations_are_means_over_positions(self) -> None:
        model = small_model(7)
        windows = torch.from_numpy(np.random.default_rng(1).integers(1, 7, size=(3, 13)))
        whole = model.trace(windows, ["final_norm"])["final_norm"]
        assert mean_activations(model, windows) == pytest.approx(whole.double().mean(dim=1).numpy())


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
    def test_equal_segments_cover_the_text(self) -> None:
        pieces = equal_segments("x" * 1003)
        assert (pieces[0].begin, pieces[-1].end) == (0, 1003)
        assert {piece.end - piece.begin for piece in pieces} <= {125, 126}

    @pytest.mark.parametrize("last", ["uvw ", None])
    def test_passages_are_of_their_work_and_split(self, last: str | None, tmp_path: Path) -> None:
        dataset = prepared(collection() + (f"LOST\n\n{last * 50_000}" if last else ""), tmp_path)
        titles, are_works, found = passages_by_work(dataset, 16, {"train": 20, "test": 5})
        assert are_works is (last is not None)
        for split, passages in found.items():
            counts = np.bincount(passages.works, minlength=len(titles))
            assert set(counts.tolist()) == {len(passages.works) // len(titles)}
            stored = dataset.tokenizer.decode(np.asarray(dataset.splits[split].tokens))
            assert all(dataset.tokenizer.decode(row.numpy()) in stored for row in passages.tokens)
        if are_works:
            letter = {"THE KING": "b", "A STORM": "f", "TWO FOOLS": "j", "THE END": "n", "LOST": "v"}
            for row, work in zip(found["train"].tokens, found["train"].works, strict=True):
                assert letter[titles[work]] in dataset.tokenizer.decode(row.numpy())

    def test_works_of_their_own_letters_are_classified_by_token_counts(self, tmp_path: Path) -> None:
        dataset = prepared(collection() + f"LOST\n\n{'uvw ' * 50_000}", tmp_path)
        found = classify_passages(small_model(dataset.tokenizer.vocab_size), dataset, 20, 7, 11)
        assert found is not None
        assert (len(found["titles"]), found["works"]) == (5, True)
        assert found["passages"] == {"train": 100, "validation": 35, "test": 55}
        assert found["frequencies"]["accuracy"] == 1.0
        assert found["activations"]["majority"] == pytest.approx(0.2)

    def test_a_text_whose_splits_share_no_segment_is_not_classified(self, tmp_path: Path) -> None:
        path = tmp_path / "tail.txt"
        path.write_text("the cat saw a bird\n" * 500, encoding="utf-8", newline="\n")
        dataset = prepare(CorpusConfig.parse({"source": str(path), "split": "tail"}))
        assert classify_passages(small_model(dataset.tokenizer.vocab_size), dataset, 20, 7, 11) is None
