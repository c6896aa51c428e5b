"""Overlap of heads beside heads of other models: cases worked by hand, and the rows that are kept of a model."""

import json

import numpy as np
import pytest
import torch

from vitral.core.streams import numpy_stream
from vitral.inspection.attention import BROAD, overlaps
from vitral.inspection.head_overlap import against_other_seeds, attention_rows, rows_of
from vitral.model import ModelConfig, Transformer

MODEL = {"context_length": 11, "d_model": 12, "num_heads": 3, "num_layers": 2, "initialisation": "pytorch"}


def on(*keys: int) -> torch.Tensor:
    """Heads of two rows each that attend to one of three keys."""
    return torch.eye(3, dtype=torch.float64)[list(keys)][:, None].expand(-1, 2, -1)


def test_kept_rows_are_those_of_the_model() -> None:
    model = Transformer(ModelConfig.parse(MODEL), 13, seed=3).eval()
    tokens = torch.from_numpy(numpy_stream(1, "tokens").integers(13, size=(5, 11)))
    kept = attention_rows(model, tokens, 40)
    assert json.loads(json.dumps(kept)) == kept == attention_rows(model, tokens, 40)
    assert kept["shape"] == [3, 40, 11]
    for layer, rows in enumerate(rows_of(kept)):
        weights = model.trace(tokens)[f"blocks.{layer}.attn.weights"].numpy()
        rows = rows.numpy()
        assert rows.sum(axis=-1) == pytest.approx(np.ones((3, 40)))
        for number in range(40):
            distance = np.abs(weights - rows[None, :, number, None]).sum(axis=(1, 3))  # heads and keys
            assert distance.min() < 1e-3


def test_the_matched_head_is_the_nearest_in_entropy() -> None:
    """The broad head of the other run takes the place of the broad one, whatever its number."""
    broad = torch.full((1, 2, 3), 1 / 3, dtype=torch.float64)
    one, other = torch.cat([on(0), broad]), torch.cat([broad, on(1)])
    found = against_other_seeds({1: [one], 2: [other]}, {1: [["previous", BROAD]], 2: [[BROAD, "line"]]})
    alike = float(overlaps(on(0), broad)[0, 0])
    assert found[1]["own"] == pytest.approx(alike)
    assert found[1]["matched"] == pytest.approx(alike)  # key 0 with the broad head, and key 1 with the broad head
    assert found[1]["apart"] == pytest.approx(0.0)
