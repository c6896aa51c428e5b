"""`--ranks` and torchrun end to end: processes of their own, signals, exit codes, one line."""

import os
import random
import re
import select
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from forked_ranks import can_connect

from tests.reliability.conftest import STEPS, last_bytes
from vitral.app.terminal import run
from vitral.runs import RunFolder
from vitral.training import RunConfig, train

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals"),
    pytest.mark.skipif(not can_connect(), reason="PyTorch is too old for several ranks"),
]

MARKS = (pytest.mark.merge, pytest.mark.full)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A tiny run whose steps have four batches."""
    text = tmp_path / "words.txt"
    text.write_text("the cat saw a bird and the dog sang to me of it\n" * 99, encoding="utf-8", newline="\n")
    plain: dict[str, Any] = {
        "corpus": {"source": str(text), "tokenizer": "char", "split": "tail"},
        "model": {"context_length": 7, "d_model": 13, "num_heads": 1, "num_layers": 1},
        "training": {
            "steps": STEPS,
            "batch_size": 2,
            "accumulation": 4,
            "evaluate_every": 5,
            "log_every": 1,
            "threads": 1,
            "device": "cpu",
        },
    }
    path = tmp_path / "run.toml"
    path.write_bytes(tomli_w.dumps(plain).encode())
    return path


def straight(config: Path) -> dict[str, bytes]:
    """The last bytes of the run on one rank."""
    plain = tomllib.loads(config.read_text(encoding="utf-8"))
    return last_bytes(train(RunConfig.parse(plain).watched(), config.with_name("straight")))


def started(config: Path, *options: str) -> "subprocess.Popen[str]":
    """The launcher of two ranks, whose first step has been shown."""
    command = [sys.executable, "-m", "vitral", "train", str(config), "--ranks=2", "--out", str(config.with_name("out"))]
    launcher = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    assert any(re.match(r"step 1/", line) for line in launcher.stdout)
    return launcher


@pytest.mark.merge
def test_stopped_by_ctrl_c_and_resumed_alone(config: Path) -> None:
    """The launcher passes the signal on; the step is finished and saved, and the end is that of a straight run."""
    with started(config) as ranks:
        ranks.send_signal(signal.SIGINT)
        assert ranks.communicate()[1] == ""
    assert ranks.returncode == 0
    out = config.with_name("out")
    assert run(["resume", str(out)]) in (0, 2)  # 2: it had ended before the signal
    assert last_bytes(RunFolder.open(out)) == straight(config)


@pytest.mark.skipif(sys.platform != "linux", reason="the system tells the ranks nothing of their parent")
@pytest.mark.parametrize("trial", [pytest.param(n, marks=MARKS[n > 0]) for n in range(20)])
def test_no_rank_trains_on_without_its_launcher(trial: int, config: Path) -> None:
    """Each finishes its step and ends; rank 0 has saved it."""
    long = ["--set", "training.steps=99999", "--set", "training.evaluate_every=99999"]
    with started(config, *long) as launcher:
        children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
        ranks = [os.pidfd_open(int(child)) for child in children]
        assert len(ranks) == 2
        time.sleep(random.uniform(0, 0.5))
        launcher.kill()
        assert all(select.select([rank], [], [], 30)[0] for rank in ranks)
    assert RunFolder.open(config.with_name("out")).latest() is not None


DYING = """
import os, signal, sys
from vitral.app.terminal import run
from vitral.training import loop

one_step = loop.one_step

def dying(trainer):
    if trainer.state.step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return one_step(trainer)

if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1":
    loop.one_step = dying
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.full
def test_torchrun_starts_the_ranks_anew(config: Path) -> None:
    """After a death, from the last checkpoint; the end is that of a straight run."""
    script, out = config.with_name("dying.py"), config.with_name("out")
    script.write_text(DYING, encoding="utf-8")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1", "--standalone"]
    command = [*launcher, str(script), "train", str(config), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "exitcode: -9" in done.stderr
    assert last_bytes(RunFolder.open(out)) == straight(config)
