"""Masks: drawn by hand, composed, and what they promise to caches and to losses."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from vitral.attention import Bidirectional, Causal, Explicit, Mask, Padding, Prefix, Window
from vitral.attention.masks import as_mask
from vitral.attention.steps import mask as put_fill
from vitral.attention.steps import normalise


def drawn(allowed: Tensor) -> list[str]:
    """A mask as lines of x (seen) and . (hidden)."""
    return ["".join("x" if seen else "." for seen in row) for row in allowed.tolist()]


def positional() -> st.SearchStrategy[Mask]:
    """Masks that speak of positions only, composed in any way."""
    simple = st.one_of(
        st.just(Causal()),
        st.just(Bidirectional()),
        st.integers(1, 9).map(lambda length: Prefix(length=length)),
        st.integers(1, 9).map(lambda size: Window(size=size)),
    )
    join = st.sampled_from([lambda pair: pair[0] & pair[1], lambda pair: pair[0] | pair[1]])
    return st.recursive(simple, lambda parts: st.tuples(st.tuples(parts, parts), join).map(lambda p: p[1](p[0])))


def test_causal_by_hand() -> None:
    assert drawn(Causal().allowed(3, 3)) == ["x..", "xx.", "xxx"]
    assert drawn(Causal().allowed(2, 5)) == ["xxxx.", "xxxxx"]
    assert drawn(Causal().allowed(3, 2)) == ["..", "x.", "xx"]


def test_prefix_by_hand() -> None:
    assert drawn(Prefix(length=3).allowed(5, 5)) == ["xxx..", "xxx..", "xxx..", "xxxx.", "xxxxx"]
    assert drawn(Prefix(length=3).allowed(2, 5)) == ["xxxx.", "xxxxx"]
    assert drawn(Prefix(length=7).allowed(2, 2)) == ["xx", "xx"]


def test_window_by_hand() -> None:
    assert drawn(Window(size=2).allowed(4, 4)) == ["x...", "xx..", ".xx.", "..xx"]
    assert drawn(Window(size=1).allowed(2, 3)) == [".x.", "..x"]


def test_padding_by_hand() -> None:
    real = torch.tensor([[True, False, True], [False, True, True]])
    allowed = Padding(real).allowed(2, 3)
    assert allowed.shape == (2, 1, 2, 3)
    assert [drawn(batch) for batch in allowed[:, 0]] == [["x.x", "x.x"], [".xx", ".xx"]]


def test_explicit_by_hand() -> None:
    tensor = torch.tensor([[True, False], [False, True]])
    assert drawn(Explicit(tensor).allowed(2, 2)) == ["x.", ".x"]
    assert drawn(Explicit(tensor[:1]).allowed(3, 2)) == ["x.", "x.", "x."]
    assert Explicit(tensor[None, :, :1]).allowed(2, 5).shape == (1, 2, 5)
    padded = Causal() & Padding(torch.tensor([[False, True, True]]))
    assert drawn(padded.allowed(3, 3)[0, 0]) == ["...", ".x.", ".xx"]


@given(positional(), positional(), st.integers(1, 11), st.integers(0, 6))
def test_and_is_both_or_is_either(first: Mask, second: Mask, time: int, before: int) -> None:
    one, other = (mask.allowed(time, time + before) for mask in (first, second))
    assert torch.equal((first & second).allowed(time, time + before), one & other)
    assert torch.equal((first | second).allowed(time, time + before), one | other)


@given(positional(), st.integers(1, 11), st.integers(0, 6))
def test_late_queries_see_what_they_would_see_among_all(mask: Mask, time: int, before: int) -> None:
    source = time + before
    assert torch.equal(mask.allowed(time, source), mask.allowed(source, source)[before:])


@given(positional(), st.integers(1, 11))
def test_settled_means_that_the_future_is_not_asked(mask: Mask, time: int) -> None:
    settled, longer = mask.joint_prefix(), 13
    if settled is None:
        assert mask.allowed(longer, longer).triu(1).any()
    elif time >= settled:
        whole = mask.allowed(longer, longer)
        assert torch.equal(whole[:time, :time], mask.allowed(time, time))
        assert not whole[:time, time:].any()


@given(positional())
def test_from_the_first_target_on_the_next_token_is_hidden(mask: Mask) -> None:
    first, longer = mask.first_target(), 13
    shown = mask.allowed(longer, longer).triu(1).any(dim=1).tolist()
    if first is None:
        assert all(shown[:-1])
    else:
        assert not any(shown[first:])


@given(positional(), st.integers(1, 11), st.integers(0, 6))
def test_a_mask_that_sees_itself_has_no_empty_row(mask: Mask, time: int, before: int) -> None:
    if mask.sees_itself:
        source = time + before
        assert mask.allowed(time, source)[torch.arange(time), torch.arange(before, source)].all()


PADDING = Padding(torch.ones(2, 3).bool())


@pytest.mark.parametrize(
    ("mask", "settled", "first_target", "sees_itself"),
    [
        (Causal(), 0, 0, True),
        (Bidirectional(), None, None, True),
        (PADDING, None, None, False),
        (Explicit(torch.ones(3, 3).bool()), None, None, False),
        (Prefix(length=5) | Prefix(length=3), 5, 4, True),
        (Bidirectional() & Causal(), 0, 0, True),
        (Causal() & PADDING, 0, 0, False),
    ],
)
def test_promises(mask: Mask, settled: int | None, first_target: int | None, sees_itself: bool) -> None:
    assert (mask.joint_prefix(), mask.first_target(), mask.sees_itself) == (settled, first_target, sees_itself)


def test_as_mask() -> None:
    assert as_mask(None) == Bidirectional()
    assert as_mask("causal") == Causal()
    assert as_mask(Window(size=3)) == Window(size=3)
    tensor = torch.eye(3).bool()
    assert drawn(as_mask(tensor).allowed(3, 3)) == ["x..", ".x.", "..x"]


def test_a_finite_fill_is_not_a_mask() -> None:
    scores = torch.tensor([[3.0, 5.0, 2.0], [1.0, 2.0, 7.0]])
    allowed = torch.tensor([[True, True, False], [False, False, False]])
    hidden, habit = (normalise(put_fill(scores, allowed, fill)) for fill in (-math.inf, -1e9))
    torch.testing.assert_close(hidden[0], habit[0])
    assert hidden[1].tolist() == [0, 0, 0]
    torch.testing.assert_close(habit[1], torch.full((3,), 1 / 3))
