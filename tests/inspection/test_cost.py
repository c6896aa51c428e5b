"""Cost by the length of the text: operations, slopes and bytes worked by hand, and the measured numbers beside them."""

from typing import Any

import numpy as np
import pytest
import torch

from vitral.inspection import cost
from vitral.inspection.cost import (
    VOCAB,
    WAYS,
    counted,
    held_bytes,
    memory,
    model_config,
    one_more_token,
    rates,
    slope,
    timings,
)
from vitral.model import Transformer


def test_counted_operations_by_hand() -> None:
    """One layer, d_model 64, d_ff 64, vocabulary 16: matrices of 6 · 64² + 16 · 64 numbers, twice each."""
    matrices, n = 2 * (6 * 64 * 64 + 16 * 64), 512
    found = counted(n)
    assert found["cached"] == matrices + 4 * n * 64
    assert found["recomputed"] == found["bidirectional"] == n * found["cached"]
    assert found["training"] == 3 * found["at-once"]
    each = [matrices + 4 * position * 64 for position in range(1, n + 1)]
    assert found["one-by-one"] == pytest.approx(sum(each) / n)


def test_a_slope_and_its_interval() -> None:
    exact = slope([1, 2, 4, 8], [5, 5 * 2**1.5, 5 * 4**1.5, 5 * 8**1.5])
    assert exact["slope"] == pytest.approx(1.5)
    assert exact["high"] - exact["low"] == pytest.approx(0.0, abs=1e-6)
    from scipy import stats

    x, y = [100, 200, 300, 500], [1.0, 2.3, 2.9, 5.5]
    line: Any = stats.linregress(np.log(x), np.log(y))
    rough = slope(x, y)
    assert rough["slope"] == pytest.approx(line.slope)
    assert rough["high"] - rough["slope"] == pytest.approx(stats.t.ppf(0.975, 2) * line.stderr)


def test_bytes_found_are_bytes_counted() -> None:
    found = memory((32, 64))
    assert found["cache"] == found["cache_counted"] == [32 * 2 * 64 * 4, 64 * 2 * 64 * 4]
    for one, other in zip(found["kept"], found["kept_counted"], strict=True):
        assert one == pytest.approx(other, rel=0.03)


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


@pytest.mark.parametrize("mask", ["causal", "bidirectional"])
def test_bytes_held_are_those_the_formula_tells(mask: str) -> None:
    """Every allocation and release of a pass over a window, in order: the most held at once."""
    from torch.profiler import ProfilerActivity, profile

    config = model_config(512, mask)
    model, window = Transformer(config, VOCAB).eval(), torch.arange(512)[None] % 16
    with torch.inference_mode(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        model(window)
    assert found.profiler is not None
    assert found.profiler.kineto_results is not None
    events: list[Any] = [each for each in found.profiler.kineto_results.events() if each.name() == "[memory]"]
    held = np.cumsum([each.nbytes() for each in sorted(events, key=lambda each: each.start_ns())])
    assert held.max() == pytest.approx(held_bytes(config), rel=0.05)


def test_everything_is_timed_at_every_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "LEAST_SECONDS", 1e-5)
    found = timings((4, 8), 2, 3)
    assert {way: [len(many) for many in by_length] for way, by_length in found.items()} == {way: [2, 2] for way in WAYS}
    assert all(pair[0] >= 0 and pair[1] > 0 for rows in found.values() for many in rows for pair in many)


def test_rates_by_hand() -> None:
    times = {"training": [9.0, 2.0, 4.0]}
    found = {
        "fitted": [2, 3],
        "flops": {"training": [1.0, 6.0, 20.0]},
        "processor": times,
        "wall": {"training": [99.0, 3.0, 5.0]},
    }
    assert rates(found) == {"training": {"first": 3.0, "last": 5.0, "busy": 1.5}}
