"""Random tensors of prime sizes, and a way to call the library as its users do, without the tests' shape checks."""

from collections.abc import Callable, Iterator

import jaxtyping
import pytest
import torch
from torch import Tensor

from vitral.core.streams import torch_stream

Normal = Callable[..., Tensor]


@pytest.fixture
def normal() -> Normal:
    """`normal(2, 3, purpose)`: independent standard normal numbers, the same for the same shape and purpose."""

    def draw(*shape: int, purpose: str = "", dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.randn(shape, generator=torch_stream(7, purpose, *shape), dtype=torch.float64).to(dtype)

    return draw


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Shapes are not checked against annotations inside the test, so that wrong ones meet the library's own errors."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
