"""The bits of a run depend on the number of threads, and not on the number of cores that carry them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.conftest import Configured, bytes_of
from vitral.core.config import merge
from vitral.runs import RunFolder
from vitral.training import loop, train
from vitral.training.trainer import Trainer

TRAINING = """
import json, os, sys
from pathlib import Path

cores, *rest = sys.argv[1:]
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])

from vitral.core.process import using_threads
from vitral.training import RunConfig, train

for config, out in zip(rest[::2], rest[1::2], strict=True):
    config = RunConfig.parse(json.loads(config))
    with using_threads(config.training.threads):
        train(config, Path(out))
"""
SMALL: dict[str, Any] = {  # each number of its positions is read at many places, in the parts of both threads
    "model": {"context_length": 257, "num_heads": 1, "positions": "relative"},
    "training": {"steps": 5},
}
LARGER: dict[str, Any] = {
    "model": {"context_length": 64, "d_model": 128, "num_heads": 4, "num_layers": 2, "positions": "rotary"},
    "training": {"steps": 5, "batch_size": 8, "accumulation": 1, "evaluate_every": 5, "evaluation_tokens": 200},
}


@pytest.mark.merge
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no CPU affinity on this system")
def test_fewer_cores_compute_the_same_bits(configured: Configured, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    names, working = ("small, 2 threads", "larger, 2 threads", "larger, 3 threads"), list[subprocess.Popen[bytes]]()
    for cores in ("1", "64"):
        arguments = [cores]
        for name in names:
            sizes, threads = SMALL if name.startswith("small") else LARGER, int(name.split()[1])
            config = configured(**merge(sizes, {"training": {"threads": threads}}))
            arguments += [json.dumps(config.plain()), str(tmp_path / f"{name}, {cores}")]
        working.append(subprocess.Popen([sys.executable, "-c", TRAINING, *arguments], env=environment))
    assert [one.wait() for one in working] == [0, 0]
    for name in names:
        few, many = (bytes_of(RunFolder.open(tmp_path / f"{name}, {cores}"), 5) for cores in ("1", "64"))
        for file in ("model.safetensors", "optimizer.safetensors"):
            assert few[file] == many[file], name


def test_losses_and_gradients_have_an_order_of_sums(
    configured: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one core carries all threads, their order seldom changes; so the mode itself is looked at."""
    seen, loss_of = list[bool](), loop.loss_of

    def noted(trainer: Trainer, step: int, micro: int, chain: str = "") -> tuple[Tensor, str]:
        seen.append(torch.are_deterministic_algorithms_enabled())
        loss, chain = loss_of(trainer, step, micro, chain)
        loss.register_hook(lambda gradient: seen.append(torch.are_deterministic_algorithms_enabled()))
        return loss, chain

    monkeypatch.setattr(loop, "loss_of", noted)
    train(configured(training={"steps": 2}), tmp_path / "run")
    assert seen == [True] * 8
    assert not torch.are_deterministic_algorithms_enabled()


ONE_CORE = """
import json, os, subprocess, sys, time
from pathlib import Path

from vitral.core.process import using_threads
from vitral.training import RunConfig, train

os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
config = RunConfig.parse(json.loads(sys.argv[1])).with_training(steps=20)

def seconds(threads, out):
    with using_threads(threads):
        began = time.process_time()
        train(config.with_training(threads=threads), Path(sys.argv[2], out))
        return time.process_time() - began

busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
try:
    print(seconds(1, "first"), seconds(1, "one"), seconds(2, "two"))
finally:
    busy.kill()
    busy.wait()
"""


@pytest.mark.merge
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no CPU affinity on this system")
def test_threads_that_wait_leave_the_processor_to_others(configured: Configured, tmp_path: Path) -> None:
    """Beside a busy process on one core two threads take the processor time of one, and not several times as much.

    They never run at once there, so a thread that spins does so for as long as it is let, however many other programs
    run; processor time does not count these. PyTorch is loaded before the process is bound: it would spin less.
    """
    own = {name: value for name, value in os.environ.items() if "OMP_" not in name}
    command = [sys.executable, "-c", ONE_CORE, json.dumps(configured(**LARGER).plain()), str(tmp_path)]
    _, one, two = map(float, subprocess.check_output(command, env=own).split())
    assert two <= 3 * one  # with threads that spin, ten times as much and more
