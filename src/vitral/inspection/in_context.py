"""Learning in context: how far a model's predictions of a Markov chain are from exact predictors of it.

The chain of every row is new, so what a model knows of its transitions comes from the row itself. The Bayes predictor
counts pairs of states; other predictors count single states, or nothing (`vitral.inspection.predictors`).

Legend of axes: batch = rows of tokens, time = positions, vocab = tokens of the vocabulary.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitral.core.checked import checked
from vitral.inspection.numbers import number
from vitral.inspection.predictors import chain_predictions
from vitral.inspection.targets import rows_at_once
from vitral.model import Transformer

PREDICTORS = ("bigram", "unigram", "uniform")


@checked(first=True)
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
    inputs, targets = tokens[:, :-1].cpu().numpy(), tokens[:, 1:].cpu().numpy()
    known = states.cpu().numpy()
    order = np.argsort(known)
    index = order[np.searchsorted(known, tokens.cpu().numpy(), sorter=order)]
    exact = chain_predictions(index[:, :-1], symbols=len(known), concentration=concentration)
    own = _log_probabilities(model, torch.from_numpy(inputs).to(tokens.device))
    at = np.take_along_axis
    nats = {"model": -at(own, targets[..., None], axis=2)[..., 0]}
    nats |= {name: -np.log(at(exact[name], index[:, 1:, None], axis=2)[..., 0]) for name in PREDICTORS}
    logs = own[..., known]
    divergence = {name: float((exact[name] * (np.log(exact[name]) - logs)).sum(axis=2).mean()) for name in PREDICTORS}
    return {
        "losses": {name: number(float(each.mean())) for name, each in nats.items()},
        "nats": {name: [number(value) for value in each.mean(axis=0).tolist()] for name, each in nats.items()},
        "divergence": {name: number(value) for name, value in divergence.items()},
    }


def _log_probabilities(model: Transformer, inputs: Int[Tensor, "batch time"]) -> Float[np.ndarray, "batch time vocab"]:
    found = []
    for rows in rows_at_once(model, inputs):
        with torch.inference_mode():
            found.append(model(inputs[rows]).double().log_softmax(dim=-1).cpu().numpy())
    return np.concatenate(found)
