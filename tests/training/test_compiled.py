"""A compiled run that is killed and resumed equals the straight one, with several threads and on a GPU."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch

from tests.training.conftest import Configured, bytes_of, cut, measured_in
from vitral.runs import RunFolder
from vitral.training import train

USUAL_COMPILER = {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
COMPILES = (
    shutil.which(os.environ.get("CXX", USUAL_COMPILER)) is not None
    and Path(sysconfig.get_path("include"), "Python.h").exists()
)
CPU: dict[str, Any] = {
    "model": {"context_length": 31, "d_model": 48},  # so large that threads share the rows whose gradients are added
    "training": {"device": "cpu", "batch_size": 17, "threads": 2},
}
DEVICES = [
    pytest.param(CPU, id="cpu", marks=pytest.mark.skipif(not COMPILES, reason="PyTorch cannot compile for the CPU")),
    pytest.param(
        {"training": {"device": "cuda"}},
        id="cuda",
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    ),
]
COMPILED = """
import sys, tomllib
from pathlib import Path
from vitral.training import RunConfig, resume, train

def callback(event):
    assert "cannot compile" not in event.get("text", ""), event

config, path = Path(sys.argv[1]), Path(sys.argv[2])
if path.exists():
    resume(path, callback=callback)
else:
    train(RunConfig.parse(tomllib.loads(config.read_text(encoding="utf-8"))), path, callback=callback)
"""


@pytest.mark.full
@pytest.mark.parametrize("changes", DEVICES)
def test_resumed_is_straight(
    changes: dict[str, dict[str, Any]],
    configured: Configured,
    tmp_path: Path,
) -> None:
    """In processes of their own, since the compiler cannot read the tests' checks of annotations."""
    training = changes["training"] | {"checkpoint_every": 1, "dtype": "bfloat16"}
    config = configured(**changes | {"training": training | {"compile": True}})
    (tmp_path / "config.toml").write_bytes(tomli_w.dumps(config.plain()).encode())
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    for name in ("straight", "resumed"):
        environment["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path / f"compiled-{name}")  # each compiles for itself
        command = [sys.executable, "-c", COMPILED, str(tmp_path / "config.toml"), str(tmp_path / name)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr
        if name == "straight":
            cut(tmp_path / "straight", tmp_path / "resumed")
    straight, resumed = (RunFolder(tmp_path / name) for name in ("straight", "resumed"))
    assert bytes_of(resumed, 20) == bytes_of(straight, 20)
    assert measured_in(resumed) == measured_in(straight)
    plain = train(configured(**changes | {"training": training}), tmp_path / "plain")
    first = [next(event["loss"] for event in one.metrics() if event["event"] == "step") for one in (plain, straight)]
    assert first[0] == pytest.approx(first[1], rel=0.02)  # other draws of dropout
