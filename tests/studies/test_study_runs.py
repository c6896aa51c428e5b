"""A study trains every arm from every seed once, on the same batches, and survives whatever stops it."""

import hashlib
import pickle
import shutil
import signal
from collections import defaultdict
from pathlib import Path

import pytest

from tests.studies.conftest import FOUR, PAIR, Log, unfinished
from vitral.core.config import merge
from vitral.core.errors import UsageError
from vitral.core.process import using_threads
from vitral.data.batches import Batches
from vitral.runs import RunFolder
from vitral.runs.lock import only_writer
from vitral.studies import Study, StudyResult, run_study
from vitral.studies.results import run_name
from vitral.training import RunConfig


@pytest.fixture(scope="module")
def pair(tiny: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    """Two arms from one seed."""
    return run_study(PAIR, tiny, tmp_path_factory.mktemp("pair") / "s", seeds=[2])


@pytest.fixture
def out(pair: StudyResult, tmp_path: Path) -> Path:
    """A copy of its folder."""
    return Path(shutil.copytree(pair.folder, tmp_path / "copy"))


def test_every_arm_is_trained_from_every_seed(trained: StudyResult) -> None:
    assert [arm.arm.name for arm in trained.arms] == [arm.name for arm in FOUR.arms]
    for arm in trained.arms:
        assert set(arm.losses) == {5, 7}
        assert [step for step, _ in arm.runs[0].curve] == [3, 6]
        assert all(run.seconds > 0 and run.stopped is None for run in arm.runs)
        for run in arm.runs:
            assert RunFolder.open(run.path).written["seed"] == run.seed
            assert run.path == trained.folder / "arms" / arm.arm.name / f"seed-{run.seed}"
    assert trained.corpus["sha256"]
    assert set(trained.baselines.orders) == {1, 2, 3, 4, 5, 6}
    assert pickle.loads(pickle.dumps(trained)) == trained


def test_all_arms_of_a_seed_see_the_same_batches(tiny: RunConfig, tmp_path: Path, monkeypatch) -> None:
    seen: dict[int, list[str]] = defaultdict(list)
    original, current = Batches.batch, [0]

    def spied(self, step: int, micro: int = 0):
        inputs, targets = original(self, step, micro)
        seen[current[0]].append(hashlib.sha256(inputs.numpy().tobytes() + targets.numpy().tobytes()).hexdigest())
        return inputs, targets

    def callback(event) -> None:
        current[0] = event.get("run", 0)

    monkeypatch.setattr(Batches, "batch", spied)
    run_study(PAIR, tiny, tmp_path / "s", seeds=[1, 2], callback=callback)
    assert len(seen[1]) == tiny.training.steps
    assert seen[1] == seen[2]
    assert seen[3] == seen[4]
    assert not set(seen[1]) & set(seen[3])


def test_seeds_can_be_added_and_never_left_out(tiny: RunConfig, out: Path) -> None:
    log = Log()
    more = run_study(PAIR, tiny, out, seeds=[2, 3], callback=log)
    assert log.runs == [("pre", 2, "found"), ("post", 2, "found"), ("pre", 3, "train"), ("post", 3, "train")]
    assert (more.seeds, more.first_seeds) == ((2, 3), (2,))
    with pytest.raises(UsageError, match=r"seeds not asked for here \(2\)"):
        run_study(PAIR, tiny, out, seeds=[3])


@pytest.mark.parametrize("step", [1, 4])
def test_an_interrupted_study_goes_on_to_the_same_numbers(
    tiny: RunConfig, pair: StudyResult, tmp_path: Path, step: int
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_study(PAIR, tiny, tmp_path / "cut", seeds=[2], callback=Log(("step", 2, step)))
    log = Log()
    cut = run_study(PAIR, tiny, tmp_path / "cut", seeds=[2], callback=log)
    assert log.runs == [("pre", 2, "found"), ("post", 2, "resume")]
    assert [arm.losses for arm in cut.arms] == [arm.losses for arm in pair.arms]
    assert [arm.runs[0].curve for arm in cut.arms] == [arm.runs[0].curve for arm in pair.arms]


def test_a_run_asked_to_stop_ends_its_step_and_goes_on_next_time(tiny: RunConfig, tmp_path: Path) -> None:
    def callback(event) -> None:
        if (event["event"], event["run"], event.get("step")) == ("step", 1, 2):
            signal.raise_signal(signal.SIGINT)

    (tmp_path / ".study.json.77.tmp").write_text('{"form', encoding="utf-8")  # what a kill left is no hindrance
    with pytest.raises(KeyboardInterrupt, match="the same command goes on"):
        run_study(PAIR, tiny, tmp_path, seeds=[2], callback=callback)
    log = Log()
    run_study(PAIR, tiny, tmp_path, seeds=[2], callback=log)
    assert log.runs == [("pre", 2, "resume"), ("post", 2, "train")]


def test_an_arm_that_diverges_is_a_result(tiny: RunConfig, tmp_path: Path) -> None:
    steep = {"training": {"optimizer": {"learning_rate": 1e30}}}
    arms = [PAIR.arms[0].plain(), {"name": "steep", "title": "steep", "changes": steep}]
    study = Study.parse(PAIR.plain() | {"arms": arms})
    result = run_study(study, tiny, tmp_path / "s", seeds=[3])
    assert [set(arm.losses) for arm in result.arms] == [{3}, set()]
    stopped = result.arms[1].runs[0].stopped
    assert stopped is not None
    assert "stopped before step" in stopped
    assert str(tmp_path) not in stopped
    log = Log()
    assert run_study(study, tiny, tmp_path / "s", seeds=[3], callback=log) == result
    assert log.states == {"found"}


def test_a_folder_of_another_study_is_refused_saying_what_differs(tiny: RunConfig, trained: StudyResult) -> None:
    longer = RunConfig.parse(merge(tiny.plain(), {"training": {"steps": 7}}))
    with pytest.raises(UsageError, match=r"base\.training\.steps is 6 there and 7 here"):
        run_study(FOUR, longer, trained.folder, seeds=[5, 7])
    with pytest.raises(UsageError, match=r"study\.arms"):
        run_study(PAIR, tiny, trained.folder, seeds=[5, 7])


def test_a_study_goes_on_with_the_threads_it_began_with(tiny: RunConfig, tmp_path: Path) -> None:
    short = RunConfig.parse(merge(tiny.plain(), {"training": {"steps": 2, "evaluate_every": 2}}))
    with using_threads(2), pytest.raises(KeyboardInterrupt):
        run_study(PAIR, short, tmp_path, seeds=[5], callback=Log(("step", 1, 1)))
    measured = run_study(PAIR, short, tmp_path, seeds=[5])
    assert [RunFolder.open(arm.runs[0].path).written["training"]["threads"] for arm in measured.arms] == [2, 2]
    with pytest.raises(UsageError, match=r"training\.threads"):
        run_study(PAIR, RunConfig.parse(merge(short.plain(), {"training": {"threads": 3}})), tmp_path, seeds=[5])


def test_a_folder_that_is_no_study_is_refused_and_left_alone(tiny: RunConfig, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="not a study's folder"):
        run_study(PAIR, tiny, tmp_path)
    (tmp_path / "study.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(UsageError, match="is damaged"):
        run_study(PAIR, tiny, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.txt", "study.json"]


def test_a_run_killed_between_its_last_loss_and_its_last_weights_is_resumed(
    tiny: RunConfig, pair: StudyResult, out: Path
) -> None:
    folder = RunFolder.open(unfinished(out / run_name("post", 2)))
    shutil.rmtree(sorted(folder.steps.iterdir())[-1])
    lines = [line for line in (folder.path / "metrics.jsonl").read_text().splitlines() if '"end"' not in line]
    (folder.path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert '"evaluation"' in lines[-1]
    (folder.path / "last").write_text(sorted(folder.steps.iterdir())[-1].name + "\n")
    log = Log()
    again = run_study(PAIR, tiny, out, seeds=[2], callback=log)
    assert log.runs == [("pre", 2, "found"), ("post", 2, "resume")]
    assert [arm.losses for arm in again.arms] == [arm.losses for arm in pair.arms]


def test_losses_are_of_the_whole_test_part_though_less_is_measured_while_training(
    tiny: RunConfig, pair: StudyResult, tmp_path: Path
) -> None:
    few = RunConfig.parse(merge(tiny.plain(), {"training": {"evaluation_tokens": 97}}))
    result = run_study(PAIR, few, tmp_path / "few", seeds=[2])
    assert [arm.losses for arm in result.arms] == [arm.losses for arm in pair.arms]
    assert result.arms[0].runs[0].curve[-1][1] != pair.arms[0].runs[0].curve[-1][1]
    assert result.baselines == pair.baselines == pair.curve_baselines
    assert result.curve_baselines != result.baselines


def test_a_study_has_one_writer(tiny: RunConfig, trained: StudyResult) -> None:
    with only_writer(trained.folder), pytest.raises(UsageError, match="is writing to it"):
        run_study(FOUR, tiny, trained.folder, seeds=[5, 7])


def test_an_arm_that_does_not_fit_into_memory_is_refused_before_anything_is_trained(
    tiny: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = {"name": "wide", "title": "wide", "changes": {"model": {"d_model": 60_000}}}
    study = Study.parse(PAIR.plain() | {"arms": [PAIR.arms[0].plain(), wide]})
    monkeypatch.setattr("vitral.core.machine.memory_limit", lambda: 10**10)
    with pytest.raises(UsageError, match="arm wide"):
        run_study(study, tiny, tmp_path / "study")
    assert not (tmp_path / "study").exists()
