"""Overlap of heads beside heads of other models: cases worked by hand, and the rows that are kept of a model."""

import json

import numpy as np
import pytest
import torch

from vitral.core.streams import numpy_stream
from vitral.inspection.attention import BROAD, entropies, overlap, overlaps
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


def test_a_model_without_attention_has_no_rows() -> None:
    model = Transformer(ModelConfig.parse(MODEL | {"attention": "none"}), 13).eval()
    kept = attention_rows(model, torch.zeros(2, 11, dtype=torch.int64), 4)
    assert rows_of(kept) == []


def test_overlap_is_that_of_the_heads_of_a_layer() -> None:
    weights = numpy_stream(2, "weights").dirichlet(np.ones(6), size=(3, 6))
    weights = torch.from_numpy(weights)
    found = overlaps(weights, weights)
    assert found.diagonal().tolist() == pytest.approx([1.0] * 3)
    pairs = [float(found[pair]) for pair in ((0, 1), (0, 2), (1, 2))]
    assert float(overlap(weights[None], torch.ones(6, dtype=torch.bool))) == pytest.approx(np.mean(pairs))
    assert entropies(torch.full((1, 2, 4), 0.25)).tolist() == pytest.approx([np.log(4)])


def test_heads_of_other_seeds_by_hand() -> None:
    """All heads have entropy 0, so the first head of the other run takes every place.

    Run 1, keys 0 and 1: apart (0). With key 0 in place of the second head 1, in place of the first 0. Run 2: both heads
    on key 0; the first of run 1 is there too.
    """
    names = {1: [["previous", "line"]], 2: [["previous", BROAD]]}
    found = against_other_seeds({1: [on(0, 1)], 2: [on(0, 0)]}, names)
    assert found[1] == {"own": 0.0, "matched": 0.5, "apart": 0.0, "kinds": 2.0, "kinds_matched": 1.0}
    assert found[2] == {"own": 1.0, "matched": 1.0, "apart": 0.0, "kinds": 1.0, "kinds_matched": 1.0}


def test_the_matched_head_is_the_nearest_in_entropy() -> None:
    """The broad head of the other run takes the place of the broad one, whatever its number."""
    broad = torch.full((1, 2, 3), 1 / 3, dtype=torch.float64)
    one, other = torch.cat([on(0), broad]), torch.cat([broad, on(1)])
    found = against_other_seeds({1: [one], 2: [other]}, {1: [["previous", BROAD]], 2: [[BROAD, "line"]]})
    alike = float(overlaps(on(0), broad)[0, 0])
    assert found[1]["own"] == pytest.approx(alike)
    assert found[1]["matched"] == pytest.approx(alike)  # key 0 with the broad head, and key 1 with the broad head
    assert found[1]["apart"] == pytest.approx(0.0)


def test_one_head_or_one_run_has_no_others() -> None:
    assert against_other_seeds({1: [on(0, 1)]}, {1: [["line", "near"]]}) == {}
    assert against_other_seeds({1: [on(0)], 2: [on(1)]}, {1: [["line"]], 2: [["near"]]}) == {}
