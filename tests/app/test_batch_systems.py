"""The batch file for ranks in docs/internals/scale, run by bash with functions in the place of Slurm's commands."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")

SCALE = Path(__file__).parents[2] / "docs/internals/scale.md"
SLURM = """
srun() { echo "$@" >> calls; echo > started; read -r line < stop; }
scancel() { echo "scancel $*" >> calls; echo > stop; }
scontrol() { if [ "$1" = show ]; then echo first; echo second; else echo "scontrol $*" >> calls; fi; }
"""


@pytest.fixture
def ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Callable[[], subprocess.Popen[bytes]]":
    """Starts the batch file of docs/internals/scale, with functions for Slurm, and waits until it has its ranks."""
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
