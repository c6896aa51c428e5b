"""Our objects survive pickle and deep copies, and behave the same afterwards."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import vitral
from vitral import decoding, evaluation, explanation, runs, studies
from vitral.core.errors import StorageError, TrainingStopped, UsageError
from vitral.data import UnseenCharacter
from vitral.studies.plan import plan_study

Copy = Callable[[Any], Any]


def _pickled(one: Any) -> Any:
    return pickle.loads(pickle.dumps(one))


@pytest.fixture(params=[_pickled, copy.deepcopy], ids=["pickle", "deepcopy"])
def copied(request: pytest.FixtureRequest) -> Copy:
    return request.param


@pytest.fixture(scope="module")
def run(tiny_run: Path) -> vitral.Run:
    return vitral.load(tiny_run)


def test_a_run_generates_the_same_text(run: vitral.Run, copied: Copy) -> None:
    again = copied(run)
    assert again.generate("The", max_tokens=30, seed=4) == run.generate("The", max_tokens=30, seed=4)
    assert again.evaluate(copying=False) == run.evaluate(copying=False)
    assert (again.path, again.step, again.config) == (run.path, run.step, run.config)
    assert again.metrics() == run.metrics()
    assert again.folder.path == run.folder.path
    checkpoint = copied(run.folder.load("last", warn=pytest.fail))
    assert isinstance(checkpoint, runs.Checkpoint)
    assert torch.equal(copied(runs.load_run(run.path)).model(run.encode("The")), run.model(run.encode("The")))


@pytest.mark.parametrize(
    "error",
    [
        StorageError("/x: cannot be written"),
        TrainingStopped("the loss is not finite"),
        UnseenCharacter("é", 7, "the alphabet"),
        UsageError("two\nlines " * 500),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_keeps_type_message_and_exit_code(error: UsageError, copied: Copy) -> None:
    again = copied(error)
    assert type(again) is type(error)
    assert (str(again), again.args, again.exit_code) == (str(error), error.args, error.exit_code)
    assert vars(again) == vars(error)


def test_plain_objects_are_equal(run: vitral.Run, copied: Copy) -> None:
    for one in (
        decoding.Sampling(top_k=3),
        run.model.config,
        vitral.configure("fast"),
        vitral.count("fast", vocabulary=50),
        vitral.survey("sample"),
        run.evaluate(copying=False),
        vitral.generate(run, "The", max_tokens=3),
        vitral.inspect(run, "The"),
        vitral.list_studies(),
        vitral.doctor(run),
        studies.study_named("no-attention"),
        plan_study("no-attention", "fast", budget="quick"),
        evaluation.Masking(0.5, 0),
        explanation.Exercise(),
    ):
        again = copied(one)
        assert type(again) is type(one)
        assert again == one
