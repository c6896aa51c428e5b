"""A run is a function of its configuration, and only of what in it is about training."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from tests.training.conftest import Configured, bytes_of, measured_in
from vitral.core.errors import UsageError
from vitral.data import prepare
from vitral.evaluation import evaluate_split
from vitral.runs import RunFolder, load_run
from vitral.training import train

GOLDEN = [2.946568, 2.9362, 2.890771, 2.886162, 2.845555, 2.841432, 2.77144, 2.736925, 2.700104, 2.63995]


def test_two_runs_are_equal(configured: Configured, straight: RunFolder, tmp_path: Path) -> None:
    torch.rand(7)  # whatever the state of the global generator
    again = train(configured(training={"checkpoint_every": 1}), tmp_path / "run")
    assert all(bytes_of(again, step) == bytes_of(straight, step) for step in range(1, 21))
    assert measured_in(again) == measured_in(straight)
    for name in ("config.toml", "tokenizer.json", "corpus.json", "environment.json"):
        assert (again.path / name).read_bytes() == (straight.path / name).read_bytes()


@pytest.mark.parametrize(
    "changes",
    [
        {"evaluate_every": 3, "log_every": 3, "sample_every": 6, "sample_tokens": 13},
        {"evaluate_every": 10**9, "checkpoint_every": 2, "keep_checkpoints": 2},
    ],
)
def test_looking_changes_nothing(
    changes: dict[str, int], configured: Configured, straight: RunFolder, tmp_path: Path
) -> None:
    watched = train(configured(training=changes), tmp_path / "run")
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert bytes_of(watched, 20)[name] == bytes_of(straight, 20)[name]
    losses = {event["step"]: event["loss"] for event in straight.metrics("step")}
    assert all(event["loss"] == losses[event["step"]] for event in watched.metrics("step"))


def test_ten_losses_are_those_of_the_first_release(configured: Configured, tmp_path: Path) -> None:
    # Without dropout, whose numbers are not the same on every kind of processor.
    schedule = {"name": "constant", "warmup_steps": 0}
    config = configured(model={"dropout": 0.0}, training={"steps": 10, "schedule": schedule})
    folder = train(config, tmp_path / "run")
    assert [event["loss"] for event in folder.metrics("step")] == pytest.approx(GOLDEN, abs=1e-4)


def test_a_loaded_run_measures_what_training_measured(configured: Configured, straight: RunFolder) -> None:
    """Best is the checkpoint with the lowest validation loss, and its losses are found again exactly."""
    run, dataset = load_run(straight.path, "best"), prepare(configured().corpus)
    evaluations = straight.metrics("evaluation")
    best = min(evaluations, key=lambda event: event["validation_loss"])
    assert run.step == best["step"]
    for part in ("validation", "test"):
        result = evaluate_split(run.model, dataset.splits[part], run.tokenizer).loss
        assert result == best[f"{part}_loss"]


def test_the_mean_training_loss_is_since_the_last_evaluation(straight: RunFolder) -> None:
    losses = {event["step"]: event["loss"] for event in straight.metrics("step")}
    spans = {7: range(1, 8), 14: range(8, 15), 20: range(15, 21)}
    for event in straight.metrics("evaluation"):
        span = [losses[step] for step in spans[event["step"]]]
        assert event["train_loss"] == pytest.approx(sum(span) / len(span), rel=1e-12)


class TestInitFrom:
    """Starting from another run's weights."""

    FROZEN: ClassVar[dict[str, Any]] = {
        "steps": 1,
        "optimizer": {"learning_rate": 1e-30},
        "schedule": {"warmup_steps": 0},
    }

    def test_training_starts_from_the_best_weights(
        self, configured: Configured, straight: RunFolder, tmp_path: Path
    ) -> None:
        config = configured(seed=2, training=self.FROZEN)
        folder = train(config, tmp_path / "run", init_from=straight.path)
        best = load_run(straight.path, "best").step
        assert bytes_of(folder, 1)["model.safetensors"] == bytes_of(straight, best)["model.safetensors"]
        fresh = train(config, tmp_path / "fresh")
        assert bytes_of(fresh, 1)["model.safetensors"] != bytes_of(folder, 1)["model.safetensors"]
        assert folder.document("tokenizer") == straight.document("tokenizer")

    @pytest.mark.parametrize(
        ("model", "complaint"),
        [
            ({"d_model": 9}, "has shape"),
            ({"num_layers": 2}, r"blocks\.1\..* is missing"),
            ({"norm": "post"}, r"final_norm\..* does not belong"),
        ],
    )
    def test_other_shapes_are_refused_in_one_line(
        self, model: dict[str, Any], complaint: str, configured: Configured, straight: RunFolder, tmp_path: Path
    ) -> None:
        with pytest.raises(UsageError, match=f"--init-from .*: .*{complaint}"):
            train(configured(model=model), tmp_path / "run", init_from=straight.path)
        assert not (tmp_path / "run").exists()

    def test_tokens_must_mean_the_same(self, configured: Configured, straight: RunFolder, tmp_path: Path) -> None:
        other = tmp_path / "other.txt"
        other.write_text("".join(chr(0x400 + n % 18) for n in range(997)), encoding="utf-8")
        config = configured(corpus={"source": str(other)})
        dataset = prepare(config.corpus)
        assert dataset.tokenizer.vocab_size == load_run(straight.path).tokenizer.vocab_size
        with pytest.raises(UsageError, match="tokenized with another tokenizer"):
            train(config, tmp_path / "run", dataset=dataset, init_from=straight.path)


class TestRefusals:
    """What is refused before anything is written."""

    def test_a_mask_that_shows_the_answer_unless_it_is_meant(self, configured: Configured, tmp_path: Path) -> None:
        both_ways = {"attention": {"mask": "bidirectional"}}
        with pytest.raises(UsageError, match=r"model\.attention\.mask: under a bidirectional mask"):
            configured(model=both_ways)
        leaky = {"steps": 2, "allow_leak": True}
        assert len(train(configured(model=both_ways, training=leaky), tmp_path / "run").metrics("step")) == 2
