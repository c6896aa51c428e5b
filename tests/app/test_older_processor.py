"""A minute on a processor with AVX2 and nothing newer, emulated: the precision that is slow there is not taken."""

import json
import os
import platform
import re
import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from benchmarks.texts import EMULATED
from vitral.runs import RunFolder

pytestmark = [
    pytest.mark.merge,
    pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="this processor has no AVX2"),
]

PLAY = "the-window-of-aldermere.txt"
CHARACTERS = 20_000
"""A text so short that it has been seen often enough long before the minute is over."""
PRECISION = re.compile(r"(float32|bfloat16), (not compiled|compiled) ([\d.]+) ms")


def test_no_precision_slower_than_float32_is_taken(tmp_path: Path) -> None:
    """Trained in a process of its own, since PyTorch reads the variables when it is loaded."""
    play = (resources.files("vitral.data") / "texts" / PLAY).read_text(encoding="utf-8")
    (tmp_path / "my.txt").write_text(play[:CHARACTERS], encoding="utf-8")
    command = [sys.executable, "-m", "vitral", "train", "my.txt", "--minutes", "1", "--out", "run"]
    env = {**os.environ, **EMULATED, "VITRAL_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    run = tmp_path / "run"
    environment = json.loads((run / "environment.json").read_text(encoding="utf-8"))
    assert environment["cpu_capability"] == "AVX2"
    timed = {
        (name, how == "compiled"): float(took) for name, how, took in PRECISION.findall(" ".join(environment["plan"]))
    }
    training = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))["training"]
    chosen = training["dtype"], training["compile"]
    assert timed[chosen] <= timed["float32", False]  # a precision that was given up early has no time
    folder = RunFolder.open(run)
    assert folder.metrics("end")[-1]["finished"]
    assert all(sample["text"].strip() for sample in folder.metrics("sample"))
    assert (run / "report" / "run.html").is_file()
