"""The tricks of `benchmarks.tricks`: what each changes, beside runs of the base with the same seed."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks.tricks import ARMS, BASE, TUNED_ON, Study, averaged, configuration, prepared, step_through
from vitral.data import CorpusConfig, Dataset, prepare
from vitral.training.loop import one_step
from vitral.training.trainer import Trainer

STEPS = 4


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return prepare(CorpusConfig(source="sample"))


def begun(name: str, dataset: Dataset) -> Trainer:
    return prepared(configuration("brief", name, STEPS, 1), dataset, ARMS[name])[0]


def step(trainer: Trainer) -> dict[str, Tensor]:
    """The weights after one more step."""
    one_step(trainer)
    trainer.state.step += 1
    return {name: weight.detach().clone() for name, weight in trainer.parameters.items()}


@pytest.mark.parametrize("name", ["value-embeddings", "bigram", "skips", "head-gates", "multi-token"])
def test_added_parameters_change_nothing_before_the_first_step_and_are_trained(name: str, dataset: Dataset) -> None:
    base, trainer = begun(BASE, dataset), begun(name, dataset)
    tokens = base.batches.batch(0)[0]
    assert torch.equal(trainer.model(tokens), base.model(tokens))
    after = step(trainer)
    assert all(bool(after[each].any()) for each in after.keys() - base.parameters.keys())


@pytest.mark.parametrize("name", list(ARMS))
def test_every_trick_trains(name: str, dataset: Dataset) -> None:
    trainer, finish = prepared(configuration("brief", name, STEPS, 1), dataset, ARMS[name])
    step_through(trainer, finish)
    assert trainer.state.step == STEPS
    assert all(bool(weight.isfinite().all()) for weight in trainer.parameters.values())


def test_a_tail_mean_is_the_mean_of_the_weights_after_its_steps(dataset: Dataset) -> None:
    base, trainer = begun(BASE, dataset), begun(BASE, dataset)
    steps = [step(base) for _ in range(STEPS)]
    step_through(trainer, averaged(0.5)(trainer))
    for name, weight in trainer.parameters.items():
        torch.testing.assert_close(weight, (steps[2][name] + steps[3][name]) / 2)


def test_rows_of_normuon_move_equally_far_and_as_far_as_muons_together(dataset: Dataset) -> None:
    name, moved = "blocks.0.mlp.up.weight", dict[str, Tensor]()
    for arm in (BASE, "normuon"):
        trainer = begun(arm, dataset)
        before = trainer.parameters[name].detach().clone()
        moved[arm] = step(trainer)[name] - before
    rows = moved["normuon"].norm(dim=1)
    torch.testing.assert_close(rows, rows.mean().expand_as(rows), rtol=1e-3, atol=0)
    torch.testing.assert_close(moved["normuon"].norm(), moved[BASE].norm(), rtol=1e-3, atol=0)


def test_a_growing_context_has_as_many_tokens_in_every_step(dataset: Dataset) -> None:
    trainer = begun("context", dataset)
    assert [tuple(trainer.batches.batch(each)[0].shape) for each in range(STEPS)] == [(32, 64)] * 2 + [(16, 128)] * 2


def test_a_trick_gets_as_many_steps_as_take_the_bases_time(tmp_path: Path) -> None:
    study = Study("brief", [BASE, "head-gates"], 1, tmp_path, tmp_path, 1)
    asked = study.task("ratio", "head-gates")
    study.results[asked["key"]] = {"ratio": 1.5}
    assert (study.steps(BASE), study.steps("head-gates"), asked["text"]) == (300, 200, TUNED_ON)
