"""The time of a study here: every run, trial, evaluation and measurement is counted, each model is timed once."""

import pytest

from vitral.studies import Study, study_cost, study_names
from vitral.studies.study_cost import CHARACTERS, Paces, study_costs
from vitral.training import RunConfig
from vitral.training.configuration import configure
from vitral.training.optimizer_cost import step_flops
from vitral.training.plans import ResolvedPlan
from vitral.training.trials import StepTime

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
            {"name": "still", "title": "other numbers", "changes": {"model": {"initialisation": "gpt2"}}},
        ],
    },
    "mine",
)


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """The configurations that are timed; a step takes 2 s."""
    configs: list[RunConfig] = []

    def fake(config: RunConfig, build: object, plan: object) -> StepTime:
        configs.append(config)
        return StepTime(2.0, 2.0)

    monkeypatch.setattr(study_cost, "time_steps", fake)
    monkeypatch.setattr(Paces, "threads", lambda paces, base: 1)
    return configs


def test_the_time_of_a_study_by_hand(timed: list[RunConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps 5, evaluated after 2, 4 and 5 on 100 tokens of each part; then the whole test part, but not of trials."""
    short = {"training": {"steps": 5, "evaluate_every": 2, "evaluation_tokens": 100}}
    monkeypatch.setattr(study_cost, "study_names", lambda: {"mine": "?"})
    monkeypatch.setattr(study_cost, "study_named", lambda name: MINE)
    monkeypatch.setattr(study_cost, "configure", lambda name, overrides=(): configure(name, overrides=[short]))
    tuned, plain = study_costs()
    a_token = 2.0 / 3 / configure("study").tokens_per_step
    once, finally_ = 0.5 + 5 * 2.0 + 3 * 2 * 100 * a_token, 555_000 * a_token
    assert 60 * tuned.minutes == pytest.approx(10 + 3 * (6 + 3.3) * once + 3 * 6 * finally_)
    assert 60 * plain.minutes == pytest.approx(10 + 3 * 2 * (once + finally_))
    assert (tuned.runs, plain.runs) == (28, 6)
    assert [config.model.num_layers for config in timed] == [2, 3]  # "still" takes as long as the base


def test_threads_are_timed_only_where_other_bases_leave_them_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bases of width 64 and less get one thread, wider ones four; the choice grows with the length of a step."""
    seen: list[int] = []

    def fake(base: RunConfig, build: object, num_tokens: int) -> ResolvedPlan:
        seen.append(base.model.d_model)
        threads = 1 if base.model.d_model <= 64 else 4
        training = base.training.model_copy(update={"threads": threads})
        return ResolvedPlan(base.model_copy(update={"training": training}), ())

    monkeypatch.setattr(study_cost, "resolve_plan", fake)
    paces = Paces()
    widths = [64, 128, 32, 64, 256, 96, 48]
    found = [paces.threads(configure("study", overrides=[{"model": {"d_model": width}}])) for width in widths]
    assert found == [1, 4, 1, 1, 4, 4, 1]
    assert seen == [64, 128, 96]


@pytest.mark.full
def test_costs_grow_with_the_budget(timed: list[RunConfig]) -> None:
    costs = study_costs()
    for name in study_names():
        flops = [cost.flops for cost in costs if cost.name == name]
        assert len(flops) == 3
        assert flops == sorted(flops)
        assert flops[0] > 0
    assert all(cost.minutes > 0 for cost in costs)
    assert len(timed) < len(costs) * 3


def test_a_model_too_large_to_be_timed_is_scaled(timed: list[RunConfig]) -> None:
    paces, small = Paces(), configure("study")
    large = configure("study", overrides=[{"model": {"d_model": 2048}}])
    paces.of(small, 1)
    times = step_flops(large, CHARACTERS) / step_flops(small, CHARACTERS)
    assert paces.of(large, 1) == pytest.approx(2.0 * times)
    assert timed == [small]
