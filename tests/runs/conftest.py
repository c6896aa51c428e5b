"""Small checkpoints and run folders."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from vitral.runs import Checkpoint, RunFolder


@pytest.fixture
def checkpoint() -> Callable[..., Checkpoint]:
    """`checkpoint(10, best=5)`: tensors of several shapes and types, whose numbers depend on the step."""

    def make(step: int, best: int | None = None) -> Checkpoint:
        model = {
            "matrix": torch.arange(15.0).view(3, 5) + step,
            "double": torch.linspace(0, step + 1, 7, dtype=torch.float64),
            "half": torch.full((2,), step, dtype=torch.bfloat16),
        }
        optimizer = {"matrix/step": torch.tensor(float(step)), "matrix/exp_avg": torch.full((3, 5), 1 / (step + 1))}
        state = {"seed": 7, "loss_sum": 0.1 + step, "best_loss": None}
        if best is not None:
            state["best_step"] = best
        history = {"step_of_history": step, "metrics": {"lines": 0, "bytes": 0, "sha256": ""}}
        return Checkpoint(step, model, optimizer, state, history)

    return make


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run folder without checkpoints."""
    documents = {"tokenizer": {"name": "char"}, "corpus": {"source": "é.txt"}, "run": {"documents": {}}}
    return RunFolder.create(tmp_path / "run", {"seed": 7, "model": {"d_model": 3}}, documents)
