"""Batch systems: what is asked of Slurm and of submitit, their batch files by bash, and a pool of workers."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.cli.conftest import SETTINGS, Outcome
from vitral.lab import study_workers
from vitral.lab.study_workers import study_progress, work_command
from vitral.runs import RunFolder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")

STUDY = """
name = "two"
title = "Two"
question = "Which?"
[[arms]]
name = "one"
title = "one layer"
[[arms]]
name = "other"
title = "another norm"
changes = { model = { norm = "post" } }
"""
SCALE = Path(__file__).parents[2] / "docs" / "scale.md"

Command = Callable[..., Outcome]


@pytest.fixture
def planned(vitral: Command) -> Path:
    """Two trainings that nobody has begun."""
    Path("two.toml").write_text(STUDY)
    settings = [*SETTINGS, "--set", "training.log_every=1", "--threads", "1"]
    line = ["two.toml", "--corpus", "sample", "--seeds", "1", *settings, "--out", "shared"]
    assert vitral("study", "plan", *line).code == 0
    return Path("shared").absolute()


def states(folder: Path) -> list[tuple[str, int]]:
    """State and number of claims of each training."""
    return [(job.state, job.claims) for job in study_progress(folder).jobs[:-1]]


def test_the_batch_file_asks_for_what_a_worker_needs(planned: Path) -> None:
    script = (planned / "jobs" / "work.sbatch").read_text()
    asked: dict[str, str] = dict(re.findall(r"^#SBATCH --([\w-]+)=?(.*)$", script, re.M))
    assert (asked["array"], asked["cpus-per-task"]) == ("1-2", "1")
    assert asked["signal"].startswith("B:TERM@")  # to the shell, whose place the worker takes
    assert {"requeue", "open-mode"} <= asked.keys()
    (output,) = shlex.split(asked["output"])
    assert Path(output).parent.is_dir()
    assert script.splitlines()[-1] == f"exec {shlex.join(work_command(planned))}"


@pytest.mark.merge
def test_a_task_that_is_signalled_frees_its_job_and_the_next_one_goes_on(planned: Path, vitral: Command) -> None:
    task = ["bash", str(planned / "jobs" / "work.sbatch")]
    with subprocess.Popen(task, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as first:
        assert first.stdout is not None
        said = next(line for line in first.stdout if "step 1/" in line)
        first.send_signal(signal.SIGTERM)
        said += first.stdout.read()
    assert "Traceback" not in said
    assert "working" not in {state for state, _claims in states(planned)}
    second = vitral("study", "work", str(planned), "--workers", "1", "--no-page")
    assert (second.code, second.err) == (0, "")
    assert {state for state, _claims in states(planned)} == {"finished"}
    for run in planned.glob("arms/*/seed-1"):
        steps = [event["step"] for event in RunFolder.open(run).metrics() if event["event"] == "step"]
        assert steps == [1, 2, 3, 4, 5]


@pytest.mark.merge
def test_a_pool_trains_each_job_once(planned: Path, vitral: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_workers, "cores", lambda: 2)
    done = vitral("study", "work", str(planned), "--workers", "2", "--no-page")
    assert (done.code, done.err) == (0, "")
    assert states(planned) == [("finished", 1)] * 2


class Submitit:
    """As much of submitit as is asked of it, which notes what that is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refuses: Exception | None = None) -> None:
        """Take the place of the installed one."""
        self.asked: dict[str, Any] = {}
        self.commands: list[list[str]] = []
        self.refuses, self.is_open = refuses, False
        package, helpers = ModuleType("submitit"), ModuleType("submitit.helpers")
        vars(package).update(AutoExecutor=self.executor)
        vars(helpers).update(CommandFunction=lambda command: command)
        monkeypatch.setitem(sys.modules, "submitit", package)
        monkeypatch.setitem(sys.modules, "submitit.helpers", helpers)

    def executor(self, folder: Path, cluster: str | None) -> "Submitit":
        self.folder, self.cluster = folder, cluster
        return self

    def update_parameters(self, **asked: Any) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.asked = asked

    def batch(self) -> nullcontext[None]:
        assert not self.commands
        self.is_open = True
        return nullcontext()

    def submit(self, command: list[str]) -> Any:
        assert self.is_open  # one array, not a job for each
        self.commands.append(command)
        return type("Job", (), {"job_id": f"4711_{len(self.commands) - 1}"})


def test_submitit_is_asked_for_an_array_of_workers(
    planned: Path, vitral: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Submitit(monkeypatch)
    told = vitral("study", "work", "shared", "--slurm", "3", "--slurm-option", "slurm_partition=cpu")
    assert (told.code, told.out.split(), told.err) == (0, ["4711_0", "4711_1", "4711_2"], "")
    assert there.commands == [work_command(planned)] * 3
    assert there.asked == {"name": "two", "cpus_per_task": 1, "timeout_min": 24 * 60, "slurm_partition": "cpu"}
    assert (there.folder, there.cluster) == (planned / "jobs" / "slurm", None)
    assert states(planned) == [("ready", 0)] * 2
    line = ["--slurm-option", "cluster=debug", "--slurm-option", "timeout_min=7"]
    there.commands.clear()
    assert vitral("study", "work", "shared", "--slurm", "1", *line).code == 0
    assert (there.cluster, there.asked["timeout_min"]) == ("debug", 7)


@pytest.mark.parametrize("refusal", [ValueError("x\ny"), NameError("no such option"), RuntimeError("no cluster")])
def test_an_option_that_submitit_refuses_is_one_line(
    refusal: Exception, planned: Path, vitral: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    Submitit(monkeypatch, refusal)
    told = vitral("study", "work", "shared", "--slurm", "3", "--slurm-option", "a=1")
    assert (told.code, told.out, len(told.err.splitlines())) == (2, "", 1)


def test_without_submitit_the_batch_file_is_named(
    planned: Path, vitral: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    told = vitral("study", "work", "shared", "--slurm", "3")
    assert (told.code, told.out, len(told.err.splitlines())) == (2, "", 1)
    assert "work.sbatch" in told.err


SLURM = """
srun() { echo "$@" >> calls; echo > started; read -r line < stop; }
scancel() { echo "scancel $*" >> calls; echo > stop; }
scontrol() { if [ "$1" = show ]; then echo first; echo second; else echo "scontrol $*" >> calls; fi; }
"""


@pytest.fixture
def ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Callable[[], subprocess.Popen[bytes]]":
    """Starts the batch file of docs/scale.md, with shell functions for Slurm, and waits until it has its ranks."""
    (script,) = re.findall(r"```bash\n(#!/bin/bash\n.*?)```", SCALE.read_text(encoding="utf-8"), re.S)
    monkeypatch.chdir(tmp_path)
    Path("slurm.sh").write_text(SLURM)
    Path("my.sbatch").write_text(script)
    for name in ("started", "stop"):
        os.mkfifo(name)
    given = {"JOB_ID": "4711", "NNODES": "2", "JOB_NODELIST": "any[1-2]", "CPUS_PER_TASK": "5"}
    environment = {**os.environ, "BASH_ENV": "slurm.sh", **{f"SLURM_{name}": text for name, text in given.items()}}

    def start() -> subprocess.Popen[bytes]:
        script = subprocess.Popen(["bash", "my.sbatch"], env=environment)
        Path("started").read_bytes()
        return script

    return start


def test_the_batch_file_of_ranks_begins_and_then_resumes(ranks: Callable[[], "subprocess.Popen[bytes]"]) -> None:
    for task in ("train my.toml --out runs/mine", "resume runs/mine"):
        script = ranks()
        Path("stop").write_text("\n")
        assert script.wait() == 0
        (asked,) = Path("calls").read_text().splitlines()
        assert asked.startswith("--cpus-per-task=5 torchrun --nnodes 2 ")
        assert "--rdzv-endpoint first:" in asked
        assert asked.endswith(f" -m vitral {task}")
        Path("calls").unlink()
        Path("runs/mine").mkdir(parents=True, exist_ok=True)


def test_the_batch_file_of_ranks_lets_them_save_before_its_time_is_over(
    ranks: Callable[[], "subprocess.Popen[bytes]"],
) -> None:
    script = ranks()
    script.send_signal(signal.SIGTERM)
    script.wait()
    assert Path("calls").read_text().splitlines()[1:] == ["scancel --signal=TERM 4711", "scontrol requeue 4711"]
