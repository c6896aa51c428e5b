"""Exact predictors of generated tasks, computed from the tokens alone: the least loss that anything can have.

Each returns the prediction of every token from those before it. A model cannot be better on average than the Bayes
predictor, whose prior is the law by which the task was drawn.
"""

import numpy as np
from jaxtyping import Float, Int

from vitral.core.checked import Count, checked


@checked(first=True)
def repetition_nats(
    tokens: Int[np.ndarray, "batch time"], *, symbols: Count, shortest: Count, longest: Count
) -> Float[np.ndarray, "batch time"]:
    """The loss of the Bayes predictor of `RepeatedStrings` on every token, the first included, in nats.

    With a period P, a token is uniform before position P and certain from there on, so x_1 … x_t have the probability
    k^-min(t, P), or 0 if they do not have that period. With all periods equally likely,
    -log p(x_t | x_1 … x_t-1) = log S_t-1 - log S_t, where S_t is the sum of these probabilities over the periods.

    Args:
        tokens: sequences.
        symbols: different symbols.
        shortest: least period.
        longest: largest period.
    """
    from scipy.special import logsumexp

    rows, time = tokens.shape
    logs = np.zeros((longest - shortest + 1, rows, time + 1))
    for index, period in enumerate(range(shortest, longest + 1)):
        lengths = np.minimum(np.arange(time + 1), period)
        logs[index] = -lengths * np.log(symbols)
        wrong = np.zeros((rows, time + 1), dtype=bool)
        wrong[:, period + 1 :] = np.logical_or.accumulate(tokens[:, period:] != tokens[:, :-period], axis=1)
        logs[index][wrong] = -np.inf
    evidence = np.asarray(logsumexp(logs, axis=0))
    return evidence[:, :-1] - evidence[:, 1:]


@checked(first=True)
def count_nats(
    states: Int[np.ndarray, "batch time"], *, symbols: Count, concentration: float
) -> Float[np.ndarray, "batch targets"]:
    """The loss of (n_j + c) / (t + k c) on every symbol after the first, where n_j counts how often j came so far."""
    predicted = chain_predictions(states[:, :-1], symbols=symbols, concentration=concentration)["unigram"]
    return -np.log(np.take_along_axis(predicted, states[:, 1:, None], axis=2)[..., 0])


@checked(first=True)
def chain_predictions(
    states: Int[np.ndarray, "batch time"], *, symbols: Count, concentration: float
) -> dict[str, Float[np.ndarray, "batch time symbols"]]:
    """Predictions of the state after each, of a Markov chain with unknown transitions.

    Args:
        states: of the chains, from 0 to symbols - 1.
        symbols: number of states.
        concentration: c of the Dirichlet prior of a row.

    Returns:
        `bigram`: the Bayes predictor (n_ij + c) / (n_i + k c), where n_ij counts how often j came after i so far.
        `unigram`: (n_j + c) / (t + k c), where n_j counts how often j came among the t states so far. `uniform`: 1/k.
    """
    rows, time = states.shape
    every = np.arange(rows)
    pairs, singles = np.zeros((rows, symbols, symbols)), np.zeros((rows, symbols))
    found = {name: np.full((rows, time, symbols), 1 / symbols) for name in ("bigram", "unigram", "uniform")}
    for place in range(time):
        now = states[:, place]
        singles[every, now] += 1
        if place:
            pairs[every, states[:, place - 1], now] += 1
        for name, counts in (("bigram", pairs[every, now]), ("unigram", singles)):
            found[name][:, place] = (counts + concentration) / (counts.sum(axis=1) + symbols * concentration)[:, None]
    return found
