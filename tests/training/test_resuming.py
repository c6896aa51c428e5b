"""A run that was stopped and resumed is the run that was not, bit for bit, wherever it was stopped."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from vitral.core.errors import UsageError
from vitral.runs import RunFolder, load_run
from vitral.training import Event, RunConfig, resume, train

Configured = Callable[..., RunConfig]
BytesOf = Callable[[RunFolder, int], dict[str, bytes]]
MeasuredIn = Callable[[RunFolder], list[str]]


def asks_to_stop(*steps: int, number: int = signal.SIGINT) -> Callable[[Event], None]:
    """A callback that presses Ctrl-C (or sends `number`) during these steps, or every step if none is named."""

    def callback(event: Event) -> None:
        if event["event"] == "step" and (not steps or event["step"] in steps):
            signal.raise_signal(number)

    return callback


def test_stopped_after_every_step(
    configured: Configured, straight: RunFolder, tmp_path: Path, bytes_of: BytesOf, measured_in: MeasuredIn
) -> None:
    """Twenty processes' worth of work, a step each: weights, optimizer, state, losses."""
    folder = train(configured(), tmp_path / "run", callback=asks_to_stop())
    for step in range(1, 21):
        assert [event["step"] for event in folder.metrics("end")] == list(range(1, step + 1))
        assert not folder.metrics("end")[-1]["finished"]
        # An evaluation that was due has been left, and is done by the next process first.
        same = [name for name in bytes_of(folder, step) if name.endswith("safetensors") or step not in (7, 14, 20)]
        assert [bytes_of(folder, step)[name] for name in same] == [bytes_of(straight, step)[name] for name in same]
        folder = resume(folder.path, callback=asks_to_stop())
        assert bytes_of(folder, step) == bytes_of(straight, step)
    assert folder.metrics("end")[-1]["finished"]
    assert measured_in(folder) == measured_in(straight)
    assert len(folder.metrics("evaluation")) == 3
    for pointer in ("best", "last"):
        assert (folder.path / pointer).read_bytes() == (straight.path / pointer).read_bytes()


@pytest.mark.parametrize("step", [1, 6, 7, 13, 19])
def test_resumed_from_a_copied_checkpoint(
    step: int, straight: RunFolder, tmp_path: Path, bytes_of: BytesOf, measured_in: MeasuredIn
) -> None:
    """As after a kill: later lines of metrics are there, later checkpoints are not."""
    path = tmp_path / "run"
    shutil.copytree(straight.path, path)
    for later in range(step + 1, 21):
        shutil.rmtree(path / "steps" / f"step-{later:08d}")
    (path / "steps" / ".tmp-1-step-00000020").mkdir()
    folder = resume(path)
    for later in range(step + 1, 21):
        assert bytes_of(folder, later) == bytes_of(straight, later)
    assert measured_in(folder) == measured_in(straight)
    assert not list(folder.steps.glob(".tmp-*"))


def test_resumed_after_the_newest_was_damaged(
    straight: RunFolder, tmp_path: Path, bytes_of: BytesOf, measured_in: MeasuredIn
) -> None:
    path, said = tmp_path / "run", []
    shutil.copytree(straight.path, path)
    for step in range(17, 21):
        weights = path / "steps" / f"step-{step:08d}" / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    folder = resume(path, callback=said.append)
    assert [event["event"] for event in said[:5]] == ["note"] * 4 + ["start"]
    assert "step-00000020: model.safetensors does not match" in said[0]["text"]
    for step in range(17, 21):
        assert bytes_of(folder, step) == bytes_of(straight, step)
    assert measured_in(folder) == measured_in(straight)
    assert load_run(path, "last").step == 20


def test_stopped_by_ctrl_c_in_a_process_of_its_own(
    configured: Configured, straight: RunFolder, tmp_path: Path, bytes_of: BytesOf, measured_in: MeasuredIn
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import signal, sys, tomllib\n"
        "from pathlib import Path\n"
        "from vitral.training import RunConfig, train\n"
        "def callback(event):\n"
        "    if event['event'] == 'step' and event['step'] == 10:\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "config = RunConfig.parse(tomllib.loads(Path(sys.argv[1]).read_text(encoding='utf-8')))\n"
        "train(config, Path(sys.argv[2]), callback=callback)\n"
        "print('reached the end')\n",
        encoding="utf-8",
    )
    (tmp_path / "config.toml").write_bytes(tomli_w.dumps(configured().plain()).encode())
    command = [sys.executable, str(program), str(tmp_path / "config.toml"), str(tmp_path / "run")]
    path = os.pathsep.join(part for part in sys.path if part)
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "reached the end\n", "")
    folder = RunFolder.open(tmp_path / "run")
    assert bytes_of(folder, 10) == bytes_of(straight, 10)
    assert bytes_of(resume(folder.path), 20) == bytes_of(straight, 20)
    assert measured_in(folder) == measured_in(straight)


def test_a_batch_systems_request_is_heard_too(
    configured: Configured, straight: RunFolder, tmp_path: Path, bytes_of: BytesOf
) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    folder = train(configured(), tmp_path / "run", callback=asks_to_stop(5, number=signal.SIGTERM))
    assert bytes_of(folder, 5) == bytes_of(straight, 5)
    assert {number: signal.getsignal(number) for number in before} == before


def test_a_second_ctrl_c_does_not_wait(
    configured: Configured, straight: RunFolder, tmp_path: Path, bytes_of: BytesOf
) -> None:
    def impatient(event: Event) -> None:
        if event["event"] == "step" and event["step"] == 9:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(configured(), tmp_path / "run", callback=impatient)
    folder = RunFolder.open(tmp_path / "run")
    assert [path.name for path in folder.steps.iterdir()] == ["step-00000007"]
    assert bytes_of(resume(folder.path), 20) == bytes_of(straight, 20)


def test_stopped_before_the_first_step(
    configured: Configured, straight: RunFolder, tmp_path: Path, bytes_of: BytesOf
) -> None:
    def at_once(event: Event) -> None:
        if event["event"] == "start":
            signal.raise_signal(signal.SIGINT)

    folder = train(configured(), tmp_path / "run", callback=at_once)
    assert [path.name for path in folder.steps.iterdir()] == ["step-00000000"]
    assert folder.metrics("step") == []
    assert bytes_of(resume(folder.path), 20) == bytes_of(straight, 20)


def test_trained_outside_the_main_thread(
    configured: Configured, straight: RunFolder, tmp_path: Path, bytes_of: BytesOf
) -> None:
    """Where no signal can be listened to."""
    thread = threading.Thread(target=train, args=(configured(training={"steps": 20}), tmp_path / "run"))
    thread.start()
    thread.join()
    assert bytes_of(RunFolder.open(tmp_path / "run"), 20) == bytes_of(straight, 20)


@pytest.mark.parametrize(
    "changes",
    [
        {"training": {"windows": "shuffled", "accumulation": 3}},
        {"training": {"dtype": "float64"}},
        {"training": {"dtype": "bfloat16"}},
        {"training": {"optimizer": {"name": "muon", "weight_decay": 0.01}, "dtype": "bfloat16"}},
        {"training": {"optimizer": {"name": "sgd", "nesterov": True, "weight_decay": 0.01}}},
        {"model": {"positions": "relative", "attention": {"scale": "learned-per-head"}, "norm": "post"}},
        {"model": {"positions": "rotary", "d_model": 12, "tie_head": True, "feed_forward": "swiglu"}},
        {"model": {"positions": "sinusoidal", "attention": {"mask": {"name": "prefix", "length": 3}}}},
        {"model": {"positions": "alibi", "attention": {"scale": "adaptive"}}, "training": {"dtype": "bfloat16"}},
        {"model": {"attention": "none"}},
        {"corpus": {"tokenizer": {"name": "bpe", "vocab_size": 263}}},
    ],
)
def test_other_runs_resume_as_well(
    changes: dict[str, Any], configured: Configured, tmp_path: Path, bytes_of: BytesOf, measured_in: MeasuredIn
) -> None:
    short = {"training": {"steps": 4, "evaluate_every": 3}}
    config = configured(**{room: changes.get(room, {}) | short.get(room, {}) for room in (*changes, "training")})
    whole = train(config, tmp_path / "whole")
    train(config, tmp_path / "run", callback=asks_to_stop(2))
    folder = resume(tmp_path / "run")
    assert bytes_of(folder, 4) == bytes_of(whole, 4)
    assert measured_in(folder) == measured_in(whole)


def test_a_changed_text_is_refused(configured: Configured, text: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.txt"
    shutil.copyfile(text, copy)
    config = configured(corpus={"source": str(copy)}, training={"steps": 4})
    folder = train(config, tmp_path / "run", callback=asks_to_stop(2))
    before = sorted(path.name for path in folder.steps.iterdir())
    content = copy.read_text(encoding="utf-8")
    for changed in (content.replace("cat", "act", 1), content + "é"):
        copy.write_text(changed, encoding="utf-8", newline="\n")
        with pytest.raises(UsageError, match=re.escape(str(copy))) as refused:
            resume(folder.path)
        assert "\n" not in str(refused.value)
        assert sorted(path.name for path in folder.steps.iterdir()) == before
    copy.write_text(content, encoding="utf-8", newline="\n")
    assert resume(folder.path).metrics("end")[-1]["finished"]


def test_what_cannot_be_resumed_is_refused_in_one_line(straight: RunFolder, tmp_path: Path) -> None:
    for path, complaint in (
        (straight.path, "finished at step 20; to train it for longer: vitral continue"),
        (tmp_path, "not a run"),
    ):
        with pytest.raises(UsageError, match=complaint) as refused:
            resume(path)
        assert "\n" not in str(refused.value)


class Mistake(Exception):
    """Of somebody's own callback."""


@pytest.mark.parametrize(
    ("event", "step"), [("start", 0), ("step", 3), ("step", 7), ("lines", 1), ("evaluation", 14), ("end", 20)]
)
def test_a_callback_that_fails_loses_nothing(
    event: str,
    step: int,
    configured: Configured,
    straight: RunFolder,
    tmp_path: Path,
    bytes_of: BytesOf,
    measured_in: MeasuredIn,
) -> None:
    calls: list[Event] = []

    def fails(told: Event) -> None:
        calls.append(told)
        if told["event"] == event and told.get("step", step) == step:
            raise Mistake

    with pytest.raises(Mistake):
        train(configured(), tmp_path / "run", callback=fails)
    assert calls[-1]["event"] == event
    folder = RunFolder.open(tmp_path / "run")
    newest = folder.newest()
    assert newest is not None
    assert newest.step >= step
    if newest.step < 20:
        resume(folder.path)
    assert bytes_of(folder, 20) == bytes_of(straight, 20)
    assert measured_in(folder) == measured_in(straight)


def test_a_line_that_a_callback_returns_is_noted_in_the_run(
    configured: Configured, straight: RunFolder, tmp_path: Path, bytes_of: BytesOf
) -> None:
    folder = train(configured(), tmp_path / "run", callback=lambda event: "gone" if event.get("step") == 5 else None)
    assert [event["text"] for event in folder.metrics("note")] == ["gone"]
    assert bytes_of(folder, 20) == bytes_of(straight, 20)


def planned(step: int, seconds: float) -> dict[str, Any] | None:
    """A planner: more steps at step 4, another schedule at step 9, fewer steps at step 15."""
    return {
        4: {"steps": 31},
        9: {"schedule": {"name": "linear", "warmup_steps": 2}},
        15: {"steps": 23, "threads": 2},
    }.get(step)


def test_decisions_are_sealed_before_the_first_step_they_affect(
    configured: Configured, tmp_path: Path, bytes_of: BytesOf, measured_in: MeasuredIn
) -> None:
    """Stopped after every step, without the planner at hand after each decision: the same run."""
    whole = train(configured(), tmp_path / "whole", planner=planned)
    assert [decision["step"] for decision in whole.sealed()["decisions"]] == [4, 9, 15]
    assert whole.metrics("end")[-1]["step"] == 23
    folder = train(configured(), tmp_path / "run", planner=planned, callback=asks_to_stop())
    for step in range(1, 23):
        folder = resume(folder.path, planner=planned if step in (4, 9, 15) else None, callback=asks_to_stop())
    folder = resume(folder.path)  # the last evaluation
    assert bytes_of(folder, 23) == bytes_of(whole, 23)
    assert measured_in(folder) == measured_in(whole)
    straight = train(configured(training={"steps": 23}), tmp_path / "other")
    assert bytes_of(straight, 23)["model.safetensors"] != bytes_of(whole, 23)["model.safetensors"]


@pytest.mark.parametrize("changes", [{"steps": 5}, {"steps": 0}, {"d_model": 7}, {"threads": 0}, {"schedule": "fast"}])
def test_a_decision_that_cannot_be_taken_is_refused(
    changes: dict[str, Any], configured: Configured, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as refused:
        train(configured(), tmp_path / "run", planner=lambda step, seconds: changes if step == 5 else None)
    assert "\n" not in str(refused.value)
    assert resume(tmp_path / "run").metrics("end")[-1]["finished"]
