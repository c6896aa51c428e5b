"""Runs of models with an LSTM: resumed to the bit, in every precision, with either optimizer, and they write texts."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vitral.decoding import GenerateOptions, Sampling, beam_search, generate
from vitral.runs import RunFolder, load_run
from vitral.training import RunConfig, resume, train

Configured = Callable[..., RunConfig]
BytesOf = Callable[[RunFolder, int], dict[str, bytes]]
LSTM: dict[str, Any] = {"attention": "none", "recurrence": "lstm", "positions": "none"}
CLASSIC = LSTM | {"feed_forward": "none", "norm": "none", "residual": False}


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("model", [LSTM, CLASSIC], ids=["in blocks", "classic"])
def test_a_resumed_run_is_the_straight_one_to_the_bit(
    model: dict[str, Any], optimizer: str, configured: Configured, tmp_path: Path, bytes_of: BytesOf
) -> None:
    config = configured(model=model, training={"optimizer": {"name": optimizer}, "checkpoint_every": 1, "steps": 12})
    straight = train(config, tmp_path / "straight")
    shutil.copytree(straight.path, tmp_path / "stopped")
    for later in range(6, 13):
        shutil.rmtree(tmp_path / "stopped" / "steps" / f"step-{later:08d}")
    resumed = resume(tmp_path / "stopped")
    assert all(bytes_of(resumed, step) == bytes_of(straight, step) for step in range(6, 13))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_it_learns_and_writes_the_same_text_with_a_carried_state(
    dtype: str, configured: Configured, tmp_path: Path
) -> None:
    training = {"steps": 40, "evaluate_every": 40, "dtype": dtype, "optimizer": {"learning_rate": 0.03}}
    folder = train(configured(model=CLASSIC | {"dropout": 0.0, "d_model": 12}, training=training), tmp_path / "run")
    first, *_others, last = (event["loss"] for event in folder.metrics("step"))
    assert last < first - 0.2
    run = load_run(folder.path)
    settings: dict[str, Any] = {"max_tokens": 30, "sampling": Sampling(temperature=1.0), "seed": 3}
    cached = generate(run.model, run.tokenizer, ["the", "a"], **settings)
    without = GenerateOptions(use_cache=False)
    assert cached == generate(run.model, run.tokenizer, ["the", "a"], **settings, options=without)
    assert len(beam_search(run.model, run.tokenizer, "the", max_tokens=5, num_beams=3)) == 1
