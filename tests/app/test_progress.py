"""What a person sees of a study while it is trained: how far all of it is, and how long it will take."""

import pytest

from vitral.app import progress
from vitral.app.progress import TrainingState

START = {"event": "start", "steps": 20, "step": 0, "parameters": 7, "vocab_size": 5, "tokens": {"train": 99}}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that a test sets."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_the_time_left_of_a_study_follows_from_the_work_done_in_this_call(clock: list[float]) -> None:
    view = TrainingState()
    one = {"arm": "a", "seed": 1, "run": 1, "runs": 3, "before": 0, "during": 30, "in_all": 120}
    view.take({"event": "run", "state": "train", **one})
    view.take({**START, **one})
    clock[0] = 110.0
    view.take({"event": "step", "step": 10, "loss": 3.0, **one})
    assert view.whole() == "run 1 of 3 · 12% of all training · 1:10 left"  # an eighth in 10 s
    two = {**one, "arm": "b", "run": 2, "before": 30, "during": 30}
    view.take({"event": "run", "state": "resume", **two})
    assert view.whole().startswith("run 2 of 3 · 25% of all training")  # the step of the run before does not count
    view.take({**START, **two, "step": 10})
    clock[0] = 130.0
    view.take({"event": "step", "step": 15, "loss": 3.0, **two})
    assert view.whole() == "run 2 of 3 · 38% of all training · 0:50 left"  # of a resumed run only what is left of it


def test_a_single_run_says_nothing_of_a_study() -> None:
    view = TrainingState()
    view.take(START)
    view.take({"event": "step", "step": 10, "loss": 3.0})
    assert view.whole() == ""


def test_a_run_that_fills_blanks_is_not_put_among_the_n_gram_lines() -> None:
    view = TrainingState()
    view.take({**START, "objective": {"name": "masked", "rate": 0.15}})
    view.take({"event": "evaluation", "step": 10, "validation_loss": 1.25, "test_loss": 1.5})
    assert view.measured() == "step 10: validation 1.250 · test 1.500 nats per masked token"
