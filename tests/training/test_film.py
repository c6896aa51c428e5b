"""The film of a run: it changes nothing, a stop changes nothing of it, and it ends with the run's weights."""

from pathlib import Path
from shutil import copytree

import pytest
from safetensors.torch import load_file

from tests.training.conftest import Configured, at, bytes_of, interrupt
from vitral.core.errors import UsageError
from vitral.runs import RunFolder, load_run, verify
from vitral.runs.folder import frame_name
from vitral.runs.loading import curve, load_frame
from vitral.training import resume, train, views

FRAMES = [0, 1, 2, 4, 8, 16, 20]
FILM = {"film": True}


@pytest.fixture(scope="module")
def filmed(configured: Configured, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return train(configured(training=FILM), tmp_path_factory.mktemp("film") / "run")


def test_it_changes_nothing_and_ends_with_the_weights(filmed: RunFolder, straight: RunFolder) -> None:
    assert list(filmed.film()) == FRAMES
    assert bytes_of(filmed, 20) == bytes_of(straight, 20)
    for step in FRAMES[1:]:
        whole = load_file(straight.steps / f"step-{step:08d}" / "model.safetensors")
        kept = load_file(filmed.path / frame_name(step))
        assert all(kept[name].equal(whole[name].half()) for name in kept | whole)


@pytest.mark.parametrize("stops", [(4, 8, 20), (9,)])
def test_a_stopped_run_has_the_same_film(
    stops: tuple[int, ...], filmed: RunFolder, configured: Configured, tmp_path: Path
) -> None:
    folder = train(configured(training=FILM), tmp_path / "run", callback=at(interrupt, "step", *stops))
    for later in (*stops[1:], 99):
        folder = resume(folder.path, callback=at(interrupt, "step", later))
    assert folder.metrics("frame") == filmed.metrics("frame")
    assert folder.film() == filmed.film()
    assert verify(folder.path, deep=True).findings == []


def test_of_many_frames_the_first_and_the_newest_remain(
    configured: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "MOST_LATER", 3)
    texts: list[str] = []
    config = configured(training=FILM)
    folder = train(config, tmp_path / "run", callback=lambda event: texts.append(str(event.get("text"))))
    assert list(folder.film()) == [0, 8, 16, 20]
    assert any(each.startswith("film: 4 frames") for each in texts)


def test_a_damaged_frame_is_found_and_not_loaded(filmed: RunFolder, tmp_path: Path) -> None:
    run = load_run(copytree(filmed.path, tmp_path / "run"))
    there = run.folder.path / frame_name(8)
    there.write_bytes(there.read_bytes()[:-1] + b"\1")
    assert [(one.file, one.is_refused) for one in verify(run.folder.path, deep=True).findings] == [
        (frame_name(8), False)
    ]
    for _ in range(2):
        with pytest.raises(UsageError, match="step-00000008"):
            load_frame(run.sealed, run.model, 8, run.sealed.film())
        there.unlink(missing_ok=True)
    assert verify(run.folder.path, deep=True).findings == []


def test_a_curve_has_the_last_step_and_those_of_the_film(
    filmed: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vitral.runs.loading.APART", 99)
    events = {event["step"]: event for event in filmed.metrics("step")}
    wanted = [[step - 1, round(events[step]["loss"], 4)] for step in FRAMES[1:]]
    assert curve(filmed, "step", "loss") == wanted
    folder = RunFolder(copytree(filmed.path, tmp_path / "run"))
    for event in ({"event": "step", "step": 40}, {"event": "frame", "step": "x"}):
        folder.reseal(event)
        with pytest.raises(UsageError, match="metrics"):
            curve(folder, "step", "loss")
    assert [one.file for one in verify(folder.path, deep=True).findings] == ["metrics.jsonl"]


def test_a_frame_that_float16_cannot_hold_is_left_out_and_said(configured: Configured, tmp_path: Path) -> None:
    texts: list[str] = []
    config = configured(training=FILM | {"steps": 1, "optimizer": {"learning_rate": 1e6}})
    folder = train(config, tmp_path / "run", callback=lambda event: texts.append(str(event.get("text"))))
    assert list(folder.film()) == [0]
    assert any("float16" in each for each in texts)
