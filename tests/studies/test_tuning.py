"""Tuning: trials by hand, and a study that tunes, really trained."""

import math
import shutil
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from tests.studies.conftest import Log
from vitral.core.config import merge
from vitral.core.errors import UsageError
from vitral.studies import StudyResult, run_study
from vitral.studies.design import TUNING_SEEDS, Arm, Study
from vitral.studies.resolution import ResolvedArm, resolve
from vitral.studies.results import Trial, Tuned, trial_error
from vitral.studies.tuning import Row, chosen, edge, rows, scaled
from vitral.training import RunConfig, train

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


def tuned(arm: ResolvedArm, planned: Sequence[Row], losses: Mapping[float, float | None]) -> tuple[list[Row], Tuned]:
    """The rows that are tried when the trials have these losses, and what they choose."""
    tried = [*planned]
    trials = lambda: [Trial(factor, {}, (losses[factor],) * 2) for row in tried for factor in row.values()]  # noqa: E731
    while (beyond := edge(arm, tried, chosen("base", trials(), None, 0.0))) is not None:
        tried.append(beyond)
    return tried, chosen("base", trials(), None, 0.0)


def test_values_that_move_together_are_one_row() -> None:
    arm = an_arm(optimizer={"name": "muon", "learning_rate": 0.05, "rest": {"learning_rate": 0.012}})
    rest = "training.optimizer.rest.learning_rate"
    measured = rows({RATE: (0.5, 2.0), rest: (0.5, 3.0)}, arm.config)
    assert measured == ({RATE: 0.5, rest: 0.5}, {RATE: 2.0, rest: 3.0})
    optimizer = scaled(arm, measured[1]).config.plain()["training"]["optimizer"]
    assert (optimizer["learning_rate"], optimizer["rest"]["learning_rate"]) == pytest.approx((0.1, 0.036))


def test_a_key_of_another_optimizer_is_left_out_and_none_at_all_refused() -> None:
    arm = an_arm(optimizer={"name": "adamw", "learning_rate": 0.003})
    rest = "training.optimizer.rest.learning_rate"
    assert rows({RATE: (0.5, 2.0), rest: (0.5, 2.0)}, arm.config) == ({RATE: 0.5}, {RATE: 2.0})
    with pytest.raises(UsageError, match="rest"):
        rows({rest: (0.5, 2.0)}, arm.config)


def test_whole_numbers_that_come_out_equal_are_tried_once() -> None:
    key = "training.schedule.warmup_steps"
    arm = an_arm(schedule={"warmup_steps": 2})
    assert rows({key: (0.4, 0.5, 1.0, 1.2, 2.0)}, arm.config) == ({key: 0.4}, {key: 1.0}, {key: 2.0})
    assert rows({key: (0.5, 1.0, 1.2, 2.0)}, arm.config) == ({key: 0.5}, {key: 1.0}, {key: 2.0})
    planned = rows({key: (0.5, 1.0, 2.0)}, arm.config)
    tried, measured = tuned(arm, planned, {0.5: 1.0, 1.0: 1.1, 2.0: 1.2})
    assert tried == [*planned]  # 0.25 times 2 would be 1 again
    assert (measured.chosen, measured.at_edge) == (0.5, True)


def test_a_trial_that_makes_no_configuration_is_not_made(tiny: RunConfig) -> None:
    """Twice a momentum of 0.4 is one, four times is none."""
    key = "training.optimizer.momentum"
    given = {"corpus": tiny.corpus.plain(), "training": {"optimizer": {"name": "sgd", "momentum": 0.4}}}
    arm = resolve(STUDY, RunConfig.parse(given), 31)[0]
    assert scaled(arm, {key: 2.0}).config.plain()["training"]["optimizer"]["momentum"] == pytest.approx(0.8)
    with pytest.raises(UsageError):
        scaled(arm, {key: 4.0})


@pytest.mark.parametrize(
    "key", ["seed", "corpus.share", "model.d_model", "training.batch_size", "training.objective.rate"]
)
def test_only_knobs_of_the_training_are_tuned(key: str) -> None:
    with pytest.raises(UsageError, match="cannot be tuned"):
        Study.parse(STUDY.plain() | {"tune": {key: [0.5, 1.0]}}, "test")
    for knob in ("training.schedule.warmup_steps", "model.dropout.residual", "training.optimizer.weight_decay"):
        assert Arm.parse({"name": "a", "title": "a", "tune": {knob: [0.5, 1.0]}}, "test").tune


@pytest.mark.parametrize(
    ("losses", "best", "at_edge"),
    [
        ({0.5: 2.0, 1.0: 1.9, 3.0: 1.95}, 1.0, False),
        ({0.5: 2.0, 1.0: 1.9, 3.0: 1.8, 9.0: 1.85}, 3.0, False),
        ({0.5: 2.0, 1.0: 1.9, 3.0: 1.8, 9.0: 1.7, 27.0: 1.6, 81.0: 1.9}, 27.0, False),
        ({0.125: 1.75, 0.25: 1.7, 0.5: 1.8, 1.0: 1.9, 3.0: None}, 0.25, False),
        ({0.125: None, 0.25: 2.0, 0.5: None, 1.0: None, 3.0: None}, 0.25, False),
    ],
)
def test_the_lowest_finite_loss_is_chosen_and_an_edge_extended_at_the_same_ratio(
    losses: dict, best: float, at_edge: bool
) -> None:
    arm = an_arm(optimizer={"name": "adamw", "learning_rate": 0.01})
    tried, measured = tuned(arm, rows({RATE: (0.5, 1.0, 3.0)}, arm.config), losses)
    assert sorted(row[RATE] for row in tried) == sorted(losses)
    assert (measured.chosen, measured.at_edge) == (best, at_edge)


def test_a_tie_takes_the_values_of_the_base_and_one_dead_run_rules_a_trial_out() -> None:
    """By hand: the means of 1.9 and 1.91 differ by 0.5 %, those of 1.9 and 1.93 by 1.6 %."""
    tried = [Trial(1.0, {RATE: 0.1}, (1.92, 1.90)), Trial(2.0, {RATE: 0.2}, (1.89, 1.91)), Trial(4.0, {}, (1.5, None))]
    at = lambda base, error: chosen("arm", tried, base, error).chosen  # noqa: E731
    assert [at({RATE: 0.1}, 0.006), at({RATE: 0.1}, 0.004), at({RATE: 0.3}, 0.006), at(None, 0.006)] == [1, 2, 2, 2]


def test_the_error_of_a_trial_is_that_of_its_seeds() -> None:
    """By hand: residuals of ±0.02 beside the seeds' common effect; a wild trial changes little.

    Their squares are 0.0008 / (1 - 1 / 5), four of five times; over 0.4549, the median of χ² of one degree of freedom.
    """
    losses = [(1.0, 1.5), (1.04, 1.46), (1.0, 1.5), (1.04, 1.46), (1.02, 1.48), (3.0, 1.0)]
    made = [Trial(1.0, {}, tuple(map(math.exp, pair))) for pair in losses]
    assert trial_error(made[:1]) == 0
    assert trial_error(made[:5]) == pytest.approx(math.sqrt(0.001 / 0.4549), rel=1e-3)
    assert trial_error(made) == pytest.approx(trial_error(made[:5]), rel=0.1)


@pytest.mark.parametrize(
    "tune", [{RATE: [1]}, {RATE: [2, 1]}, {RATE: [1, 1]}, {RATE: [0, 1]}, {RATE: [1, 2], "model.dropout": [1, 2, 3]}]
)
def test_factors_that_cannot_be_tried_are_refused(tune: dict) -> None:
    with pytest.raises(UsageError):
        Study.parse(STUDY.plain() | {"tune": tune}, "test")
    with pytest.raises(UsageError):
        Arm.parse({"name": "a", "title": "a", "tune": tune}, "test")


def test_the_seed_of_the_trials_is_no_seed_of_the_study(tiny: RunConfig, tmp_path: Path) -> None:
    for seed in TUNING_SEEDS:
        with pytest.raises(UsageError, match="tuned"):
            Study.parse(STUDY.plain() | {"seeds": [1, seed, 2]}, "test")
    with pytest.raises(UsageError, match="tuned"):
        run_study(STUDY, tiny, tmp_path / "study", seeds=[0])


@pytest.fixture(scope="module")
def events() -> list[Mapping]:
    """What was told while the study was trained."""
    return []


@pytest.fixture(scope="module")
def studied(tiny: RunConfig, events: list[Mapping], tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    """The study, trained."""
    return run_study(STUDY, tiny, tmp_path_factory.mktemp("tuned") / "study", seeds=[5], callback=events.append)


def test_arms_run_with_the_values_their_trials_chose(studied: StudyResult, tiny: RunConfig) -> None:
    base = tiny.plain()["training"]["optimizer"]["learning_rate"]
    assert [one.arm for one in studied.tuning] == ["base", "post"]
    for measured in studied.tuning:
        config = studied.arm(measured.arm).config
        assert config["training"]["optimizer"]["learning_rate"] == pytest.approx(base * measured.chosen)
        best = min(measured.trials, key=lambda one: one.loss or math.inf)
        assert best.factor == measured.chosen or measured.arm != "base"
        values = {one.factor: one.values for one in measured.trials}
        assert values[measured.chosen] == {RATE: pytest.approx(base * measured.chosen)}
        assert [one.factor for one in measured.trials] == sorted(one.factor for one in measured.trials)
        edge = measured.chosen in (measured.trials[0].factor, measured.trials[-1].factor)
        assert measured.at_edge == edge
    assert studied.arm("fixed").config["training"]["optimizer"]["learning_rate"] == base


@pytest.mark.usefixtures("studied")
def test_runs_are_numbered_in_the_order_in_which_they_are_made(events: list[Mapping]) -> None:
    """A trial beyond an edge was not foreseen; it comes before the runs that follow."""
    seen = [event for event in events if event["event"] == "run"]
    assert [event["run"] for event in seen] == list(range(1, len(seen) + 1))
    for one, later in pairwise(seen):
        assert later["before"] == one["before"] + one["during"]
    assert seen[-1]["before"] + seen[-1]["during"] == seen[-1]["in_all"]


def test_a_run_of_another_design_is_refused_before_a_trial_is_made(
    studied: StudyResult, tiny: RunConfig, tmp_path: Path
) -> None:
    other = {"seed": 5, "model": {"norm": "post"}, "training": {"batch_size": 4, "steps": 2, "evaluate_every": 2}}
    there = train(RunConfig.parse(merge(tiny.plain(), other)), tmp_path / "other").path
    out, name, log = Path(shutil.copytree(studied.folder, tmp_path / "arms")), "arms/post/seed-5", Log()
    shutil.rmtree(out / name)
    shutil.rmtree(out / "tuning")
    shutil.copytree(there, out / name)
    with pytest.raises(UsageError, match=r"is not the run of this arm: training\.batch_size"):
        run_study(STUDY, tiny, out, seeds=[5], callback=log)
    assert not log.runs
    # A run of this design, with values that are not known before its trials, is accepted.
    out = Path(shutil.copytree(studied.folder, tmp_path / "own"))
    shutil.rmtree(out / "tuning")
    assert run_study(STUDY, tiny, out, seeds=[5]).arm("post").losses == studied.arm("post").losses
