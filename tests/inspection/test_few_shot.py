"""Examples in a prompt: a model that copies by construction follows them, one without attention does not."""

import numpy as np
import pytest
from copier import SYMBOLS, TIME, copier

from vitral.data import Split
from vitral.inspection.positions import few_shot_losses
from vitral.model import ModelConfig, Transformer

LENGTH = 4


@pytest.fixture
def passages() -> Split:
    """Passages of four different symbols, each a segment of its own."""
    generator = np.random.default_rng(3)
    tokens = np.concatenate([generator.permutation(SYMBOLS)[:LENGTH] for _ in range(200)]).astype(np.uint8)
    begins = np.arange(0, len(tokens), LENGTH)
    return Split(tokens, np.stack([begins, begins + LENGTH], axis=1))


def test_a_copier_follows_the_nearest_examples(passages: Split) -> None:
    measured = few_shot_losses(copier(), passages, length=LENGTH, passages=50, most_examples=3)
    assert measured["passages"] == 50
    same, shuffled, other = (measured["losses"][kind] for kind in ("same", "shuffled", "other"))
    assert same[0] == shuffled[0] == other[0] == pytest.approx(other[3])
    assert same[3] < same[1] < same[0]
    assert same[3] == pytest.approx(0.0, abs=1e-3)  # every symbol of the passage is followed by the right one
    assert shuffled[3] > same[3] + 0.5
    assert measured["effects"]["same"][3]["increase"] == pytest.approx(same[3] - other[3], rel=1e-5)


def test_a_model_without_attention_gains_nothing(passages: Split) -> None:
    config = {"context_length": TIME, "d_model": 8, "num_layers": 1, "num_heads": 2, "attention": "none"}
    model = Transformer(ModelConfig.parse(config), SYMBOLS).eval()
    measured = few_shot_losses(model, passages, length=LENGTH, passages=20, most_examples=3)
    assert [one["increase"] for one in measured["effects"]["same"]] == pytest.approx([0.0] * 4, abs=1e-6)
