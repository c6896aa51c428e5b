import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitral.data import Blocks
from vitral.data import report as module
from vitral.data.report import duplicates_across


def spans(*blocks):
    return Blocks(np.array(blocks))


def brute_force(text, blocks, length):
    def every(part):
        runs = blocks[part].runs()
        return [text[at : at + length] for begin, end in runs for at in range(begin, end - length + 1)]

    train, test = set(every("train")), every("test")
    found = [window for window in test if window in train]
    return len(found) / len(test) if test else 0.0, found[0] if found else ""


@given(st.text("ab", min_size=30, max_size=120), st.integers(1, 13), st.sampled_from([3, 7, 1 << 20]))
def test_share_and_example_are_those_of_brute_force(text, length, chunk):
    third = len(text) // 3
    blocks = {
        "train": spans((0, 7), (7, third), (2 * third, len(text))),
        "test": spans((third, third + 3), (third + 3, 2 * third)),
    }
    share, example = brute_force(text, blocks, length)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK", chunk)
        found = duplicates_across(text, blocks, length)
    assert found.share == pytest.approx(share)
    assert found.example == example
