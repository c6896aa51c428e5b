"""What heads attend to, on a window worked by hand, and their overlap beside heads of other models."""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from vitral.core.streams import numpy_stream
from vitral.data import char_tokenizer
from vitral.inspection.attention import (
    BROAD,
    add_share,
    against_other_seeds,
    attended_distance,
    attention_rows,
    head_patterns,
    kind_masks,
    landmarks,
    mean_entropy_share,
    name_of,
    overlap,
    overlaps,
    rows_of,
    with_uniform,
)
from vitral.inspection.numbers import RunningMean
from vitral.model import ModelConfig, Transformer

TOKENIZER = char_tokenizer("\n ab")
WINDOW = "ab\nab a"
CAUSAL = torch.ones(7, 7, dtype=torch.bool).tril()
ALL = torch.ones(7, dtype=torch.bool)


def keys_of(kind: str, query: int) -> list[int]:
    """Which keys of `WINDOW` are of a kind, as seen from a query."""
    tokens = torch.from_numpy(TOKENIZER.encode(WINDOW))[None]
    return torch.nonzero(kind_masks(tokens, landmarks(TOKENIZER), CAUSAL)[kind][0, query]).flatten().tolist()


@pytest.mark.parametrize(
    ("kind", "query", "keys"),
    [
        ("itself", 6, [6]),
        ("previous", 6, [5]),
        ("previous", 0, []),
        ("near", 6, [2, 3, 4]),
        ("near", 2, [0]),
        ("first", 6, [0]),
        ("same", 6, [0, 3]),
        ("same", 5, []),
        ("after same", 6, [1, 4]),
        ("after same", 1, []),
        ("word", 6, [5]),
        ("word", 2, []),
        ("line", 6, [2]),
        ("line", 2, []),
    ],
)
def test_kinds_are_those_worked_by_hand(kind: str, query: int, keys: list[int]) -> None:
    assert keys_of(kind, query) == keys


def test_uniform_attention_has_the_share_of_visible_keys() -> None:
    tokens = torch.from_numpy(TOKENIZER.encode(WINDOW))[None]
    even, masks = with_uniform(torch.zeros(1, 0, 7, 7), CAUSAL), kind_masks(tokens, landmarks(TOKENIZER), CAUSAL)
    share = RunningMean()
    add_share(share, even, masks["first"], ALL)
    assert float(share.value) == pytest.approx(sum(1 / n for n in range(1, 8)) / 7)
    assert float(mean_entropy_share(even, CAUSAL, ALL)[0]) == pytest.approx(
        6 / 7
    )  # the first query has nothing to spread
    assert float(attended_distance(even, ALL)[0]) == pytest.approx(sum(n / 2 for n in range(7)) / 7)


def test_overlap_of_a_half_shared_pair_is_worked_by_hand() -> None:
    weights = torch.tensor([[[[1.0, 0.0]], [[0.5, 0.5]]]]).expand(1, 2, 2, 2)
    middle = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    expected = 1 - (middle - math.log(2) / 2) / math.log(2)
    assert float(overlap(weights, torch.tensor([True, True]))) == pytest.approx(expected)


def test_a_head_is_named_after_its_largest_share_beyond_uniform() -> None:
    uniform = {"near": 0.3, "previous": 0.1, "line": None}
    assert name_of({"near": 0.45, "previous": 0.3, "line": 0.9}, uniform) == "previous"
    assert name_of({"near": 0.45, "previous": 0.11, "line": None}, uniform) == "near"
    assert name_of({"near": 0.39, "previous": 0.19}, uniform) == BROAD
    assert name_of({}, uniform) == BROAD


def a_model(**changes: Any) -> Transformer:
    """Two layers of two heads over seven positions."""
    plain = {"context_length": 7, "d_model": 10, "num_heads": 2, "num_layers": 2} | changes
    return Transformer(ModelConfig.parse(plain), TOKENIZER.vocab_size, seed=3).eval()


def some_windows(num: int = 5) -> torch.Tensor:
    """Windows of letters and spaces, without a line break."""
    letters = torch.from_numpy(TOKENIZER.encode("ab "))
    return letters[torch.randint(3, (num, 7), generator=torch.Generator().manual_seed(1))]


def test_patterns_are_those_of_the_traced_weights() -> None:
    model, tokens = a_model(initialisation="wide"), some_windows(1)
    weights = model.trace(tokens)["blocks.1.attn.weights"]
    measured = head_patterns(model, TOKENIZER, tokens)["layers"][1]
    for head in range(2):
        row = weights[0, head, 6].double()
        assert measured["heads"][head]["share"]["previous"] == pytest.approx(float(row[5]))
        assert measured["heads"][head]["distance"] == pytest.approx(float((row * (6 - torch.arange(7))).sum()))
        assert measured["heads"][head]["entropy"] == pytest.approx(float(-(row * row.log()).sum() / math.log(7)))


MODEL = {"context_length": 11, "d_model": 12, "num_heads": 3, "num_layers": 2, "initialisation": "pytorch"}


def on(*keys: int) -> torch.Tensor:
    """Heads of two rows each that attend to one of three keys."""
    return torch.eye(3, dtype=torch.float64)[list(keys)][:, None].expand(-1, 2, -1)


def test_kept_rows_are_those_of_the_model() -> None:
    model = Transformer(ModelConfig.parse(MODEL), 13, seed=3).eval()
    tokens = torch.from_numpy(numpy_stream(1, "tokens").integers(13, size=(5, 11)))
    kept = attention_rows(model, tokens, 40)
    assert json.loads(json.dumps(kept)) == kept == attention_rows(model, tokens, 40)
    assert kept["shape"] == [3, 40, 11]
    for layer, rows in enumerate(rows_of(kept)):
        weights = model.trace(tokens)[f"blocks.{layer}.attn.weights"].numpy()
        rows = rows.numpy()
        assert rows.sum(axis=-1) == pytest.approx(np.ones((3, 40)))
        for number in range(40):
            distance = np.abs(weights - rows[None, :, number, None]).sum(axis=(1, 3))  # heads and keys
            assert distance.min() < 1e-3


def test_the_matched_head_is_the_nearest_in_entropy() -> None:
    """The broad head of the other run takes the place of the broad one, whatever its number."""
    broad = torch.full((1, 2, 3), 1 / 3, dtype=torch.float64)
    one, other = torch.cat([on(0), broad]), torch.cat([broad, on(1)])
    measured = against_other_seeds({1: [one], 2: [other]}, {1: [["previous", BROAD]], 2: [[BROAD, "line"]]})
    alike = float(overlaps(on(0), broad)[0, 0])
    assert measured[1]["own"] == pytest.approx(alike)
    assert measured[1]["matched"] == pytest.approx(alike)  # key 0 with the broad head, and key 1 with the broad head
    assert measured[1]["apart"] == pytest.approx(0.0)
