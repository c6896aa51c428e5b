"""A fresh model whose loss is far from ln V is noted in the run's log, once, however the run goes on."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.conftest import Configured
from vitral.core import parts
from vitral.runs import RunConfig, RunFolder
from vitral.training import train


class Loud(torch.nn.LayerNorm):
    """A norm whose numbers are a hundred times too large."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 100 * super().forward(input)


@pytest.fixture
def loud(configured: Configured) -> RunConfig:
    parts.register("norm", "loud", Loud)
    return configured(model={"norm_type": "loud", "initialisation": "pytorch"}, training={"steps": 3})


def notes(folder: RunFolder) -> list[dict[str, Any]]:
    return [event for event in folder.metrics("note") if "ln " in event["text"]]


def test_a_model_that_begins_far_from_ln_v_is_noted(loud: RunConfig, tmp_path: Path) -> None:
    told: list[Any] = []
    folder = train(loud, tmp_path / "run", callback=told.append)
    (noted,) = notes(folder)
    assert noted["step"] == 0
    assert noted in told
    assert folder.metrics()[0] == noted


def test_a_usual_model_is_not(straight: RunFolder) -> None:
    assert notes(straight) == []
