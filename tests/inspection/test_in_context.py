"""Learning in context: divergences of a model without knowledge, and of one that is the Bayes predictor's equal."""

import math

import numpy as np
import pytest
import torch

from vitral.core.streams import numpy_stream
from vitral.data.tasks import MarkovChains
from vitral.inspection import chain_distances, chain_predictions
from vitral.model import ModelConfig, Transformer

VOCAB = 5
STATES = torch.tensor([3, 1, 2])  # the token of each state


@pytest.fixture
def tokens() -> torch.Tensor:
    task = MarkovChains(symbols=3, length=9, concentration=0.5)
    return STATES[torch.from_numpy(task.draw(numpy_stream(4, "test"), 40))]


def model() -> Transformer:
    config = {"context_length": 8, "d_model": 8, "num_layers": 1, "num_heads": 2}
    return Transformer(ModelConfig.parse(config), VOCAB).eval()


def test_a_model_of_equal_logits_is_as_far_as_the_vocabulary_is_larger(tokens: torch.Tensor) -> None:
    ignorant = model()
    with torch.no_grad():
        ignorant.get_parameter("head.weight").zero_()
    found = chain_distances(ignorant, tokens, STATES, concentration=0.5)
    assert found["losses"]["model"] == pytest.approx(math.log(VOCAB), rel=1e-5)
    assert found["losses"]["uniform"] == pytest.approx(math.log(3), rel=1e-5)
    assert found["divergence"]["uniform"] == pytest.approx(math.log(VOCAB / 3), rel=1e-5)
    states = np.argsort(STATES.numpy())[np.searchsorted(np.sort(STATES.numpy()), tokens.numpy())]
    exact = chain_predictions(states[:, :-1], symbols=3, concentration=0.5)["bigram"]
    entropy = -(exact * np.log(exact)).sum(axis=2).mean()
    assert found["divergence"]["bigram"] == pytest.approx(math.log(VOCAB) - entropy, rel=1e-5)
    chosen = np.take_along_axis(exact, states[:, 1:, None], axis=2)[..., 0]
    assert found["losses"]["bigram"] == pytest.approx(-np.log(chosen).mean(), rel=1e-5)
    assert found["nats"]["bigram"] == pytest.approx((-np.log(chosen)).mean(axis=0), rel=1e-5)
    assert found["losses"]["bigram"] < found["losses"]["unigram"]
