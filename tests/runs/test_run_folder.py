"""The run folder: made once, appended to, rewound, and intact whatever the disk does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vitral.core.errors import StorageError, UsageError
from vitral.runs import Checkpoint, RunFolder, refuse_existing
from vitral.runs.checkpoint import FILES

Made = Callable[..., Checkpoint]


def one_line(error: type[Exception], action: Callable[[], object]) -> str:
    with pytest.raises(error) as refused:
        action()
    assert "\n" not in str(refused.value)
    return str(refused.value)


def load_silently(folder: RunFolder, which: str = "last") -> int:
    """The loaded step; any warning is a failure."""
    return folder.load(which, warn=pytest.fail).step


def damage(folder: RunFolder, step: int) -> None:
    path = folder.steps / f"step-{step:08d}" / FILES[0]
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def steps_in(folder: RunFolder) -> list[int]:
    return sorted(int(path.name[5:]) for path in folder.steps.glob("step-*"))


class TestMaking:
    """Creating and opening."""

    def test_nothing_is_overwritten(self, folder: RunFolder, tmp_path: Path) -> None:
        before = (folder.path / "config.toml").read_bytes()
        assert "exists already" in one_line(UsageError, lambda: RunFolder.create(folder.path, {}, {}))
        assert (folder.path / "config.toml").read_bytes() == before
        (tmp_path / "file").write_text("mine", encoding="utf-8")
        assert "exists already" in one_line(UsageError, lambda: refuse_existing(tmp_path / "file"))
        below = tmp_path / "file" / "run"
        assert "cannot be written" in one_line(StorageError, lambda: RunFolder.create(below, {}, {}))

    def test_what_is_no_run_is_refused(self, folder: RunFolder, tmp_path: Path) -> None:
        assert "not a run" in one_line(UsageError, lambda: RunFolder.open(tmp_path / "nowhere"))
        assert "not a run" in one_line(UsageError, lambda: RunFolder.open(folder.path / "steps"))
        (folder.path / "config.toml").unlink()
        RunFolder.open(folder.path)  # its configuration is lost, and sealed
        (folder.path / "run.json").unlink()
        assert "not a run" in one_line(UsageError, lambda: RunFolder.open(folder.path))


class TestMetrics:
    """metrics.jsonl."""

    EVENTS: tuple[dict[str, Any], ...] = (
        {"event": "step", "step": 1, "loss": 4.625},
        {"event": "sample", "step": 1, "text": "a\u2028b\u0085c\x0bd\r\ne\x1df é"},
        {"event": "step", "step": 2, "loss": 0.1 + 0.2},
        {"event": "evaluation", "step": 2, "train_loss": None, "test_loss": 1e-300},
        {"event": "step", "step": 3, "loss": 3.5},
        {"event": "end", "step": 3, "finished": False, "seconds": 1.0},
    )

    @pytest.fixture
    def measured(self, folder: RunFolder) -> RunFolder:
        for event in self.EVENTS:
            folder.append_metric(event)
        return folder

    def test_a_torn_last_line_is_left_out_wherever_it_was_torn(self, folder: RunFolder) -> None:
        for event in self.EVENTS[:2]:
            folder.append_metric(event)
        path = folder.path / "metrics.jsonl"
        whole = path.read_bytes()
        first = whole.index(b"\n") + 1
        for end in range(first, len(whole)):
            path.write_bytes(whole[:end])
            assert folder.metrics() == [self.EVENTS[0]], end

    @pytest.mark.parametrize("kept", range(len(EVENTS) + 1))
    def test_rewinding_drops_what_came_later(self, kept: int, folder: RunFolder, checkpoint: Made) -> None:
        for event in self.EVENTS[:kept]:
            folder.append_metric(event)
        folder.save(checkpoint(3), keep=2)
        for event in self.EVENTS[kept:]:
            folder.append_metric(event)
        assert folder.metrics() == list(self.EVENTS[:kept])  # what a resume repeats does not count
        folder.rewind(folder.latest())
        assert (folder.path / "metrics.jsonl").read_bytes().count(b"\n") == kept
        assert folder.metrics() == list(self.EVENTS[:kept])

    def test_rewinding_cuts_a_torn_line(self, measured: RunFolder, checkpoint: Made) -> None:
        measured.save(checkpoint(3), keep=2)
        torn = '{"event": "sample", "text": "é'.encode()[:-1]
        with open(measured.path / "metrics.jsonl", "ab") as file:
            file.write(torn)
        measured.rewind(measured.latest())
        measured.append_metric({"event": "step", "step": 4})
        measured.save(checkpoint(4), keep=2)
        assert [event["step"] for event in measured.metrics("step")] == [1, 2, 3, 4]


class TestCheckpoints:
    """Which are kept, which is the best, and what happens to damaged ones."""

    @pytest.fixture
    def saved(self, folder: RunFolder, checkpoint: Made) -> RunFolder:
        """Steps 1 to 4, of which 2 is the best; two newest kept."""
        for step in (1, 2, 3, 4):
            folder.save(checkpoint(step, best=min(step, 2)), keep=2)
        return folder

    def test_the_best_and_the_newest_are_kept(self, saved: RunFolder, checkpoint: Made) -> None:
        assert steps_in(saved) == [2, 3, 4]
        assert (load_silently(saved, "best"), load_silently(saved, "last")) == (2, 4)
        saved.save(checkpoint(5, best=5), keep=2)
        assert steps_in(saved) == [4, 5]
        assert load_silently(saved, "best") == 5

    @pytest.mark.parametrize(
        ("which", "damaged", "used", "said"),
        [("last", 4, 3, "using the one before"), ("best", 2, 4, "using the last one instead")],
    )
    def test_a_damaged_one_falls_back_loudly(
        self, which: str, damaged: int, used: int, said: str, saved: RunFolder
    ) -> None:
        damage(saved, damaged)
        warnings: list[str] = []
        assert saved.load(which, warn=warnings.append).step == used
        (warning,) = warnings
        assert f"step-{damaged:08d}: model.safetensors does not match" in warning
        assert warning.endswith(said)
        assert "\n" not in warning
