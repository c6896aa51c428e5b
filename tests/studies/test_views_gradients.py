"""The probe `gradients`: what is measured of a run, and the numbers and judgements of its view."""

from pathlib import Path
from typing import Any

import pytest

from tests.studies.conftest import viewed
from vitral.core.config import merge
from vitral.data import Batches, prepare
from vitral.inspection.gradients import gradients_by_block
from vitral.model import Transformer
from vitral.runs import load_run
from vitral.studies.probe import Trained, View
from vitral.studies.probes import probe_named
from vitral.training import RunConfig, train

CONTEXT = 8


def test_the_fresh_model_is_the_run_before_its_first_step(tiny: RunConfig, tmp_path: Path) -> None:
    config = RunConfig.parse(merge(tiny.plain(), {"model": {"context_length": CONTEXT, "num_layers": 2}}))
    train(config, tmp_path / "run")
    run, dataset = load_run(tmp_path / "run", "last"), prepare(config.corpus)
    measured = probe_named("gradients").measure(Trained("full", config.seed, run, dataset, "quick"))
    fresh = Transformer(run.model.config, run.model.vocab_size, seed=config.seed).eval()
    batches = Batches(dataset.splits["train"], context_length=CONTEXT, batch_size=16, seed=0)
    assert measured["fresh"] == gradients_by_block(fresh, *batches.batch(0))
    assert measured["fresh"] != measured["trained"]
    assert "small" not in measured  # its matrices are GPT-2's already


def state(stream: list[float | None], scale: list[float] | None = None) -> dict[str, Any]:
    """Measures of one state."""
    return {"loss": 2.0, "stream": stream, "parameters": stream, "scale": scale or [1.0] * len(stream)}


def view_of(fresh: dict[str, Any], trained: dict[str, Any], seeds: int) -> View:
    """The view of an arm of two layers with equal runs."""
    run = {"positions": 5, "fresh": fresh, "trained": trained}
    return viewed("gradients", {"full": dict.fromkeys(range(seeds), run)}, full={"model": {"num_layers": 2}})


@pytest.mark.parametrize(
    ("fresh", "trained", "values", "shown"),
    [
        (state([1.0, 1.0]), state([2.0, 1.0]), [1.0, 2.0], [True, True]),
        (state([1.0, 1.0]), state([0.05, 1.0]), [1.0, 0.05], [True, False]),
        (state([20.0, 1.0]), state([1.0, 1.0]), [20.0, 1.0], [False, True]),
        # Twenty times the gradient for a stream of a twentieth: the same effect.
        (state([20.0, 1.0], [0.05, 1.0]), state([1.0, 1.0]), [1.0, 1.0], [True, True]),
    ],
)
def test_checks_follow_the_numbers(fresh: dict, trained: dict, values: list[float], shown: list[bool]) -> None:
    view = view_of(fresh, trained, 3)
    assert [check.value for check in view.checks] == pytest.approx(values)
    assert [check.shown for check in view.checks] == shown
    assert not view.notes


def test_a_gradient_that_is_not_finite_is_noted_and_has_no_check() -> None:
    view = view_of(state([None, 1.0]), state([1.0, 1.0]), 1)
    assert [(note.arm, note.shown) for note in view.notes] == [("full", False)]
    assert [check.shown for check in view.checks] == [True]
