"""A run that was stopped and resumed is the run that was not, bit for bit, wherever it was stopped."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.training.conftest import LSTM, Configured, at, bytes_of, interrupt, measured_in
from vitral.core.errors import UsageError
from vitral.runs import RunFolder
from vitral.training import resume, train

REVERSE = {"source": "task:reverse", "split": "blocks", "task": {"sequences": 100, "length": 6}}


def test_stopped_after_every_step(configured: Configured, straight: RunFolder, tmp_path: Path) -> None:
    """Twenty processes' worth of work, a step each: weights, optimizer, state, losses."""
    folder = train(configured(), tmp_path / "run", callback=at(interrupt, "step"))
    for step in range(1, 21):
        assert [event["step"] for event in folder.metrics("end")] == list(range(1, step + 1))
        assert not folder.metrics("end")[-1]["finished"]
        # An evaluation that was due has been left, and is done by the next process first.
        same = [name for name in bytes_of(folder, step) if name.endswith("safetensors") or step not in (7, 14, 20)]
        assert [bytes_of(folder, step)[name] for name in same] == [bytes_of(straight, step)[name] for name in same]
        folder = resume(folder.path, callback=at(interrupt, "step"))
        assert bytes_of(folder, step) == bytes_of(straight, step)
    assert folder.metrics("end")[-1]["finished"]
    assert measured_in(folder) == measured_in(straight)
    assert len(folder.metrics("evaluation")) == 3


def test_a_second_ctrl_c_does_not_wait(configured: Configured, straight: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(configured(), tmp_path / "run", callback=at(lambda: [interrupt(), interrupt()], "step", 9))
    folder = RunFolder.open(tmp_path / "run")
    assert [path.name for path in folder.steps.iterdir()] == ["step-00000007"]
    assert bytes_of(resume(folder.path), 20) == bytes_of(straight, 20)


@pytest.mark.parametrize(
    "changes",
    [
        {"training": {"windows": "shuffled", "accumulation": 3, "dtype": "float64"}},
        {
            "model": {"positions": "rotary", "d_model": 12, "tie_head": True, "feed_forward": "swiglu"},
            "training": {"optimizer": {"name": "muon", "weight_decay": 0.01}, "dtype": "bfloat16"},
        },
        {
            "model": {"positions": "relative", "attention": {"scale": "learned-per-head"}, "norm": "post"},
            "training": {"optimizer": {"name": "sgd", "nesterov": True, "weight_decay": 0.01}},
        },
        {"model": LSTM, "training": {"optimizer": {"name": "muon"}}},
        {"corpus": REVERSE, "model": {"context_length": 14}, "training": {"windows": "shuffled"}},
        {"corpus": REVERSE, "model": {"shape": "encoder-decoder", "source_length": 6}},
        {"training": {"objective": {"name": "mixed", "rate": 0.3, "share": 0.6}}},
        {"training": {"objective": {"name": "masked", "rate": 0.3, "choice": "bert"}}},
    ],
)
def test_other_runs_resume_as_well(changes: dict[str, Any], configured: Configured, tmp_path: Path) -> None:
    short = {"training": {"steps": 4, "evaluate_every": 3}}
    config = configured(**{room: changes.get(room, {}) | short.get(room, {}) for room in (*changes, "training")})
    whole = train(config, tmp_path / "whole")
    train(config, tmp_path / "run", callback=at(interrupt, "step", 2))
    folder = resume(tmp_path / "run")
    assert bytes_of(folder, 4) == bytes_of(whole, 4)
    assert measured_in(folder) == measured_in(whole)


def planned(step: int) -> dict[str, Any] | None:
    """A planner: more steps at step 2, another schedule at step 4, fewer steps at step 7."""
    return {
        2: {"steps": 31},
        4: {"schedule": {"name": "linear", "warmup_steps": 2}},
        7: {"steps": 9, "threads": 2},
    }.get(step)


def test_decisions_are_sealed_before_the_first_step_they_affect(configured: Configured, tmp_path: Path) -> None:
    """Stopped after every step, without the planner at hand after each decision: the same run."""
    whole = train(configured(), tmp_path / "whole", planner=planned)
    assert [decision["step"] for decision in whole.sealed()["decisions"]] == [2, 4, 7]
    assert whole.metrics("end")[-1]["step"] == 9
    folder = train(configured(), tmp_path / "run", planner=planned, callback=at(interrupt, "step"))
    for step in range(1, 9):
        folder = resume(folder.path, planner=planned if step in (2, 4, 7) else None, callback=at(interrupt, "step"))
    folder = resume(folder.path)  # the last evaluation
    assert bytes_of(folder, 9) == bytes_of(whole, 9)
    assert measured_in(folder) == measured_in(whole)
    straight = train(configured(training={"steps": 9}), tmp_path / "other")
    assert bytes_of(straight, 9)["model.safetensors"] != bytes_of(whole, 9)["model.safetensors"]


def test_a_model_of_labels_resumes_as_well(configured: Configured, tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"{a} {b}", "label": a}) for a in ("sun", "moon") for b in "abcdefghijkl"]
    (tmp_path / "x.jsonl").write_text("\n".join(lines), encoding="utf-8")
    corpus = {"source": str(tmp_path / "x.jsonl"), "records": "labels", "split": "blocks"}
    short = {"objective": "label", "steps": 4, "evaluate_every": 3}
    config = configured(corpus=corpus, model={"shape": "encoder"}, training=short)
    whole = train(config, tmp_path / "whole")
    train(config, tmp_path / "run", callback=at(interrupt, "step", 2))
    assert bytes_of(resume(tmp_path / "run"), 4) == bytes_of(whole, 4)
    assert whole.metrics("evaluation")[-1]["test_exact_match"] in (0, 0.5, 1)
    assert whole.document("corpus")["labels"] == ["moon", "sun"]
    others = [line.replace("moon", "star") for line in lines]
    (tmp_path / "y.jsonl").write_text("\n".join(others), encoding="utf-8")
    other = configured(
        corpus=corpus | {"source": str(tmp_path / "y.jsonl")}, model={"shape": "encoder"}, training=short
    )
    with pytest.raises(UsageError, match="labels are"):
        train(other, tmp_path / "other", init_from=whole.path)
