"""Cost by the length of the text: operations worked by hand, and what is timed."""

from typing import Any

import pytest
import torch

from vitral.inspection.cost import (
    VOCAB,
    counted,
    model_config,
    one_more_token,
)
from vitral.model import Transformer


def test_counted_operations_by_hand() -> None:
    """One layer, d_model 64, d_ff 64, vocabulary 16: matrices of 6 · 64² + 16 · 64 numbers, twice each."""
    matrices, n = 2 * (6 * 64 * 64 + 16 * 64), 512
    measured = counted(n)
    assert measured["cached"] == matrices + 4 * n * 64
    assert measured["recomputed"] == measured["bidirectional"] == n * measured["cached"]
    assert measured["training"] == 3 * measured["at-once"]
    each = [matrices + 4 * position * 64 for position in range(1, n + 1)]
    assert measured["one-by-one"] == pytest.approx(sum(each) / n)


def test_one_more_token_attends_to_all_before_it() -> None:
    model = Transformer(model_config(12), VOCAB)
    seen: list[int] = []
    plain = model.new_cache

    def watched(*given: int) -> Any:
        cache = plain(*given)
        extend = cache.extend

        def extended(layer: int, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            keys, values = extend(layer, k, v)
            seen.append(keys.shape[-2])
            return keys, values

        cache.extend = extended
        return cache

    model.new_cache = watched  # pyright: ignore[reportAttributeAccessIssue]
    step = one_more_token(model, 2, 12)
    for length in (1, 5, 12, 3):
        step(length)
    assert seen == [1, 5, 12, 3]
