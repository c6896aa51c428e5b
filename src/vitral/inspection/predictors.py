"""Exact predictors of generated tasks, computed from the tokens alone: the least loss that anything can have.

Each returns the prediction of every token from those before it. A model cannot be better on average than the Bayes
predictor, whose prior is the law by which the task was drawn.


Learning in context: how far a model's predictions of a Markov chain are from exact predictors of it.

The chain of every row is new, so what a model knows of its transitions comes from the row itself. The Bayes predictor
counts pairs of states; other predictors count single states, or nothing (`vitral.inspection.predictors`).

Legend of axes: batch = rows of tokens, time = positions, vocab = tokens of the vocabulary.
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from vitral.inspection.numbers import rounded
from vitral.inspection.targets import read_activation
from vitral.model import Transformer


def repetition_nats(
    tokens: Int[np.ndarray, "batch time"], *, symbols: int, shortest: int, longest: int
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


def count_nats(
    states: Int[np.ndarray, "batch time"], *, symbols: int, concentration: float
) -> Float[np.ndarray, "batch targets"]:
    """The loss of (n_j + c) / (t + k c) on every symbol after the first, where n_j counts how often j came so far."""
    predicted = chain_predictions(states[:, :-1], symbols=symbols, concentration=concentration)["unigram"]
    return -np.log(np.take_along_axis(predicted, states[:, 1:, None], axis=2)[..., 0])


def chain_predictions(
    states: Int[np.ndarray, "batch time"], *, symbols: int, concentration: float
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
    seen = np.eye(symbols)[states]
    moves = np.pad(seen[:, :-1, :, None] * seen[:, 1:, None, :], ((0, 0), (1, 0), (0, 0), (0, 0))).cumsum(axis=1)
    from_here = (seen[..., None] * moves).sum(axis=2)
    counts = {"bigram": from_here, "unigram": seen.cumsum(axis=1)}
    shares = {
        name: (each + concentration) / (each.sum(axis=-1, keepdims=True) + symbols * concentration)
        for name, each in counts.items()
    }
    return {**shares, "uniform": np.full_like(seen, 1 / symbols)}


PREDICTORS = ("bigram", "unigram", "uniform")


def chain_distances(
    model: Transformer, tokens: Int[Tensor, "batch time"], states: Int[Tensor, " states"], *, concentration: float
) -> dict[str, Any]:
    """Losses of a model and of the exact predictors on the same targets, and how far the model is from each.

    Args:
        model: in evaluation mode.
        tokens: rows, each of a chain of its own; the last token of each is only a target.
        states: the token of each state.
        concentration: of the Dirichlet distribution from which the rows of the transition matrices were drawn.

    Returns:
        `losses` in nats per token, of "model" and of each of `PREDICTORS`; `nats`, the same at every position, each a
        list; `divergence`, for each predictor P the mean over targets of KL(P, model) in nats.
    """
    targets = tokens[:, 1:].cpu().numpy()
    known = states.cpu().numpy()
    order = np.argsort(known)
    index = order[np.searchsorted(known, tokens.cpu().numpy(), sorter=order)]
    exact = chain_predictions(index[:, :-1], symbols=len(known), concentration=concentration)
    own = read_activation(model, tokens[:, :-1], "logits", lambda seen: seen.double().log_softmax(dim=-1)).numpy()
    at = np.take_along_axis
    nats = {"model": -at(own, targets[..., None], axis=2)[..., 0]}
    nats |= {name: -np.log(at(exact[name], index[:, 1:, None], axis=2)[..., 0]) for name in PREDICTORS}
    logs = own[..., known]
    divergence = {name: float((exact[name] * (np.log(exact[name]) - logs)).sum(axis=2).mean()) for name in PREDICTORS}
    return rounded(
        {
            "losses": {name: float(each.mean()) for name, each in nats.items()},
            "nats": {name: each.mean(axis=0).tolist() for name, each in nats.items()},
            "divergence": divergence,
        }
    )
