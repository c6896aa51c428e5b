"""Whether an attention weight says how much a token matters to a prediction.

What matters is asked of the model itself: the token at an earlier position j is replaced, and the prediction at the
query i is compared with the one before, by the Kullback-Leibler divergence KL(before, after) in nats, mean over a few
replacements. Within each query the earlier positions are ranked by this effect and by a reading of the model, and the
ranks are correlated (Spearman):

- the attention weight on j, mean over the heads of a layer, and of the best head;
- attention rollout: the product over layers of (A + 1) / 2, with A the mean over heads (Abnar & Zuidema 2020);
- gradient × input: |x_j · ∂ ln p / ∂x_j|, with p of the most probable token, x_j the embedding (Simonyan et al. 2014);
- 1 / distance, which needs no model.

Near tokens matter more, and have more weight, whatever they are. So each reading has also its partial rank correlation
given the distance. Where all ranks are equal, a correlation is 0.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Real
from torch import Tensor

from vitral.core.streams import numpy_stream
from vitral.core.taps import Editor
from vitral.evaluation.intervals import mean_interval
from vitral.inspection.attention import LEAST_KEYS, weight_names
from vitral.inspection.numbers import rounded
from vitral.inspection.targets import passes, read_activation
from vitral.model import Transformer

QUERIES = 16
"""Query positions of a window, at most."""
REPLACEMENTS = 4
"""Tokens that take the place of each token, one after the other."""
TINY = 1e-6
"""Ranks that are those of the distance, but for rounding, have no partial correlation."""
Scores = Real[np.ndarray, "windows queries time"]
Plain = dict[str, Any]


def weight_relevance(
    model: Transformer, inputs: Int[Tensor, "windows time"], counts: Int[np.ndarray, " vocab"]
) -> Plain | None:
    """How well attention weights and other readings rank the earlier tokens by their effect on a prediction.

    Args:
        model: in evaluation mode, trained to predict the next token.
        inputs: windows of ids.
        counts: how often each token occurs in the text; replacements are drawn from these, without the token replaced.

    Returns:
        `windows`, `replacements` of each token, `queries` (their positions); `divergence`: the mean effect in nats;
        `distance`, `gradient`, and for each of `layers` `weight` and `rollout`: the agreement of this reading with the
        effect; `best_head`: `layer`, `head` and agreement of the head with the highest correlation on every second
        window, measured on the others, None without attention or with one window. An agreement has `correlation` and
        `given_distance`; all are {"mean", "low", "high"}, means over windows with 95 % Student intervals, which a
        single window has not. None where a window has fewer than three tokens, or the text only one token.
    """
    time = inputs.shape[1]
    if time < 3 or np.count_nonzero(counts) < 2:
        return None
    queries = np.unique(np.linspace(min(LEAST_KEYS, time - 1), time - 1, QUERIES).astype(int))
    effect = replacement_effects(model, inputs, counts, queries)
    heads, rollout = attention_readings(model, inputs, queries)
    best = None
    if len(inputs) > 1 and len(heads):
        of_heads = np.array([[correlations(head, effect, queries) for head in layer] for layer in heads])
        layer, head = divmod(int(of_heads[:, :, 0, ::2].mean(axis=-1).argmax()), of_heads.shape[1])
        best = {"layer": layer, "head": head} | _agreement(of_heads[layer, head, :, 1::2])

    def agreement(scores: Scores) -> Plain:
        return _agreement(correlations(scores, effect, queries))

    before = (np.arange(time) < queries[:, None]) / queries[:, None]  # 1 / their number, before each query
    return {
        "windows": len(inputs),
        "queries": queries.tolist(),
        "replacements": REPLACEMENTS,
        "divergence": _interval((effect * before).sum(axis=2).mean(axis=1)),
        "distance": agreement(np.broadcast_to(np.arange(time), effect.shape)),
        "gradient": agreement(gradient_times_input(model, inputs, queries)),
        "layers": [
            {"weight": agreement(layer.mean(axis=0)), "rollout": agreement(rolled)}
            for layer, rolled in zip(heads, rollout, strict=True)
        ],
        "best_head": best,
    }


def replacement_effects(
    model: Transformer, inputs: Int[Tensor, "windows time"], counts: Int[np.ndarray, " vocab"], queries: np.ndarray
) -> Scores:
    """KL of the prediction at each query when the token at each position is replaced, in nats."""

    def predictions(rows: Tensor) -> Tensor:
        return read_activation(model, rows, "logits", lambda seen: seen[:, queries].cpu().double().log_softmax(dim=-1))

    before, stream, effect = predictions(inputs), numpy_stream(0, "relevance"), []
    for position, tokens in enumerate(inputs.T):
        laws = (np.where(np.arange(len(counts)) == token, 0, counts) for token in tokens.tolist())
        drawn = np.array([stream.choice(len(counts), REPLACEMENTS, p=law / law.sum()) for law in laws])
        apart = []
        for new in torch.from_numpy(drawn.T).to(inputs.device):
            changed = inputs.clone()
            changed[:, position] = new
            apart.append((before.exp() * (before - predictions(changed))).sum(dim=-1))
        effect.append(torch.stack(apart).mean(dim=0))
    return torch.stack(effect, dim=-1).numpy()


def attention_readings(
    model: Transformer, inputs: Int[Tensor, "windows time"], queries: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The weights [layers, heads, windows, queries, time], and the rollout to each layer; empty without attention."""
    names, weights, rolled = weight_names(model), list[Tensor](), list[Tensor]()
    if not names:
        return np.empty(0), np.empty(0)
    for _rows, seen in passes(model, inputs, names):
        layers = torch.stack([seen[name].transpose(0, 1).cpu().double() for name in names])
        until = [torch.eye(inputs.shape[1], dtype=torch.float64)]
        for mean in layers.mean(dim=1):
            until.append((mean @ until[-1] + until[-1]) / 2)
        weights.append(layers[:, :, :, queries])
        rolled.append(torch.stack(until[1:])[:, :, queries])
    return torch.cat(weights, dim=2).numpy(), torch.cat(rolled, dim=1).numpy()


def gradient_times_input(model: Transformer, inputs: Int[Tensor, "windows time"], queries: np.ndarray) -> Scores:
    """|x · ∂ ln p / ∂x| of the embedding at each position, with p of the most probable token at each query."""
    readings = []
    for row in inputs[:, None]:

        def most_probable(embedded: Tensor, row: Tensor = row) -> Tensor:
            logits = model(row, tap=Editor({"embed": lambda _value: embedded}))
            return logits[0, queries].log_softmax(dim=-1).amax(dim=-1)

        embedded = model.trace(row, ["embed"])["embed"].clone()
        slopes: Any = torch.autograd.functional.jacobian(most_probable, embedded)
        readings.append((slopes * embedded).sum(dim=-1).abs()[:, 0].cpu().numpy())
    return np.stack(readings)


def correlations(scores: Scores, effect: Scores, queries: np.ndarray) -> Float[np.ndarray, "two windows"]:
    """Rank correlation of the scores with the effect over the positions before a query, and that given the distance.

    Means over the queries of each window.
    """
    by_query = []
    for at, query in enumerate(queries):
        own, other = (_ranks(each[:, at, :query]) for each in (scores, effect))
        near = _ranks(np.arange(query)[None])
        together, one, two = ((a * b).sum(axis=-1) for a, b in ((own, other), (own, near), (other, near)))
        left = np.sqrt(((1 - one**2) * (1 - two**2)).clip(0))
        by_query.append([together, np.divide(together - one * two, left, out=np.zeros_like(left), where=left > TINY)])
    return np.mean(by_query, axis=0)


def _ranks(values: Real[np.ndarray, "windows keys"]) -> Float[np.ndarray, "windows keys"]:
    """Ranks less their mean, of length 1; zeros where all are equal."""
    from scipy.stats import rankdata

    ranks = rankdata(values, axis=-1) - (values.shape[-1] + 1) / 2
    length = np.linalg.norm(ranks, axis=-1, keepdims=True)
    return ranks / np.where(length > 0, length, 1)


def _agreement(both: Float[np.ndarray, "two windows"]) -> Plain:
    return {"correlation": _interval(both[0]), "given_distance": _interval(both[1])}


def _interval(values: Float[np.ndarray, " windows"]) -> Plain:
    if not np.isfinite(values).all():  # of a model that diverged
        return dict.fromkeys(("mean", "low", "high"))
    found = mean_interval(values.tolist())
    return rounded({"mean": found.mean, "low": found.low, "high": found.high})
