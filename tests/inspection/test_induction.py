"""Induction heads, and exact predictors against sums over all sequences of small tasks."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from copier import SYMBOLS, TIME, copier
from torch import Tensor

from vitral.core.streams import numpy_stream
from vitral.data.tasks import MarkovChains
from vitral.inspection.induction import (
    chain_distances,
    chain_predictions,
    induction_ablation,
    induction_scores,
    occurrences,
    repetition_nats,
)
from vitral.model import ModelConfig, Transformer


@pytest.fixture
def rows() -> tuple[Tensor, Tensor]:
    """Strings without a symbol twice, so that the earlier occurrence is unique, with periods of 4, 5 and 6."""
    generator = torch.Generator().manual_seed(5)
    periods = torch.tensor([4, 5, 6] * 8)
    strings = [torch.randperm(SYMBOLS, generator=generator)[:period] for period in periods.tolist()]
    return torch.stack([string.repeat(5)[: TIME + 1] for string in strings]), periods


def test_the_scores_of_a_constructed_copier_are_one(rows: tuple[Tensor, Tensor]) -> None:
    measured = induction_scores(copier(), *rows)
    (first, idle), (second, _) = (layer["heads"] for layer in measured["layers"])
    assert first["previous"] == pytest.approx(1.0, abs=1e-6)
    assert idle["previous"] == pytest.approx(measured["uniform"]["previous"], rel=1e-5)
    # In the third occurrence two places fit equally well, and both count.
    assert second["prefix"] == pytest.approx(1.0, abs=1e-6)
    assert idle["prefix"] == pytest.approx(measured["uniform"]["prefix"], rel=1e-5)
    assert measured["losses"]["second"] == pytest.approx(0.0, abs=1e-6)
    assert measured["losses"]["later"] == pytest.approx(0.0, abs=1e-6)
    assert measured["losses"]["first"] > 1.0


def test_without_the_previous_token_head_the_copier_copies_nothing(rows: tuple[Tensor, Tensor]) -> None:
    measured = induction_ablation(copier(), *rows)
    assert measured["prefix"] == pytest.approx(1.0, abs=1e-6)
    assert measured["without"]["others"]["increase"] == pytest.approx(0.0, abs=1e-6)
    assert measured["without"]["others"]["prefix"] == pytest.approx(1.0, abs=1e-6)
    assert measured["without"]["previous"]["increase"] > 1.0
    assert measured["without"]["previous"]["prefix"] < 0.5
    assert measured["without"]["induction"]["increase"] > 1.0


def test_occurrences_by_hand() -> None:
    measured = occurrences(torch.tensor([2]), 6)
    assert {name: each[0].tolist() for name, each in measured.items()} == {
        "first": [True, False, False, False, False, False],  # token 1; token 2 begins the second occurrence
        "second": [False, False, True, False, False, False],
        "later": [False, False, False, True, True, True],
    }


def test_the_loss_of_a_repeated_string_is_that_of_all_sequences_counted() -> None:
    law: dict[tuple[int, ...], float] = {}
    for period in (2, 3):
        for string in product(range(2), repeat=period):
            row = tuple(string[position % period] for position in range(6))
            law[row] = law.get(row, 0) + 0.5 / 2**period
    rows = np.array(list(law))
    measured = repetition_nats(rows, symbols=2, shortest=2, longest=3)
    for row, nats in zip(law, measured, strict=True):
        for position in range(6):
            before = sum(share for other, share in law.items() if other[:position] == row[:position])
            upto = sum(share for other, share in law.items() if other[: position + 1] == row[: position + 1])
            assert nats[position] == pytest.approx(-np.log(upto / before), abs=1e-12)


def test_the_prediction_of_a_chain_by_hand() -> None:
    measured = chain_predictions(np.array([[0, 1, 0, 1, 1, 0]]), symbols=2, concentration=1.0)
    bigram = [[1 / 2, 1 / 2], [1 / 2, 1 / 2], [1 / 3, 2 / 3], [2 / 3, 1 / 3], [1 / 2, 1 / 2], [1 / 4, 3 / 4]]
    assert measured["bigram"][0] == pytest.approx(np.array(bigram))
    unigram = [[2 / 3, 1 / 3], [2 / 4, 2 / 4], [3 / 5, 2 / 5], [3 / 6, 3 / 6], [3 / 7, 4 / 7], [4 / 8, 4 / 8]]
    assert measured["unigram"][0] == pytest.approx(np.array(unigram))
    assert np.all(measured["uniform"] == 1 / 2)


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
    measured = chain_distances(ignorant, tokens, STATES, concentration=0.5)
    assert measured["losses"]["model"] == pytest.approx(math.log(VOCAB), rel=1e-5)
    assert measured["losses"]["uniform"] == pytest.approx(math.log(3), rel=1e-5)
    assert measured["divergence"]["uniform"] == pytest.approx(math.log(VOCAB / 3), rel=1e-5)
    states = np.argsort(STATES.numpy())[np.searchsorted(np.sort(STATES.numpy()), tokens.numpy())]
    exact = chain_predictions(states[:, :-1], symbols=3, concentration=0.5)["bigram"]
    entropy = -(exact * np.log(exact)).sum(axis=2).mean()
    assert measured["divergence"]["bigram"] == pytest.approx(math.log(VOCAB) - entropy, rel=1e-5)
    chosen = np.take_along_axis(exact, states[:, 1:, None], axis=2)[..., 0]
    assert measured["losses"]["bigram"] == pytest.approx(-np.log(chosen).mean(), rel=1e-5)
    assert measured["nats"]["bigram"] == pytest.approx((-np.log(chosen)).mean(axis=0), rel=1e-5)
    assert measured["losses"]["bigram"] < measured["losses"]["unigram"]
