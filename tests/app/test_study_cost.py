"""The time of a study here: every run, trial, evaluation and measurement is counted, at the pace of one timed step."""

import pytest

from vitral.studies import Study, plan
from vitral.studies.plan import CHARACTERS, study_minutes
from vitral.studies.resolution import resolve
from vitral.training.configuration import configure
from vitral.training.costs import step_flops
from vitral.training.plans import ResolvedPlan

MINE = Study.parse(
    {
        "name": "mine",
        "title": "Mine",
        "question": "?",
        "tune": {"training.optimizer.learning_rate": [0.5, 1, 2]},
        "budgets": {
            "quick": {"seeds": [1, 2, 3, 4, 5, 6], "tuned": True},
            "standard": {"seeds": [1, 2], "tuned": False},
        },
        "arms": [
            {"name": "base", "title": "the base"},
            {"name": "deep", "title": "deep", "changes": {"model": {"num_layers": 3}}},
        ],
    },
    "mine",
)
SHORT = {"training": {"steps": 5, "evaluate_every": 2, "evaluation_tokens": 100}}


@pytest.fixture
def _timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of the usual model takes 2 s."""
    monkeypatch.setattr(plan, "time_steps", lambda config, build: 2.0)
    monkeypatch.setattr(plan, "resolve_plan", lambda base, build, tokens: ResolvedPlan(base, ()))


@pytest.mark.usefixtures("_timed")
def test_the_time_of_a_study_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps 5, evaluated after 2, 4 and 5 on 100 tokens of each part; then the whole test part, but not of trials."""
    base = configure("study", overrides=[SHORT])
    pace = 2.0 / step_flops(base, CHARACTERS)
    monkeypatch.setattr(plan, "study_names", lambda: {"mine": "?"})
    monkeypatch.setattr(plan, "study_named", lambda name: MINE)
    monkeypatch.setattr(plan, "configure", lambda name, overrides=(): base)
    once, last = 0.0, 0.0
    for arm in resolve(MINE, base, CHARACTERS):
        a_token = pace * arm.flops_per_token / 3
        once += 0.5 + pace * arm.flops + 3 * 2 * 100 * a_token
        last += 555_000 * a_token
    (minutes,) = study_minutes().values()
    assert 60 * minutes["quick"] == pytest.approx(10 + (6 + 2 * 3.3) * once + 6 * last)
    assert 60 * minutes["standard"] == pytest.approx(10 + 2 * (once + last))
