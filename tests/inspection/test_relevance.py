"""Relevance of a weight: hand-made models whose answer is known, and every reading against slow plain arithmetic."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import rankdata, t

from vitral.core.streams import numpy_stream
from vitral.core.taps import Editor
from vitral.inspection.relevance import (
    REPLACEMENTS,
    attention_readings,
    correlations,
    gradient_times_input,
    replacement_effects,
    weight_relevance,
)
from vitral.model import ModelConfig, Transformer

VOCAB, TIME = 7, 11
COUNTS = np.array([5, 0, 3, 1, 9, 4, 2])
QUERIES = np.array([4, 8, 10])


def model_with(**changes: Any) -> Transformer:
    sizes = {"context_length": TIME, "d_model": 12, "num_heads": 2, "num_layers": 2, "initialisation": "pytorch"}
    return Transformer(ModelConfig.parse(sizes | changes), VOCAB, seed=3).double().eval()


def some_windows(num: int = 5) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(4).integers(VOCAB, size=(num, TIME)))


def test_a_model_that_reads_the_token_before_has_its_whole_weight_there() -> None:
    """Then the effect, the weight, the rollout and the gradient rank one position first, and all others alike."""
    model = model_with(num_layers=1, attention={"mask": {"name": "window", "size": 2}})
    measured = weight_relevance(model, some_windows(), COUNTS)
    assert measured is not None
    (layer,) = measured["layers"]
    for reading in (layer["weight"], layer["rollout"], measured["gradient"], measured["best_head"]):
        for kind in ("correlation", "given_distance"):
            assert reading[kind]["mean"] == pytest.approx(1.0, abs=1e-5)
    alone = [np.corrcoef(rankdata([0] * (query - 1) + [1]), range(query))[0, 1] for query in measured["queries"]]
    assert measured["distance"]["correlation"]["mean"] == pytest.approx(np.mean(alone), abs=1e-5)
    assert measured["distance"]["given_distance"]["mean"] == 0.0
    assert measured["divergence"]["mean"] > 0


def test_without_attention_no_other_token_matters() -> None:
    measured = weight_relevance(model_with(attention="none"), some_windows(), COUNTS)
    assert measured is not None
    assert (measured["layers"], measured["best_head"]) == ([], None)
    nothing = {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert (
        measured["divergence"] == measured["distance"]["correlation"] == measured["gradient"]["correlation"] == nothing
    )
    assert weight_relevance(model_with(), some_windows(), np.eye(VOCAB)[0].astype(int)) is None
    assert weight_relevance(model_with(), some_windows()[:, :2], COUNTS) is None


def shares(model: Transformer, row: np.ndarray, query: int) -> np.ndarray:
    """The prediction after the tokens up to a query, which read nothing later."""
    with torch.inference_mode():
        logits = model(torch.from_numpy(row[None, : query + 1]))[0, -1].numpy()
    return np.exp(logits) / np.exp(logits).sum()


def test_effects_are_divergences_of_whole_passes() -> None:
    model, rows, stream = model_with(), some_windows(2), numpy_stream(0, "relevance")
    measured = replacement_effects(model, rows, COUNTS, QUERIES)
    for position in range(TIME):
        for window, row in enumerate(rows.numpy()):
            law = np.array([0 if token == row[position] else count for token, count in enumerate(COUNTS)])
            drawn = stream.choice(VOCAB, REPLACEMENTS, p=law / law.sum())
            assert not {row[position], 1} & set(drawn.tolist())
            for at, query in enumerate(QUERIES):
                apart = 0.0
                for token in drawn:
                    before, after = (
                        shares(model, row, query),
                        shares(model, np.r_[row[:position], token, row[position + 1 :]], query),
                    )
                    apart += (before * np.log(before / after)).sum() / REPLACEMENTS
                assert measured[window, at, position] == pytest.approx(apart, abs=1e-9)


def test_readings_are_those_of_the_trace_and_of_finite_differences() -> None:
    model, rows = model_with(), some_windows(2)
    heads, rollout = attention_readings(model, rows, QUERIES)
    seen, until = model.trace(rows), np.stack([np.eye(TIME)] * 2)
    for layer in range(2):
        weights = seen[f"blocks.{layer}.attn.weights"].numpy()
        until = np.stack([(weights[i].mean(axis=0) + np.eye(TIME)) @ until[i] / 2 for i in range(2)])
        assert np.allclose(heads[layer], weights.transpose(1, 0, 2, 3)[:, :, QUERIES])
        assert np.allclose(rollout[layer], until[:, QUERIES])
    measured, embedded = gradient_times_input(model, rows, QUERIES), seen["embed"]

    def logs(factor: float, position: int) -> torch.Tensor:
        scaled = embedded.clone()
        scaled[:, position] *= factor
        with torch.inference_mode():
            return model(rows, tap=Editor({"embed": lambda _value: scaled})).log_softmax(-1)[:, QUERIES]

    best = logs(1.0, 0).argmax(dim=-1, keepdim=True)
    for position in range(TIME):
        slope = (logs(1 + 1e-5, position) - logs(1 - 1e-5, position)).gather(-1, best)[..., 0] / 2e-5
        assert np.allclose(measured[:, :, position], slope.abs().numpy(), atol=1e-7)


def test_correlations_are_spearmans_and_of_what_the_distance_leaves() -> None:
    random = np.random.default_rng(5)
    scores, effect = (random.integers(6, size=(3, len(QUERIES), TIME)).astype(float) for _ in range(2))
    plain, partial = correlations(scores, effect, QUERIES)
    for window in range(3):
        each = []
        for at, query in enumerate(QUERIES):
            ranks = [rankdata(one[window, at, :query]) for one in (scores, effect)]
            left = [one - np.polyval(np.polyfit(range(query), one, 1), range(query)) for one in ranks]
            each.append((np.corrcoef(*ranks)[0, 1], np.corrcoef(*left)[0, 1]))
        assert (plain[window], partial[window]) == pytest.approx(np.mean(each, axis=0).tolist())


def test_the_best_head_is_chosen_on_other_windows_than_it_is_measured_on() -> None:
    model, rows = model_with(), some_windows(6)
    measured = weight_relevance(model, rows, COUNTS)
    assert measured is not None
    best, queries = measured["best_head"], np.array(measured["queries"])
    effect = replacement_effects(model, rows, COUNTS, queries)
    heads, _rollout = attention_readings(model, rows, queries)
    means = [[correlations(head, effect, queries)[0] for head in layer] for layer in heads]
    assert max(each[::2].mean() for layer in means for each in layer) == means[best["layer"]][best["head"]][::2].mean()
    rest = means[best["layer"]][best["head"]][1::2]
    half = t.ppf(0.975, 2) * rest.std(ddof=1) / math.sqrt(3)
    expected = {"mean": rest.mean(), "low": rest.mean() - half, "high": rest.mean() + half}
    assert best["correlation"] == pytest.approx(expected, rel=1e-4)
