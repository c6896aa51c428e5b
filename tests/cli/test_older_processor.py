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
from typing import Any

import pytest

from benchmarks.texts import EMULATED

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="this processor has no AVX2")

PLAY = "the-window-of-aldermere.txt"
CHARACTERS = 20_000
"""A text so short that it has been seen often enough long before the minute is over."""
PRECISION = re.compile(r"(float32|bfloat16), (not compiled|compiled) ([\d.]+) ms")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a bare text, trained in a process of its own, since PyTorch reads the variables when it is loaded."""
    folder = tmp_path_factory.mktemp("older")
    text = folder / "my.txt"
    play = (resources.files("vitral.data") / "texts" / PLAY).read_text(encoding="utf-8")
    text.write_text(play[:CHARACTERS], encoding="utf-8")
    command = [sys.executable, "-m", "vitral", "train", str(text), "--minutes", "1"]
    env = {**os.environ, **EMULATED, "VITRAL_CACHE": str(folder / "cache")}
    done = subprocess.run(
        [*command, "--out", str(folder / "run")], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "run"


def document(run: Path, name: str) -> dict[str, Any]:
    return json.loads((run / f"{name}.json").read_text(encoding="utf-8"))


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def test_the_processor_is_emulated(run: Path) -> None:
    assert document(run, "environment")["cpu_capability"] == "AVX2"


def test_no_precision_slower_than_float32_is_taken(run: Path) -> None:
    notes = " ".join(document(run, "environment")["plan"])
    timed = {(name, how == "compiled"): float(took) for name, how, took in PRECISION.findall(notes)}
    training = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))["training"]
    chosen = training["dtype"], training["compile"]
    assert timed[chosen] <= timed["float32", False]  # a precision that was given up early has no time


def test_the_run_is_finished_and_has_a_sample(run: Path) -> None:
    assert events(run, "end")[-1]["finished"]
    assert all(sample["text"].strip() for sample in events(run, "sample"))
    assert events(run, "sample")
    assert (run / "report" / "run.html").is_file()
