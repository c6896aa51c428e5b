"""`--ranks` and torchrun end to end: processes of their own, signals, exit codes, one line."""

import re
import signal
import socket
import subprocess
import sys
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


DYING = """
import os, signal, sys
import torch
from vitral.cli import run

passes, backward = 0, torch.Tensor.backward

def dying(*args, **kwargs):
    global passes
    passes += 1
    if passes == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return backward(*args, **kwargs)

if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "VICTIM":
    torch.Tensor.backward = dying
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.full
@pytest.mark.parametrize("victim", [0, 1])
def test_one_of_two_machines_whose_rank_dies(victim: int, config: Path) -> None:
    """torchrun counts the death on one of them only; the ranks meet all the same, and only rank 0's has a run."""
    script, folders = config.with_name("dying.py"), [config.with_name(name) for name in ("one", "other")]
    script.write_text(DYING.replace("VICTIM", str(victim)), encoding="utf-8")
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = found.getsockname()[1]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--max-restarts=1"]
    meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}", "--rdzv-id=7", "--local-addr=localhost"]
    command = [*launcher, *meeting, str(script), "train", str(config), "--out"]
    machines = [
        subprocess.Popen([*command, str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for out in folders
    ]
    said = [machine.communicate()[1] for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], "\n".join(said)
    assert "exitcode: -9" in "".join(said)
    (out,) = (folder for folder in folders if folder.exists())
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
        "print({'vitral.training.ranks', 'torch.distributed.elastic', 'torch.distributed.fsdp'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
