"""The probes `passes`, `forgetting` and `written-words`: numbers worked by hand, and what a view compares."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from text_studies import made, shown

from tests.studies.conftest import fresh, tables
from vitral.data import prepare
from vitral.evaluation import evaluate_split
from vitral.studies import study_named
from vitral.studies.probe import Trained
from vitral.studies.probes import probe_named
from vitral.training import RunConfig

FINE_TUNING = study_named("fine-tuning")


def test_the_lowest_loss_is_chosen_by_validation_and_passes_are_counted(tiny: RunConfig) -> None:
    dataset = prepare(tiny.corpus)
    losses = [(2, 1.9, 2.0), (4, 1.5, 1.7), (6, 1.6, 1.4)]
    events = [{"step": step, "validation_loss": one, "test_loss": two} for step, one, two in losses]
    run: Any = SimpleNamespace(config=tiny.plain(), folder=SimpleNamespace(metrics=lambda event: events))
    measured = probe_named("passes").measure(Trained("a", 1, run, dataset, "quick"))
    tokens = len(dataset.splits["train"].tokens)
    assert measured["passes"] == pytest.approx(6 * 3 * 11 / tokens)
    assert (measured["lowest"], measured["last"]) == (1.7, 1.4)
    assert measured["after"] == pytest.approx(measured["passes"] * 4 / 6)
    assert [loss for _, loss in measured["curve"]] == [2.0, 1.7, 1.4]


def test_forgetting_is_measured_on_the_text_of_the_arm_before(tiny: RunConfig) -> None:
    run, half = fresh(tiny), prepare(tiny.corpus.model_copy(update={"share": 0.3, "draw": 1}))
    own, before = (probe_named("forgetting").measure(replace(run, first=first)) for first in (None, half))
    for measured, text in ((own, run.dataset), (before, half)):
        assert measured["first_loss"] == evaluate_split(run.run.model, text.splits["train"], run.dataset.tokenizer).loss
    assert own["first_loss"] != before["first_loss"]


def test_every_arm_that_begins_from_another_is_compared_with_it(tmp_path) -> None:
    names = [arm.name for arm in FINE_TUNING.at("full").arms]
    result = made(tmp_path, FINE_TUNING, "full", dict.fromkeys(names, 1.8))
    loss = {"works-play": 2.0, "machado-play": 3.0, "machado-works": 3.5}
    measured = {name: {seed: {"first_loss": loss.get(name, 1.5) + seed / 100} for seed in (1, 2, 3)} for name in names}
    view = shown(probe_named("forgetting"), result, measured)
    assert ("all other works", "1.520") in tables(view)[0].rows
    assert [(one.arm, one.against) for one in view.comparisons] == [
        ("works-play", "all other works"),
        ("machado-play", "novels in Portuguese"),
        ("machado-works", "novels in Portuguese"),
    ]
    assert not shown(probe_named("forgetting"), result, {"play": measured["play"]}).comparisons
