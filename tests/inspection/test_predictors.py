"""Exact predictors: against sums over all sequences of small tasks, and by hand."""

from itertools import product

import numpy as np
import pytest
from scipy import integrate

from vitral.inspection import chain_predictions, repetition_nats


def test_the_loss_of_a_repeated_string_is_that_of_all_sequences_counted() -> None:
    law: dict[tuple[int, ...], float] = {}
    for period in (2, 3):
        for string in product(range(2), repeat=period):
            row = tuple(string[place % period] for place in range(6))
            law[row] = law.get(row, 0) + 0.5 / 2**period
    rows = np.array(list(law))
    found = repetition_nats(rows, symbols=2, shortest=2, longest=3)
    for row, nats in zip(law, found, strict=True):
        for place in range(6):
            before = sum(share for other, share in law.items() if other[:place] == row[:place])
            upto = sum(share for other, share in law.items() if other[: place + 1] == row[: place + 1])
            assert nats[place] == pytest.approx(-np.log(upto / before), abs=1e-12)


def test_the_prediction_of_a_chain_by_hand() -> None:
    found = chain_predictions(np.array([[0, 1, 0, 1, 1, 0]]), symbols=2, concentration=1.0)
    bigram = [[1 / 2, 1 / 2], [1 / 2, 1 / 2], [1 / 3, 2 / 3], [2 / 3, 1 / 3], [1 / 2, 1 / 2], [1 / 4, 3 / 4]]
    assert found["bigram"][0] == pytest.approx(np.array(bigram))
    unigram = [[2 / 3, 1 / 3], [2 / 4, 2 / 4], [3 / 5, 2 / 5], [3 / 6, 3 / 6], [3 / 7, 4 / 7], [4 / 8, 4 / 8]]
    assert found["unigram"][0] == pytest.approx(np.array(unigram))
    assert np.all(found["uniform"] == 1 / 2)


def test_the_prediction_of_a_chain_is_the_integral_over_all_rows() -> None:
    """With two states the row of state 0 is (p, 1 - p), and p has the density of a beta distribution."""
    seen, concentration = [0, 0, 1, 0, 0, 0], 0.7

    def joint(p: float, extra: int = 0) -> float:
        stays, leaves = 3 + extra, 1
        return p ** (stays + concentration - 1) * (1 - p) ** (leaves + concentration - 1)

    expected = integrate.quad(joint, 0, 1, args=(1,))[0] / integrate.quad(joint, 0, 1)[0]
    found = chain_predictions(np.array([seen]), symbols=2, concentration=concentration)
    assert found["bigram"][0, -1, 0] == pytest.approx(expected, rel=1e-6)
