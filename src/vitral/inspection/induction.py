"""Induction: completing a repeated string by finding the current token earlier and reading the token after it.

Olsson et al. (2022) describe it as the work of two heads. A previous-token head of an earlier layer writes into every
position which token came before it; an induction head of a later layer finds by that the position after the earlier
occurrence of the current token. Their scores are weights of attention:

- previous-token score: the weight on the position before;
- prefix-matching score: the weight on the positions right after the places, whole periods back, of the current token.

Exact predictors of generated tasks, computed from the tokens alone, have the least loss that anything can have. Each
returns the prediction of every token from those before it. A model cannot be better on average than the Bayes
predictor, whose prior is the law by which the task was drawn. The chain of every row of `MarkovChains` is new, so what
a model knows of its transitions comes from the row itself. The Bayes predictor counts pairs of states; other predictors
count single states, or nothing.

Legend of axes: batch = rows of tokens, time = positions, vocab = tokens of the vocabulary.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.language import N_
from vitral.core.taps import SILENT, Tap
from vitral.inspection.ablation import activation_means, effect, replace_activations
from vitral.inspection.attention import key_shares, patient_queries
from vitral.inspection.numbers import number, rounded
from vitral.inspection.targets import Scored, Tokens, loss_by_target, read_activation
from vitral.model import Transformer

OCCURRENCES = ("first", "second", "later")
"""Of a string: its targets in the first occurrence; in the second, without its first token; in later ones."""


def periods_of(tokens: Tokens, shortest: int, longest: int) -> Int[Tensor, " batch"]:
    """The least period of each row, between two limits.

    Raises:
        UsageError: a row has no such period.
    """
    rows = tokens.numpy()
    fits = np.array([(rows[:, size:] == rows[:, :-size]).all(axis=1) for size in range(shortest, longest + 1)])
    if not fits.any(axis=0).all():
        raise UsageError("induction: a row has no period from {least} to {most}", least=shortest, most=longest)
    return torch.from_numpy(shortest + fits.argmax(axis=0))


def occurrences(periods: Int[Tensor, " batch"], time: int) -> dict[str, Bool[Tensor, "batch time"]]:
    """Which targets are in which occurrence of the string; target t is token t + 1 of the row.

    The first token of the second occurrence is in none: nothing tells that the string ends there.
    """
    position, size = torch.arange(1, time + 1)[None], periods[:, None]
    return {
        "first": position < size,
        "second": (position > size) & (position < 2 * size),
        "later": position >= 2 * size,
    }


def induction_scores(model: Transformer, tokens: Tokens, periods: Int[Tensor, " batch"]) -> dict[str, Any]:
    """Losses by occurrence of the string, and the scores of every head.

    Args:
        model: in evaluation mode.
        tokens: rows of repeated strings, the last token of each only a target.
        periods: of each row.

    Returns:
        `losses`: for each of `OCCURRENCES` in nats per token. `layers`: for each block `heads`, each with `previous`
        and `prefix`; empty without attention. `uniform`: the two scores of a head with equal weights on all keys.
    """
    scored = Scored(tokens[:, :-1], tokens[:, 1:], sampled=True)
    where = occurrences(periods, tokens.shape[1] - 1)
    nats = loss_by_target(model, scored)
    losses = {name: number(nats[chosen].mean()) for name, chosen in where.items()}
    return {"losses": losses, **_head_scores(model, scored.inputs, periods)}


def _head_scores(
    model: Transformer, inputs: Tokens, periods: Int[Tensor, " batch"], tap: Tap = SILENT
) -> dict[str, Any]:
    """The scores of uniform attention and of every head, while a tap edits the model."""
    if model.mask is None or not len(model.blocks):
        return {"uniform": None, "layers": []}
    time = inputs.shape[1]
    visible = model.mask.allowed(time, time)
    position = torch.arange(time)
    back, size = position[:, None] - position, periods[:, None, None]
    # One position after a place that is whole periods before the query.
    matched = ((back + 1) % size == 0) & (back + 1 >= size) & (position >= 1)
    previous = (visible & (back == 1)).expand(len(inputs), -1, -1)
    keys = {"previous": previous, "prefix": visible & matched}
    queries = {"previous": patient_queries(visible), "prefix": torch.ones(time, dtype=torch.bool)}
    return key_shares(model, inputs, keys, queries, tap)


def induction_ablation(model: Transformer, tokens: Tokens, periods: Int[Tensor, " batch"]) -> dict[str, Any]:
    """The loss at repeated targets without the previous-token head, and without each other head of its layer.

    The heads are chosen by their scores on the first half of the rows, and measured on the other half. A head is
    replaced by its mean output over these rows, which keeps what it adds everywhere and removes what depends on the
    text. The previous-token head is that of the highest score in a layer before the last (of one layer, in that one);
    the induction head is that of the highest prefix-matching score.

    Args:
        model: in evaluation mode, with attention.
        tokens: as for `induction_scores`.
        periods: of each row.

    Returns:
        `without`: for "previous", "others" (the mean over the other heads of that layer, the expectation of one drawn
        at random; None for a single head) and "induction", each `increase`, in nats per token, and `prefix`, the
        prefix-matching score of the induction head then; `prefix`: that score in the whole model.

    Raises:
        UsageError: the model has no attention.
    """
    if model.mask is None or not len(model.blocks):
        raise UsageError(N_("induction: the model has no attention, so no head can be ablated"))
    half = len(tokens) // 2
    layers = _head_scores(model, tokens[:half, :-1], periods[:half])["layers"]
    previous = _highest(layers[:-1] or layers, "previous")
    induction = _highest(layers, "prefix")
    rest, sizes = Scored(tokens[half:, :-1], tokens[half:, 1:], sampled=True), periods[half:]
    position = torch.arange(1, tokens.shape[1])[None]
    repeated = position > sizes[:, None]

    def look(layer: int | None = None, head: int | None = None) -> tuple[Tensor, float]:
        """The loss of each row on repeated targets, and the induction head's score, without a head."""
        tap: Tap = SILENT
        if layer is not None and head is not None:
            name = f"blocks.{layer}.attn.z"
            tap = replace_activations([name], activation_means(model, rest.inputs, [name]), [head])
        nats = loss_by_target(model, rest, tap)
        scores = _head_scores(model, rest.inputs, sizes, tap)["layers"][induction[0]]["heads"][induction[1]]
        return (nats * repeated).sum(dim=1) / repeated.sum(dim=1), scores["prefix"]

    whole, prefix = look()

    def without(layer: int, head: int) -> dict[str, Any]:
        rows, score = look(layer, head)
        return {"increase": effect(whole, rows, sampled=False)["increase"], "prefix": score}

    others = [without(previous[0], head) for head in range(model.config.num_heads) if head != previous[1]]
    mean = {key: number(float(np.mean([one[key] for one in others]))) for key in ("increase", "prefix")}
    return {
        "prefix": prefix,
        "without": {
            "previous": without(*previous),
            "others": mean if others else None,
            "induction": without(*induction),
        },
    }


def _highest(layers: list[dict[str, Any]], score: str) -> tuple[int, int]:
    """Layer and head of the highest score."""
    heads = [(layer, head) for layer, each in enumerate(layers) for head in range(len(each["heads"]))]
    return max(heads, key=lambda at: layers[at[0]]["heads"][at[1]][score])


# ---------------------------------------------------------------- exact predictors


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
    model: Transformer, tokens: Tokens, states: Int[Tensor, " states"], *, concentration: float
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
