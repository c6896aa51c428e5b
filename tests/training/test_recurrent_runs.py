"""Runs of models with an LSTM learn in every precision, and write texts."""

from pathlib import Path
from typing import Any

import pytest

from tests.training.conftest import LSTM, Configured
from vitral.decoding import GenerateOptions, Sampling, beam_search, generate
from vitral.runs import load_run
from vitral.training import train

CLASSIC = LSTM | {"feed_forward": "none", "norm": "none", "residual": False, "dropout": 0.0, "d_model": 12}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_learns_and_writes_the_same_text_with_a_carried_state(
    dtype: str, configured: Configured, tmp_path: Path
) -> None:
    training = {"steps": 31, "evaluate_every": 31, "dtype": dtype, "optimizer": {"learning_rate": 0.03}}
    folder = train(configured(model=CLASSIC, training=training), tmp_path / "run")
    first, *_others, last = (event["loss"] for event in folder.metrics("step"))
    assert last < first - 0.2
    run = load_run(folder.path)
    settings: dict[str, Any] = {"max_tokens": 30, "sampling": Sampling(temperature=1.0), "seed": 3}
    cached = generate(run.model, run.tokenizer, ["the", "a"], **settings)
    without = GenerateOptions(use_cache=False)
    assert cached == generate(run.model, run.tokenizer, ["the", "a"], **settings, options=without)
    assert len(beam_search(run.model, run.tokenizer, "the", max_tokens=5, num_beams=3)) == 1
