"""`--ranks` and torchrun end to end: processes of their own, signals, exit codes, one line."""

import os
import random
import re
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
from vitral.cli import run
from vitral.runs import RunFolder
from vitral.training import RunConfig, train

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals"),
    pytest.mark.skipif(not can_connect(), reason="PyTorch is too old for several ranks"),
]


@pytest.fixture
def config(tmp_path: Path, own_cache: None) -> Path:
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


@pytest.mark.merge
def test_stopped_by_ctrl_c_and_resumed_alone(config: Path) -> None:
    """The launcher passes the signal on; the step is finished and saved, and the end is that of a straight run."""
    out = config.with_name("out")
    command = [sys.executable, "-m", "vitral", "train", str(config), "--ranks=2", "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ranks:
        assert ranks.stdout is not None
        assert ranks.stderr is not None
        said = next((line for line in ranks.stdout if re.match(r"step 1/", line)), "")
        ranks.send_signal(signal.SIGINT)
        said += ranks.stdout.read()
        assert (ranks.wait(), ranks.stderr.read()) == (0, ""), said
    assert run(["resume", str(out)]) in (0, 2)  # 2: it had ended before the signal
    assert last_bytes(RunFolder.open(out)) == straight(config)


def ranks_of(launcher: int) -> list[int]:
    """The processes that a launcher has started and that have not ended."""
    return [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if is_there(pid, launcher)]


def is_there(pid: int, parent: int | None = None) -> bool:
    """Whether a process goes on, whose parent may have to be this one."""
    try:
        state, above = Path(f"/proc/{pid}/stat").read_text(encoding="latin-1").rpartition(")")[2].split()[:2]
    except OSError:
        return False
    return state not in "ZX" and parent in (None, int(above))


@pytest.mark.skipif(sys.platform != "linux", reason="the system tells the ranks nothing of their parent")
@pytest.mark.parametrize(
    "trial", [pytest.param(n, marks=pytest.mark.full if n else pytest.mark.merge) for n in range(20)]
)
def test_no_rank_trains_on_without_its_launcher(trial: int, config: Path) -> None:
    """It finishes its step, saves it and ends; the run goes on with one rank."""
    out = config.with_name("out")
    command = [sys.executable, "-m", "vitral", "train", str(config), "--ranks=2", "--out", str(out)]
    long = ["--set", "training.steps=99999", "--set", "training.evaluate_every=99999"]
    with subprocess.Popen([*command, *long], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as launcher:
        assert launcher.stdout is not None
        assert any(re.match(r"step 1/", line) for line in launcher.stdout)
        pids = ranks_of(launcher.pid)
        assert len(pids) == 2
        time.sleep(random.uniform(0, 0.5))
        launcher.kill()
        until = time.monotonic() + 30
        while (left := [pid for pid in pids if is_there(pid)]) and time.monotonic() < until:
            time.sleep(0.05)
        assert not left
    newest = RunFolder.open(out).newest()
    assert newest is not None
    assert newest.step > 0


DYING = """
import os, signal, sys
from vitral.cli import run
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


@pytest.mark.merge
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


@pytest.mark.merge
def test_what_cannot_be_shared_is_one_line(config: Path) -> None:
    command = [sys.executable, "-m", "vitral", "train", str(config), "--ranks=3", "--out", str(config.with_name("out"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "training.accumulation = 4" in done.stderr
    assert not config.with_name("out").exists()


@pytest.mark.merge
def test_one_rank_loads_nothing_of_several(config: Path) -> None:
    code = (
        "import sys; from vitral.cli import run; "
        f"run(['train', {str(config)!r}, '--set', 'training.steps=1', '--out', {str(config.with_name('one'))!r}]); "
        "print({'torch.distributed.elastic', 'torch.distributed.fsdp', 'torch.distributed.tensor'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
