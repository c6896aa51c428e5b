"""The filters: hand-worked numbers, exact sets, ties, and every bad value in one line."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vitral.core.errors import UsageError
from vitral.decoding import (
    GREEDY,
    Sampling,
    distribution,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    penalise_repetition,
)

# Few different values, so that ties are common.
ROWS = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=7)


def row(*probabilities: float) -> torch.Tensor:
    """Logits of these probabilities, one row."""
    return torch.tensor([probabilities], dtype=torch.float64).log()


def kept(logits: torch.Tensor) -> list[int]:
    """The ids that have not been ruled out of a single row."""
    return [token for token, logit in enumerate(logits[0].tolist()) if logit > -math.inf]


def by_likelihood(values: list[float]) -> list[int]:
    """Ids from the likeliest down, lower ids first."""
    return sorted(range(len(values)), key=lambda token: (-values[token], token))


def test_temperature_squares_the_odds_at_one_half() -> None:
    # 1 : 3 becomes 1 : 9
    assert distribution(row(0.25, 0.75), Sampling(temperature=0.5)).tolist()[0] == pytest.approx([0.1, 0.9])


@pytest.mark.parametrize("temperature", [1e-40, 5e-324, 1e-300])
def test_a_tiny_temperature_is_the_limit(temperature: float) -> None:
    probabilities = distribution(torch.tensor([[1.0, 3.0, 2.999, 3.0]]), Sampling(temperature=temperature))
    assert probabilities.tolist() == [[0.0, 0.5, 0.0, 0.5]]


@pytest.mark.parametrize("temperature", [0.0, -0.0])
def test_greedy_takes_the_lowest_of_equal_tokens(temperature: float) -> None:
    logits = torch.tensor([[1.0, 5.0, 5.0], [0.0, 0.0, -1.0]])
    sampling = Sampling(temperature=temperature, top_k=3, top_p=0.1, min_p=1.0)
    assert distribution(logits, sampling).tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    assert sampling == GREEDY.model_copy(update={"top_k": 3, "top_p": 0.1, "min_p": 1.0})


@given(ROWS, st.data())
def test_top_k_keeps_exactly_k_and_lower_ids_of_equal_ones(values: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(values)))
    assert kept(keep_top_k(torch.tensor([values]), k)) == sorted(by_likelihood(values)[:k])


def test_ties_of_a_large_vocabulary_go_to_the_lower_ids() -> None:
    logits = torch.zeros(1, 5003)
    assert kept(keep_top_k(logits, 7)) == kept(keep_top_p(logits, 7 / 5003)) == list(range(7))


@given(ROWS, st.floats(1e-12, 1))
def test_top_p_keeps_the_smallest_sufficient_set(values: list[float], p: float) -> None:
    order = by_likelihood(values)
    masses = torch.softmax(torch.tensor(values, dtype=torch.float64), 0).tolist()
    size = next((n for n in range(1, len(order)) if sum(masses[i] for i in order[:n]) >= p * (1 - 1e-12)), len(order))
    assert kept(keep_top_p(torch.tensor([values], dtype=torch.float64), p)) == sorted(order[:size])


def test_top_p_of_one_keeps_even_what_rounding_hides() -> None:
    logits = torch.tensor([[0.0, -50.0, -700.0]])
    assert kept(keep_top_p(logits, 1.0)) == [0, 1, 2]
    assert kept(keep_top_p(logits, 1e-12)) == [0]


@given(ROWS, st.floats(0, 1))
def test_min_p_is_relative_to_the_likeliest(values: list[float], p: float) -> None:
    expected = [i for i, value in enumerate(values) if math.exp(value - max(values)) >= p * (1 - 1e-12)]
    assert kept(keep_min_p(torch.tensor([values], dtype=torch.float64), p)) == expected


def test_the_penalty_never_makes_a_repetition_likelier() -> None:
    logits = torch.tensor([[3.0, -3.0, 0.0, 3.0]])
    penalised = penalise_repetition(logits, torch.tensor([[0, 0, 1, 2]]), 1.5)
    assert penalised.tolist() == [[2.0, -4.5, 0.0, 3.0]]
    assert penalise_repetition(logits, torch.zeros(1, 0, dtype=torch.int64), 1.5).tolist() == logits.tolist()


@pytest.mark.parametrize("penalty", [1e-320, 1e308])
def test_a_penalty_that_overflows_is_refused(penalty: float) -> None:
    with pytest.raises(UsageError, match=r"^repetition_penalty: .* overflow"):
        penalise_repetition(torch.tensor([[50.0, -50.0]]), torch.tensor([[0, 1]]), penalty)


def test_forbidden_tokens_have_no_probability_and_the_rest_sum_to_one() -> None:
    assert distribution(row(0.5, 0.2, 0.3), forbidden=[0]).tolist()[0] == pytest.approx([0.0, 0.4, 0.6])


def test_the_order_of_the_filters() -> None:
    # The penalty comes before top-k: halving the logit of token 0 puts it third.
    logits = torch.tensor([[4.0, 3.0, 2.5, 0.0]])
    sampling = Sampling(repetition_penalty=2.0, top_k=2)
    assert distribution(logits, sampling, history=torch.tensor([[0]]))[0, 0] == 0
    # Temperature comes before top-p: at 0.5 the odds 3 : 1 become 9 : 1 and one token suffices for 0.9.
    assert distribution(row(0.75, 0.25), Sampling(temperature=0.5, top_p=0.9)).tolist() == [[1.0, 0.0]]
    # Top-k comes before top-p: of 0.4, 0.3, 0.3 two stay, and of 4/7 and 3/7 the first suffices for 0.5.
    assert distribution(row(0.4, 0.3, 0.3), Sampling(top_k=2, top_p=0.5)).tolist() == [[1.0, 0.0, 0.0]]


@given(ROWS, st.integers(1, 7), st.floats(0.01, 1), st.floats(0, 1), st.floats(0, 5))
def test_a_distribution_is_one(values: list[float], k: int, p: float, m: float, temperature: float) -> None:
    sampling = Sampling(temperature=temperature, top_k=min(k, len(values)), top_p=p, min_p=m)
    probabilities = distribution(torch.tensor([values, values[::-1]]), sampling)
    assert probabilities.sum(-1).tolist() == pytest.approx([1.0, 1.0])
    assert (probabilities >= 0).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_not_numbers_are_refused(bad: float) -> None:
    with pytest.raises(UsageError, match=r"^the model's logits are NaN or infinite"):
        distribution(torch.tensor([[0.0, 1.0], [0.0, bad]]))


def test_nothing_left_is_refused() -> None:
    with pytest.raises(UsageError, match="no token is left"):
        distribution(torch.zeros(1, 2), forbidden=[0, 1])
    with pytest.raises(UsageError, match="no token is left"):
        distribution(torch.full((1, 2), -math.inf))


@pytest.mark.parametrize("k", [4, 10**9])
def test_top_k_beyond_the_vocabulary_names_its_size(k: int) -> None:
    for sampling in (Sampling(top_k=k), Sampling(top_k=k, temperature=0)):
        with pytest.raises(UsageError, match=rf"^top_k: {k} is more than the vocabulary's 3 tokens"):
            distribution(torch.zeros(1, 3), sampling)
