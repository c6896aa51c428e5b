"""The probe of answers: what teacher forcing and free running share, and its numbers by hand."""

from pathlib import Path

import pytest
import torch

from tests.studies.conftest import viewed
from vitral.data import prepare
from vitral.data.batches import IGNORED
from vitral.evaluation.losses import reading_of_config
from vitral.model import ModelConfig, Transformer
from vitral.runs import load_run
from vitral.studies.judging import judge
from vitral.studies.probe import Trained
from vitral.studies.probes import probe_named
from vitral.studies.probes.tasks import right_tokens
from vitral.training import RunConfig, train

TASK = {"name": "sort", "symbols": 3, "length": 6, "sequences": 300}
SHAPES = {"encoder-decoder": 7, "decoder": 14}


@pytest.mark.parametrize("shape", SHAPES)
def test_both_ways_agree_up_to_the_first_wrong_token(shape: str, tmp_path: Path) -> None:
    model = {"shape": shape, "context_length": SHAPES[shape], "d_model": 12, "num_layers": 1, "num_heads": 3}
    steps = {"steps": 30, "evaluate_every": 30, "batch_size": 16, "threads": 1}
    config = RunConfig.parse({"corpus": {"task": TASK}, "model": model, "training": steps})
    dataset = prepare(config.corpus)
    train(config, tmp_path / "run", dataset=dataset)
    run = Trained("base", 1, load_run(tmp_path / "run", "last"), dataset, "quick")
    split, reading = run.test, reading_of_config(run.model.config)
    assert split.answers is not None
    inputs, targets = reading.pair(split, reading.indices(split, split.segments))
    forced, free = right_tokens(run.model, inputs, targets, split.answers.closes)
    asked = targets != IGNORED
    assert 0 < int(forced.sum()) < int(asked.sum())
    before = (asked & ~forced).int().cumsum(1) == 0
    assert torch.equal(forced & before, free & before)
    assert torch.equal((forced | ~asked).all(1), (free | ~asked).all(1))
    measured = probe_named("answers").measure(run)
    assert viewed("answers", {"base": {1: measured}}).figure is not None


def test_what_is_written_after_the_end_is_wrong() -> None:
    """A model that always writes token 0, the end: only an answer of the end alone is right."""
    model = Transformer(ModelConfig(context_length=4, d_model=4, num_layers=0, num_heads=1), 4).eval()
    torch.nn.init.zeros_(model.get_parameter("head.weight"))
    inputs, no = torch.tensor([[3, 2, 1, 0], [3, 2, 0, 0]]), IGNORED
    forced, free = right_tokens(model, inputs, torch.tensor([[no, 1, 0, no], [no, 0, no, no]]), closes=0)
    assert forced.int().tolist() == [[0, 0, 1, 0], [0, 1, 0, 0]]
    assert free.int().tolist() == [[0, 0, 0, 0], [0, 1, 0, 0]]


def test_the_claims_follow_the_numbers() -> None:
    sums = {"length": 2, "answers": 10, "tokens": 20, "forced": 18, "free": 15, "exact": 9, "later": 4}
    runs = {seed: {"lengths": [{**sums, "later_forced": 3, "later_free": seed % 2}]} for seed in (1, 2, 3, 4)}
    measured = {claim.comparison.quantity.name: claim for claim in judge(viewed("answers", {"base": runs}).comparisons)}
    later = measured["right tokens after the first error, free running"]
    assert (later.verdict, later.difference) == ("worse", pytest.approx(0.125 - 0.75))
    assert measured["whole answers"].difference == pytest.approx(0.9 - 0.9**2)
