"""A person who watches sees samples and an early evaluation; the run is the same as without her."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.training.conftest import Configured, at, bytes_of, interrupt
from vitral.data import prepare
from vitral.evaluation import copied_spans, training_text
from vitral.runs import RunFolder
from vitral.training import baselines, resume, train, views

WATCHED: dict[str, Any] = {"watch": True, "sample_tokens": 13}
LAST = 20


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The early evaluation follows the first step, however fast this machine is."""
    monkeypatch.setattr(views, "EARLY_AFTER", 0.0)
    monkeypatch.setattr(views, "EARLY_STEPPING", 0.0)


def kinds(folder: RunFolder, *kinds: str) -> list[tuple[str, int]]:
    """Kind and step of the events of these kinds."""
    return [(event["event"], event["step"]) for event in folder.metrics() if event["event"] in kinds]


@pytest.mark.usefixtures("at_once")
def test_watching_changes_no_number_and_a_resumed_run_writes_the_same_samples(
    configured: Configured, straight: RunFolder, tmp_path: Path
) -> None:
    """A sample stands at every evaluation and after the early one."""
    config = configured(training={**WATCHED, "checkpoint_every": 1})
    watched = train(config, tmp_path / "run")
    assert [path.name for path in sorted(watched.steps.iterdir())] == [
        path.name for path in sorted(straight.steps.iterdir())
    ]
    assert all(bytes_of(watched, step) == bytes_of(straight, step) for step in range(1, LAST + 1))
    assert watched.metrics("evaluation") == straight.metrics("evaluation")
    assert watched.sealed()["run"] == straight.sealed()["run"]
    assert kinds(watched, "early", "sample", "evaluation") == [
        ("early", 1),
        ("sample", 1),
        *((kind, step) for step in (7, 14, 20) for kind in ("sample", "evaluation")),
    ]
    early = watched.metrics("early")[0]
    assert 0 < early["tokens"] <= views.EARLY_TOKENS
    assert sorted(path.name for path in (watched.path / "samples").iterdir()) == [
        f"step-{step:08d}.txt" for step in (7, 14, 20)
    ]
    train(config, tmp_path / "stopped", callback=at(interrupt, "sample", 7))
    resumed = resume(tmp_path / "stopped").metrics("sample")
    assert [one for one in resumed if one["step"] in (7, 14, 20)] == watched.metrics("sample")[1:]


def test_copied_passages_stand_in_the_log_unless_the_text_is_too_long(
    configured: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(training={**WATCHED, "steps": 3, "sample_tokens": 99})
    folder, text = train(config, tmp_path / "run"), training_text(prepare(config.corpus))
    for event in folder.metrics("sample"):
        assert event["copied"] == [list(span) for span in copied_spans(event["text"], text)]
    monkeypatch.setattr("vitral.training.trainer.MOST_SEARCHED", 99)
    assert all("copied" not in event for event in train(config, tmp_path / "long").metrics("sample"))


class TestBaselines:
    """N-gram baselines are counted beside the steps, and sealed by the first evaluation."""

    def test_no_checkpoint_before_the_first_evaluation_seals_them(self, straight: RunFolder) -> None:
        documents = [{**straight.sealed(), **_state(straight, step)}["documents"] for step in (1, 6, 7, 8, LAST)]
        assert ["ngrams.json" in one for one in documents] == [False, False, True, True, True]
        assert all(one == two for one, two in pairwise(documents[2:]))

    def test_a_stop_while_the_first_evaluation_waits_ends_the_count(
        self,
        configured: Configured,
        straight: RunFolder,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def count(*_: Any, tick: Callable[[], None], **__: Any) -> None:
            while True:
                tick()

        with monkeypatch.context() as patch:
            patch.setattr(baselines, "ngram_baselines", count)
            stopped = train(configured(), tmp_path / "run", callback=at(interrupt, "step", 7))
        assert stopped.metrics("evaluation") == []
        assert bytes_of(resume(tmp_path / "run"), LAST) == bytes_of(straight, LAST)


def _state(folder: RunFolder, step: int) -> dict[str, Any]:
    return json.loads((folder.steps / f"step-{step:08d}" / "state.json").read_bytes())
