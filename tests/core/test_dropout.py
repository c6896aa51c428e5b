"""Dropout: zeros as often as asked for, the others scaled by the probability to stay, gradients by the same mask."""

import pytest
import torch
from torch import nn

from vitral.core.streams import LEVELS, Dropout, ambient_stream, drop_out


@pytest.mark.parametrize(("rate", "dtype"), [(1e-3, torch.float32), (0.2, torch.float64), (0.999, torch.float32)])
def test_elements_are_zero_as_often_as_asked_for(rate: float, dtype: torch.dtype) -> None:
    count = 999_983
    with ambient_stream(3, "dropout"):
        x = drop_out(torch.ones(count, dtype=dtype), rate)
    expected = round(LEVELS * rate) / LEVELS
    assert abs(expected - rate) <= 0.5 / LEVELS
    zeros = int((x == 0).sum())
    assert abs(zeros - count * expected) < 5 * (count * expected * (1 - expected)) ** 0.5
    kept = x[x != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - expected)))


def test_neighbours_rows_and_draws_are_independent() -> None:
    with ambient_stream(5, "dropout"):
        first, second = (drop_out(torch.ones(997, 1009), 0.5) == 0 for _ in range(2))
    for one, other in (
        (first[:, 1:], first[:, :-1]),
        (first[:, 4:], first[:, :-4]),
        (first[1:], first[:-1]),
        (first, second),
    ):
        share = float((one & other).double().mean())
        assert abs(share - 0.25) < 5 * (0.25 * 0.75 / one.numel()) ** 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_has_the_same_mask(dtype: torch.dtype) -> None:
    x = torch.full((13, 17), 3.0, dtype=dtype, requires_grad=True)
    y = drop_out(x.mT, 0.25)
    assert y.dtype == dtype
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad.mT == 0, y == 0)
    assert torch.equal(x.grad.mT * 3, y.detach())


def test_a_stream_gives_the_same_mask_again_with_any_number_of_threads() -> None:
    had, masks = torch.get_num_threads(), list[torch.Tensor]()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            with ambient_stream(7, "dropout", 11):
                masks.append(drop_out(torch.ones(307, 401), 0.3))
    finally:
        torch.set_num_threads(had)
    assert torch.equal(*masks)


def test_the_module_is_the_identity_outside_training_and_at_rate_zero() -> None:
    x = torch.randn(5, 7)
    module = Dropout(0.9)
    assert isinstance(module, nn.Dropout)
    assert module.eval()(x) is x
    assert torch.equal(Dropout(0.0)(x), x)
    assert torch.equal(Dropout(1.0)(x), torch.zeros_like(x))
    assert not torch.equal(module.train()(x), x)
