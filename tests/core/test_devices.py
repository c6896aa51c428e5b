"""The order of sums on the CPU, inside the context and after it."""

from collections.abc import Generator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from vitral.core.devices import ordered_sums


def fills_new_memory() -> bool:
    """Whether PyTorch fills memory that is not written yet."""
    return torch.utils.deterministic.fill_uninitialized_memory  # pyright: ignore[reportAttributeAccessIssue]


@contextmanager
def mode(name: str) -> Generator[None]:
    """PyTorch's mode as a user has set it."""
    torch.set_deterministic_debug_mode(name)
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode("default")


@pytest.mark.parametrize("before", ["default", "warn", "error"])
def test_the_mode_of_the_process_is_left_as_it_was(before: str) -> None:
    with mode(before):
        was = torch.get_deterministic_debug_mode()
        with ordered_sums(torch.device("cpu")):
            assert torch.are_deterministic_algorithms_enabled()
            assert not fills_new_memory()
        assert torch.get_deterministic_debug_mode() == was
        with pytest.raises(ZeroDivisionError), ordered_sums(torch.device("cpu")):
            _ = 1 / 0
        assert torch.get_deterministic_debug_mode() == was
        assert fills_new_memory()
        with ordered_sums(torch.device("cuda")):
            assert torch.get_deterministic_debug_mode() == was


def test_threads_add_the_gradients_of_indexed_numbers_in_one_order() -> None:
    """Each sum has a thousand terms, and the border between two threads lies inside of it."""
    indices = (torch.arange(257)[:, None] - torch.arange(257)).abs().flatten() // 100
    terms = torch.randn(257 * 257, generator=torch.Generator().manual_seed(1))

    def gradient() -> Tensor:
        numbers = torch.zeros(3, requires_grad=True)
        with ordered_sums(torch.device("cpu")):
            numbers[indices].backward(terms)
        assert numbers.grad is not None
        return numbers.grad

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        first = gradient()
        assert all(torch.equal(gradient(), first) for _ in range(20))
    finally:
        torch.set_num_threads(before)
