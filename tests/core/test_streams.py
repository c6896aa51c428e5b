"""Random streams: each depends on its key alone, and leaves nothing behind."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from vitral.core.streams import ambient_stream, key, numpy_stream, torch_stream

KEYS = st.tuples(st.integers(0, 2**63 - 1), st.sampled_from(["init", "dropout", "batches"]), st.integers(0, 99))


@given(KEYS, KEYS)
def test_keys_are_63_bits_and_differ(one: tuple[int, str, int], other: tuple[int, str, int]) -> None:
    assert 0 <= key(*one) < 2**63
    assert (key(*one) == key(*other)) == (one == other)


def test_numbers_stay_what_they_are() -> None:
    """Runs of one version are to be repeated by the next."""
    assert numpy_stream(1, "batches", 0).integers(1000, size=5).tolist() == [513, 356, 928, 416, 704]
    assert torch.randint(1000, (5,), generator=torch_stream(1, "init")).tolist() == [693, 330, 270, 420, 415]


def test_an_ambient_stream_gives_the_global_generator_back() -> None:
    before, numpy_before = torch.random.get_rng_state(), np.random.get_state(legacy=False)["state"]["key"]
    with ambient_stream(1, "dropout", 5):
        first = torch.rand(3)
    torch.testing.assert_close(torch.random.get_rng_state(), before)
    with ambient_stream(1, "dropout", 5):
        assert torch.equal(torch.rand(3), first)
    with ambient_stream(1, "dropout", 6):
        assert not torch.equal(torch.rand(3), first)
    assert np.array_equal(np.random.get_state(legacy=False)["state"]["key"], numpy_before)
