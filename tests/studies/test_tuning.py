"""Tuning: trials by hand, and a study that tunes, really trained."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from vitral.core.errors import UsageError
from vitral.core.guarded import GuardedFolder
from vitral.studies import StudyResult, run_study
from vitral.studies.design import TUNING_SEED, Arm, ResolvedArm, Study, resolve
from vitral.studies.execution import Job, _with_second_budget
from vitral.studies.losses import loss_claims
from vitral.studies.results import RunResult
from vitral.studies.tuning import Trial, chosen, further, rows, scaled, tuned, tuned_as_recorded
from vitral.training import RunConfig

RATE = "training.optimizer.learning_rate"
STUDY = Study.parse(
    {
        "name": "rates",
        "title": "Rates",
        "question": "Which?",
        "tune": {RATE: [0.5, 1, 2]},
        "seeds": [5, 7, 11],
        "arms": [
            {"name": "base", "title": "the base"},
            {"name": "post", "title": "post-norm", "changes": {"model": {"norm": "post"}}},
            {"name": "fixed", "title": "fixed", "changes": {"model": {"bias": False}}, "tune": {}},
        ],
    },
    "test",
)


def an_arm(**training: object) -> ResolvedArm:
    """A base arm with this training."""
    return resolve(STUDY, RunConfig.parse({"training": training}), 31)[0]


def trials(losses: dict[float, float | None]) -> dict[float, tuple[dict[str, float], Trial]]:
    """Trials with these validation losses by factor."""
    return {factor: ({RATE: factor}, Trial(factor, {RATE: factor / 10}, loss)) for factor, loss in losses.items()}


def test_values_that_move_together_are_one_row() -> None:
    arm = an_arm(optimizer={"name": "muon", "learning_rate": 0.05, "rest": {"learning_rate": 0.012}})
    rest = "training.optimizer.rest.learning_rate"
    found = rows({RATE: (0.5, 2.0), rest: (0.5, 3.0)}, arm.config)
    assert found == ({RATE: 0.5, rest: 0.5}, {RATE: 2.0, rest: 3.0})
    optimizer = scaled(arm, found[1]).config.plain()["training"]["optimizer"]
    assert (optimizer["learning_rate"], optimizer["rest"]["learning_rate"]) == pytest.approx((0.1, 0.036))


def test_a_key_of_another_optimizer_is_left_out_and_none_at_all_refused() -> None:
    arm = an_arm(optimizer={"name": "adamw", "learning_rate": 0.003})
    rest = "training.optimizer.rest.learning_rate"
    assert rows({RATE: (0.5, 2.0), rest: (0.5, 2.0)}, arm.config) == ({RATE: 0.5}, {RATE: 2.0})
    with pytest.raises(UsageError, match="rest"):
        rows({rest: (0.5, 2.0)}, arm.config)


def test_whole_numbers_stay_whole() -> None:
    assert scaled(an_arm(steps=7), {"training.steps": 0.5}).config.training.steps == 4
    assert scaled(an_arm(steps=1), {"training.steps": 0.1}).config.training.steps == 1


@pytest.mark.parametrize(
    ("losses", "best", "at_edge"),
    [
        ({0.5: 2.0, 1: 1.9, 2: 1.95}, 1, False),
        ({0.5: 2.0, 1: 1.9, 2: 1.85}, 2, True),
        ({0.5: 1.8, 1: 1.9, 2: None}, 0.5, True),
        ({0.25: 1.85, 0.5: 1.8, 1: 1.9, 2: None}, 0.5, False),
        ({0.5: None, 1: None, 2: None}, 1, True),
    ],
)
def test_the_lowest_finite_validation_loss_is_chosen(losses: dict, best: float, at_edge: bool) -> None:
    row, found = chosen(an_arm(), trials(losses))
    assert (row[RATE], found.chosen, found.at_edge) == (best, best, at_edge)


def test_one_more_trial_lies_beyond_the_edge_at_the_same_ratio() -> None:
    tried = [{RATE: 0.5}, {RATE: 1.0}, {RATE: 3.0}]
    assert further(tried, 0) == {RATE: 0.25}
    assert further(tried, 2) == {RATE: 9.0}
    assert further(tried, 1) is None


@pytest.mark.parametrize(
    ("curve", "tried", "best", "at_edge"),
    [
        (lambda factor: (math.log2(factor) - 0.2) ** 2, [0.5, 1, 2], 1, False),
        (lambda factor: (math.log2(factor) - 1.8) ** 2, [0.5, 1, 2, 4], 4, True),
        (lambda factor: (math.log2(factor) - 1.2) ** 2, [0.5, 1, 2, 4], 2, False),
        (lambda factor: factor, [0.25, 0.5, 1, 2], 0.25, True),
    ],
)
def test_an_edge_is_extended_once(curve: Callable, tried: list[float], best: float, at_edge: bool) -> None:
    seen = []

    def run(row: dict[str, float]) -> Trial:
        seen.append(row[RATE])
        return Trial(row[RATE], {}, curve(row[RATE]))

    arm = an_arm(optimizer={"name": "adamw", "learning_rate": 0.01})
    found = tuned(arm, {RATE: (0.5, 1.0, 2.0)}, run)  # type: ignore[arg-type]
    assert found is not None
    assert sorted(seen) == tried
    assert (found[1].chosen, found[1].at_edge) == (best, at_edge)
    assert found[0].config.plain()["training"]["optimizer"]["learning_rate"] == pytest.approx(0.01 * best)


@pytest.mark.parametrize(
    "tune", [{RATE: [1]}, {RATE: [2, 1]}, {RATE: [1, 1]}, {RATE: [0, 1]}, {RATE: [1, 2], "training.steps": [1, 2, 3]}]
)
def test_factors_that_cannot_be_tried_are_refused(tune: dict) -> None:
    with pytest.raises(UsageError):
        Study.parse(STUDY.plain() | {"tune": tune}, "test")
    with pytest.raises(UsageError):
        Arm.parse({"name": "a", "title": "a", "tune": tune}, "test")


def test_the_seed_of_the_trials_is_no_seed_of_the_study(tiny: RunConfig, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="tuned"):
        Study.parse(STUDY.plain() | {"seeds": [0, 1, 2]}, "test")
    with pytest.raises(UsageError, match="tuned"):
        run_study(STUDY, tiny, tmp_path / "study", seeds=[0])


def test_only_arms_in_a_contrast_of_losses_are_tuned_by_the_study() -> None:
    base, post, fixed = STUDY.arms
    assert STUDY.tuned(base) == STUDY.tuned(post) == {RATE: (0.5, 1.0, 2.0)}
    assert STUDY.tuned(fixed) == {}
    alone = STUDY.model_copy(update={"arms": (base, post.model_copy(update={"contrast": False}))})
    assert not alone.tunes


@pytest.fixture(scope="module")
def studied(tiny: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    """The study, trained."""
    return run_study(STUDY, tiny, tmp_path_factory.mktemp("tuned") / "study", seeds=[5])


def test_arms_run_with_the_values_their_trials_chose(studied: StudyResult, tiny: RunConfig) -> None:
    base = tiny.plain()["training"]["optimizer"]["learning_rate"]
    assert [one.arm for one in studied.tuning] == ["base", "post"]
    for found in studied.tuning:
        config = studied.arm(found.arm).config
        assert config["training"]["optimizer"]["learning_rate"] == pytest.approx(base * found.chosen)
        best = min(found.trials, key=lambda one: one.loss or math.inf)
        assert best.factor == found.chosen
        assert best.values == {RATE: pytest.approx(base * found.chosen)}
        assert [one.factor for one in found.trials] == sorted(one.factor for one in found.trials)
        edge = found.chosen in (found.trials[0].factor, found.trials[-1].factor)
        assert found.at_edge == edge
    assert studied.arm("fixed").config["training"]["optimizer"]["learning_rate"] == base


def test_the_same_call_trains_nothing_again(studied: StudyResult, tiny: RunConfig) -> None:
    states = []
    again = run_study(
        STUDY,
        tiny,
        studied.folder,
        seeds=[5],
        callback=lambda event: states.append(event["state"]) if event["event"] == "run" else None,
    )
    assert set(states) == {"found"}
    assert again.tuning == studied.tuning
    assert [arm.losses for arm in again.arms] == [arm.losses for arm in studied.arms]


def test_runs_are_numbered_in_the_order_in_which_they_are_made(tiny: RunConfig, tmp_path: Path) -> None:
    """A trial beyond an edge was not foreseen; it comes before the runs that follow."""
    seen: list[tuple[int, int, int, int]] = []

    def callback(event) -> None:
        if event["event"] == "run":
            seen.append((event["run"], event["before"], event["during"], event["in_all"]))

    run_study(STUDY, tiny, tmp_path / "study", seeds=[5], callback=callback)
    assert [number for number, *_rest in seen] == list(range(1, len(seen) + 1))
    for (_, before, during, _), (_, later, _, _) in pairwise(seen):
        assert later == before + during
    assert seen[-1][1] + seen[-1][2] == seen[-1][3]


def test_the_folder_alone_tells_the_chosen_values(studied: StudyResult, tiny: RunConfig, tmp_path: Path) -> None:
    arm = resolve(STUDY, tiny, 31)[0]
    found = tuned_as_recorded(arm, STUDY.tuned(arm.arm), GuardedFolder(studied.folder))
    assert found is not None
    assert found.config.training.optimizer.plain() == studied.arms[0].config["training"]["optimizer"]
    assert tuned_as_recorded(arm, STUDY.tuned(arm.arm), GuardedFolder(tmp_path)) is None


def test_a_margin_or_a_contrast_changed_afterwards_is_another_study(studied: StudyResult, tiny: RunConfig) -> None:
    for change in ({"margin": 0.02}, {"tune": {RATE: [0.5, 1, 2, 4]}}):
        with pytest.raises(UsageError, match="another study"):
            run_study(Study.parse(STUDY.plain() | change, "test"), tiny, studied.folder, seeds=[5])


def test_an_arm_that_fails_gets_a_second_budget(made, tiny: RunConfig) -> None:
    """The gap to its baseline arm after twice the steps is told."""
    result = made({"full": [1.76, 1.77, 1.75], "no-feed-forward": [3.1, 3.2, 3.3]})
    study = result.study.model_copy(update={"tune": {RATE: (0.5, 1.0, 2.0)}})
    result = replace(result, study=study)
    arms = [one for one in resolve(study, tiny, 31) if one.arm.name in ("full", "no-feed-forward")]
    jobs: list[Job] = []

    def run(job: Job) -> RunResult:
        jobs.append(job)
        loss = 1.7 if job.arm.arm.name == "full" else 3.0
        return RunResult(job.seed, job.path, ((12, loss),), None, loss, loss, 1.0)

    longer = _with_second_budget(result, arms, GuardedFolder(result.folder), run)
    assert {name: [run.seed for run in runs] for name, runs in longer.longer.items()} == {
        "full": [1, 2],
        "no-feed-forward": [1, 2],
    }
    assert {job.arm.config.training.steps for job in jobs} == {2 * tiny.training.steps}
    told = [note.text for note in loss_claims(longer).notes if note.arm == "no-feed-forward"]
    assert any("+1.385" in text and "+1.300" in text for text in told)  # (3.15 - 1.765) and (3.0 - 1.7)
    assert not _with_second_budget(made({"full": [1.7, 1.8, 1.9]}), arms, GuardedFolder(result.folder), run).longer


def test_trials_have_a_seed_of_their_own(studied: StudyResult) -> None:
    folders = sorted(path.name for path in (studied.folder / "tuning" / "base").iterdir())
    assert {"x0.5", "x1", "x2"} <= set(folders)
    config = (studied.folder / "tuning" / "base" / "x1" / "config.toml").read_text(encoding="utf-8")
    assert f"seed = {TUNING_SEED}" in config
