"""Drawing: the right frequencies, no impossible token, and streams that depend on nothing but their key."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import chi2

from vitral.decoding import Sampling, choose, distribution, uniforms

ALMOST_ONE = float(np.nextafter(1.0, 0.0))


def test_frequencies_follow_the_probabilities() -> None:
    draws = 100_000
    logits = torch.tensor([[0.3, -1.2, 2.0, 0.0, 1.1, -0.4, 0.9]])
    for sampling in (Sampling(), Sampling(temperature=0.7, top_k=5), Sampling(temperature=1.3, top_p=0.9)):
        probabilities = distribution(logits, sampling)
        numbers = torch.from_numpy(uniforms(11, 0).random(draws))
        counts = torch.bincount(choose(probabilities.expand(draws, -1), numbers), minlength=7).double()
        possible = probabilities[0] > 0
        expected = probabilities[0][possible] * draws
        statistic = float(((counts[possible] - expected) ** 2 / expected).sum())
        assert counts[~possible].sum() == 0
        assert chi2.sf(statistic, int(possible.sum()) - 1) > 1e-4


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9), st.sampled_from([0.0, 0.5, ALMOST_ONE]))
def test_a_token_of_probability_zero_is_never_chosen(masses: list[float], number: float) -> None:
    assume(sum(masses) > 1e-300)  # below, float64 has too few digits left
    token = int(choose(torch.tensor([masses], dtype=torch.float64), torch.tensor([number], dtype=torch.float64)))
    assert masses[token] > 0


@given(st.floats(1e-300, 1e300))
def test_no_total_is_reached_by_a_number_below_one(total: float) -> None:
    masses = torch.tensor([[total, 0.0]], dtype=torch.float64)
    assert int(choose(masses, torch.tensor([ALMOST_ONE], dtype=torch.float64))) == 0


@given(st.integers(1, 400), st.integers(0, 5))
def test_the_last_number_gives_the_last_possible_token(count: int, impossible: int) -> None:
    # Sums of 1/count end a little above or below 1: no number may fall off the end.
    masses = torch.tensor([[1 / count] * count + [0.0] * impossible], dtype=torch.float64)
    assert int(choose(masses, torch.tensor([ALMOST_ONE], dtype=torch.float64))) == count - 1


def test_boundaries_belong_to_the_next_token() -> None:
    masses = torch.tensor([[0.0, 0.25, 0.0, 0.5, 0.25]]).expand(5, -1)
    numbers = torch.tensor([0.0, 0.25, 0.5, 0.75, ALMOST_ONE], dtype=torch.float64)
    assert choose(masses, numbers).tolist() == [1, 3, 3, 4, 4]


def test_streams_are_keyed_by_seed_and_sample() -> None:
    first = uniforms(5, 2).random(4)
    assert uniforms(5, 2).random(4) == pytest.approx(first, abs=0)
    assert np.array([uniforms(5, 2).random() for _ in range(1)]) == first[:1]
    assert not np.isin(uniforms(5, 3).random(4), first).any()
    assert not np.isin(uniforms(6, 2).random(4), first).any()
