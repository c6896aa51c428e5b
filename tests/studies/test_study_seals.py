"""The record and the measures of a study are sealed: damage is told, and never enters a result."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.studies.conftest import PAIR, Log, unfinished
from vitral.core.errors import UsageError
from vitral.core.files import as_json
from vitral.runs import RunFolder
from vitral.studies import StudyResult, run_study
from vitral.studies.results import run_name
from vitral.training import RunConfig

STUDY = PAIR.model_copy(update={"probes": ("gradients",)})


@pytest.fixture(scope="module")
def whole(tiny: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    return run_study(STUDY, tiny, tmp_path_factory.mktemp("whole") / "s", seeds=[5, 7])


@pytest.fixture
def out(whole: StudyResult, tmp_path: Path) -> Path:
    """A copy of the study, to be damaged."""
    return Path(shutil.copytree(whole.folder, tmp_path / "s"))


def again(tiny: RunConfig, out: Path) -> tuple[StudyResult, Log]:
    log = Log()
    return run_study(STUDY, tiny, out, seeds=[5, 7], callback=log), log


@pytest.mark.parametrize("damage", ["bit", "cut"])
def test_a_measure_that_is_not_the_runs_is_told_and_made_again(
    damage: str, tiny: RunConfig, whole: StudyResult, out: Path
) -> None:
    file = out / "measures" / "gradients" / "pre-seed-5.json"
    raw = file.read_bytes()
    digit = raw.rindex(b".") + 1  # one bit makes it another digit
    flipped = raw[:digit] + bytes([raw[digit] ^ 1]) + raw[digit + 1 :]
    file.write_bytes(flipped if damage == "bit" else raw[:-9])
    measured, log = again(tiny, out)
    assert measured.measured == whole.measured
    assert file.read_bytes() == raw
    assert log.events["probe"] == ["pre, seed 5"]
    assert len(log.events["note"]) == 1
    assert str(file) in log.events["note"][0]


def test_a_damaged_checkpoint_is_not_measured_in_place_of_the_last(tiny: RunConfig, out: Path) -> None:
    (out / "measures" / "gradients" / "pre-seed-5.json").unlink()
    last = sorted(RunFolder.open(out / run_name("pre", 5)).steps.iterdir())[-1] / "model.safetensors"
    raw = last.read_bytes()
    last.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    with pytest.raises(UsageError, match="seed-5"):
        again(tiny, out)
    assert not (out / "measures" / "gradients" / "pre-seed-5.json").exists()
    last.write_bytes(raw)
    again(tiny, out)


def test_a_damaged_or_lost_record_is_refused(tiny: RunConfig, whole: StudyResult, out: Path) -> None:
    record = out / "study.json"
    raw = record.read_bytes()
    fewer = json.loads(raw) | {"first_seeds": [5]}
    for damaged in (as_json(fewer), raw[:-30], b"", b"[" * 100_000):
        record.write_bytes(damaged)
        with pytest.raises(UsageError):
            again(tiny, out)
        assert record.read_bytes() == damaged
    record.unlink()
    with pytest.raises(UsageError, match=r"study\.json is missing"):
        again(tiny, out)


def test_a_run_under_the_name_of_another_is_refused(tiny: RunConfig, out: Path) -> None:
    shutil.move(out / run_name("pre", 5), out / "kept")
    shutil.copytree(out / run_name("post", 5), out / run_name("pre", 5))
    with pytest.raises(UsageError, match=r"model\.norm"):
        again(tiny, out)
    shutil.rmtree(out / run_name("pre", 5))
    shutil.copytree(out / run_name("pre", 7), out / run_name("pre", 5))
    with pytest.raises(UsageError, match="seed is 7"):
        again(tiny, out)
    shutil.rmtree(out / run_name("pre", 5))
    shutil.move(out / "kept", out / run_name("pre", 5))
    assert again(tiny, out)[1].states == {"found"}


def test_a_begun_run_without_a_checkpoint_is_resumed_and_never_removed(
    tiny: RunConfig, whole: StudyResult, out: Path
) -> None:
    run = unfinished(out / run_name("post", 7))
    shutil.rmtree(run / "steps")
    (run / "steps").mkdir()
    (run / "metrics.jsonl").unlink()
    (run / "mine.txt").write_text("mine", encoding="utf-8")
    measured, log = again(tiny, out)
    assert [state for _, _, state in log.runs] == ["found", "found", "found", "resume"]
    assert [arm.losses for arm in measured.arms] == [arm.losses for arm in whole.arms]
    assert (out / run_name("post", 7) / "mine.txt").is_file()


def test_what_ended_processes_left_is_removed_and_other_files_are_not(tiny: RunConfig, out: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (out / "report" / "figures").mkdir(parents=True)
    folders = [out, out / "measures", out / "measures" / "gradients", out / "report", out / "report" / "figures"]
    left = [folder / f".x.{gone.pid}-1.tmp" for folder in folders]
    kept = [folder / name for folder in folders for name in (f".x.{os.getpid()}-1.tmp", "x.tmp")]
    for path in left + kept:
        path.write_text("{", encoding="utf-8")
    again(tiny, out)
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in kept)
