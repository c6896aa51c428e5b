"""A run that is trained in a moment, on a text of its own."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from vitral.core.config import merge
from vitral.runs import RunFolder
from vitral.runs.checkpoint_files import OPTIMIZER, STATE, WEIGHTS
from vitral.runs.config import comparable
from vitral.training import RunConfig, train

Configured = Callable[..., RunConfig]
WORDS = ("the", "cat", "saw", "a", "bird", "and", "sang", "to", "me", "dog", "of")


def written() -> str:
    """Two thousand words in an order that no rule of three words tells."""
    return " ".join(WORDS[(n * n // 7 + n // 3) % 11] for n in range(2000)) + "\n"


@pytest.fixture(scope="session", autouse=True)
def _own_cache(own_cache: None) -> None:
    """Prepared texts go to a folder of the tests."""


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of some eight thousand characters."""
    path = tmp_path_factory.mktemp("corpus") / "words.txt"
    path.write_text(written(), encoding="utf-8", newline="\n")
    return path


@pytest.fixture(scope="session")
def configured(text: Path) -> Configured:
    """`configured(training={"steps": 3})`: twenty tiny steps with dropout and accumulation, or what is said instead."""

    def make(**changes: Any) -> RunConfig:
        base = {
            "corpus": {"source": str(text), "tokenizer": "char", "split": "tail"},
            "model": {"context_length": 11, "d_model": 6, "num_heads": 3, "num_layers": 1, "dropout": 0.2},
            "training": {
                "steps": 20,
                "batch_size": 3,
                "accumulation": 2,
                "optimizer": {"learning_rate": 0.01},
                "schedule": {"name": "cosine", "warmup_steps": 3, "final_fraction": 0.1},
                "clip_norm": 0.5,
                "evaluate_every": 7,
                "log_every": 1,
                "keep_checkpoints": 99,
                "device": "cpu",
            },
        }
        return RunConfig.parse(merge(base, changes))

    return make


@pytest.fixture(scope="session")
def straight(configured: Configured, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The twenty steps without a stop, a checkpoint after each."""
    config = configured(training={"checkpoint_every": 1})
    return train(config, tmp_path_factory.mktemp("straight") / "run")


def checkpoint_bytes(folder: RunFolder, step: int) -> dict[str, bytes]:
    """Weights, optimizer and state of a checkpoint, however many files have its tensors.

    The state is without keys that change no number.
    """
    there = folder.steps / f"step-{step:08d}"
    state = json.loads((there / STATE).read_bytes())
    state["config"] = comparable(RunConfig.parse(state["config"]))
    content = {STATE: json.dumps(state).encode()}
    for name in (WEIGHTS, OPTIMIZER):
        tensors = [item for file in there.glob(name.replace(".", "*.")) for item in load_file(file).items()]
        described = [f"{key} {one.dtype} {list(one.shape)} ".encode() + one.numpy().tobytes() for key, one in tensors]
        content[name] = b"".join(sorted(described))
    return content


def measured(folder: RunFolder) -> list[str]:
    """What was measured, apart from times: one JSON text for each event."""
    events = [event for event in folder.metrics() if event["event"] not in ("end", "decision")]
    return [json.dumps({k: v for k, v in event.items() if k != "tokens_per_second"}) for event in events]


@pytest.fixture(scope="session")
def bytes_of() -> Callable[[RunFolder, int], dict[str, bytes]]:
    """The function `checkpoint_bytes`."""
    return checkpoint_bytes


@pytest.fixture(scope="session")
def measured_in() -> Callable[[RunFolder], list[str]]:
    """The function `measured`."""
    return measured


def killed_in_step_nine(straight: Path, path: Path) -> Path:
    """A copy of a run as after a kill in step 9: later lines of metrics are there, later checkpoints are not."""
    shutil.copytree(straight, path)
    for later in range(9, 21):
        shutil.rmtree(path / "steps" / f"step-{later:08d}")
    return path


@pytest.fixture(scope="session")
def cut() -> Callable[[Path, Path], Path]:
    """The function `killed_in_step_nine`."""
    return killed_in_step_nine
