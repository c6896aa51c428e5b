"""A run that is trained in a moment, on a text of its own."""

import json
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.conftest import Once
from vitral.core.config import merge
from vitral.data import prepare
from vitral.model import Transformer
from vitral.runs import RunFolder
from vitral.runs.checkpoint import OPTIMIZER, STATE, WEIGHTS
from vitral.runs.config import comparable
from vitral.training import Event, RunConfig, plans, train
from vitral.training.plans import ResolvedPlan, resolve_plan
from vitral.training.trainer import Trainer

Configured = Callable[..., RunConfig]
WORDS = ("the", "cat", "saw", "a", "bird", "and", "sang", "to", "me", "dog", "of")
LSTM: dict[str, Any] = {"attention": "none", "recurrence": "lstm", "positions": "none"}


def write_words(path: Path) -> None:
    words = " ".join(WORDS[(n * n // 7 + n // 3) % 11] for n in range(2000)) + "\n"
    path.write_text(words, encoding="utf-8", newline="\n")


@pytest.fixture(scope="session")
def text(once: Once) -> Path:
    """Two thousand words in an order that no rule of three words tells."""
    return once("training-words.txt", write_words)


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
def straight(configured: Configured, once: Once) -> RunFolder:
    """The twenty steps without a stop, a checkpoint after each."""
    config = configured(training={"checkpoint_every": 1})
    return RunFolder.open(once("training-straight", lambda path: train(config, path)))


def bytes_of(folder: RunFolder, step: int) -> dict[str, bytes]:
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


def measured_in(folder: RunFolder, but: str = "decision") -> list[str]:
    """What was measured, apart from times and from one kind of events: one JSON text for each event."""
    events = [event for event in folder.metrics() if event["event"] not in ("end", but)]
    return [json.dumps({k: v for k, v in event.items() if k != "tokens_per_second"}) for event in events]


def cut(straight: Path, path: Path, step: int = 8) -> Path:
    """A copy of a run as after a kill in the step after: later lines of metrics are there, later checkpoints not."""
    shutil.copytree(straight, path)
    for later in range(step + 1, 1 + max(int(one.name[5:]) for one in (path / "steps").iterdir())):
        shutil.rmtree(path / "steps" / f"step-{later:08d}")
    return path


def fail() -> None:
    """An error of somebody's own callback."""
    raise KeyError("stop")


def interrupt() -> None:
    """Press Ctrl-C."""
    signal.raise_signal(signal.SIGINT)


def at(act: Callable[[], object], kind: str, *steps: int) -> Callable[[Event], None]:
    """A callback that does something at every event of this kind, or at those of these steps."""

    def callback(event: Event) -> None:
        if event["event"] == kind and (not steps or event.get("step", steps[0]) in steps):
            act()

    return callback


def build(config: RunConfig) -> Transformer:
    """The model of a configuration for seven tokens."""
    return Transformer(config.model, 7, seed=config.seed)


def trainer(config: RunConfig, path: Path) -> Trainer:
    """A float64 session without a folder on disk."""
    dataset = prepare(config.corpus)
    model = Transformer(config.model, dataset.tokenizer.vocab_size, seed=config.seed).double()
    return Trainer(config, dataset, model, RunFolder(path), lambda event: None)


def gradients(model: Transformer) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


Plan = tuple[str, bool]
"""Precision, and whether it is compiled."""


class Bench:
    """A machine on which steps take a chosen time.

    Attributes:
        asked: threads, plan and seconds of all trials.
    """

    def __init__(self, configured: Configured, monkeypatch: pytest.MonkeyPatch) -> None:
        self.configured, self._patch = configured, monkeypatch
        self.asked: list[tuple[int, Plan, float]] = []
        self.plans({})

    def takes(self, seconds: Callable[[RunConfig, Plan], float]) -> None:
        """Let a step of a plan take so long."""

        def answer(config: RunConfig, build: Any, given: float, **how: Any) -> float:
            plan = config.training.dtype, config.training.compile
            self.asked.append((torch.get_num_threads(), plan, given))
            return seconds(config, plan)

        self._patch.setattr(plans, "time_steps", answer)

    def plans(self, seconds: Mapping[Plan, float | None]) -> None:
        """The same for each plan; None: it cannot be compiled."""

        def took(config: RunConfig, plan: Plan) -> float:
            cost = seconds[plan]
            if cost is None:
                raise RuntimeError("no compiler")
            return cost

        self.takes(took)

    def threads(self, seconds: Mapping[int, float]) -> None:
        """The same for each number of threads."""
        self.takes(lambda config, plan: seconds[torch.get_num_threads()])

    def plan(self, num_tokens: int = 10**6, **training: Any) -> ResolvedPlan:
        """What is chosen for a text of so many tokens."""
        return resolve_plan(self.configured(training=training), build, num_tokens)


@pytest.fixture
def bench(configured: Configured, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(configured, monkeypatch)
