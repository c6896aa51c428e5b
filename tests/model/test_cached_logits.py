"""With the cache or without, in whatever pieces the tokens come: the same logits."""

from collections.abc import Callable

import pytest
import torch
from small_models import lively, tokens

from vitral.core.errors import UsageError
from vitral.core.taps import Recorder

POSITIONS = ["learned", "sinusoidal", "rotary", "alibi", "relative", "none"]
PREFIX = {"name": "prefix", "length": 3}


@pytest.mark.parametrize("positions", POSITIONS)
def test_after_a_prefix_cached_is_uncached(positions: str) -> None:
    model, ids = lively(attention={"mask": PREFIX, "scale": "adaptive"}, positions=positions), tokens(2, 7)
    with torch.inference_mode():
        for pieces in ([3, 4], [5, 1, 1], [3, 1, 2, 1]):
            cache = model.new_cache(2)
            result = torch.cat([model(piece, cache=cache) for piece in ids.split(pieces, dim=1)], dim=1)
            torch.testing.assert_close(result, model(ids), rtol=0, atol=1e-12)


def test_traced_through_the_cache() -> None:
    model, ids = lively(positions="rotary"), tokens(2, 7)
    cache, recorder = model.new_cache(2), Recorder()
    with torch.inference_mode():
        model(ids[:, :5], cache=cache)
        logits = model(ids[:, 5:], cache=cache, tap=recorder)
        whole = Recorder()
        torch.testing.assert_close(logits, model(ids, tap=whole)[:, 5:], rtol=0, atol=1e-12)
    weights = recorder.kept["blocks.1.attn.weights"]
    assert weights.shape == (2, 3, 2, 7)
    torch.testing.assert_close(weights, whole.kept["blocks.1.attn.weights"][:, :, 5:], rtol=0, atol=1e-12)


def test_select_reorders_repeats_and_drops() -> None:
    model, ids = lively(), tokens(3, 7)
    cache, rows = model.new_cache(3), torch.tensor([2, 0, 0, 2, 1])
    with torch.inference_mode():
        model(ids[:, :5], cache=cache)
        cache.select(rows)
        result = model(ids[rows, 5:], cache=cache)
        torch.testing.assert_close(result, model(ids[rows])[:, 5:], rtol=0, atol=1e-12)


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(UsageError) as refused:
        action()
    return str(refused.value)


def test_what_a_cache_cannot_do_is_refused_in_one_line() -> None:
    model, prefixed = lively(), lively(attention={"mask": PREFIX})
    both_ways = lively(attention={"mask": "bidirectional"})
    assert "under a bidirectional mask" in refusal(lambda: both_ways.new_cache(2))
    cache = model.new_cache(2)
    model(tokens(2, 5), cache=cache)
    assert "room for 7 tokens, 8 needed" in refusal(lambda: model(tokens(2, 3), cache=cache))
    assert "allocated for 2 sequences, given 1" in refusal(lambda: model(tokens(1, 1), cache=cache))
    assert cache.length == 5
    first = refusal(lambda: prefixed(tokens(2, 2), cache=prefixed.new_cache(2)))
    assert "the first 3 tokens (the prefix) must be given at once, not 2" in first
    longer = model.new_cache(2, 11)
    assert "learned positions end at context_length = 7" in refusal(lambda: model(tokens(2, 11), cache=longer))
    assert "position 8 asked for" in refusal(lambda: model(tokens(2, 8)))
