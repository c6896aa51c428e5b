"""A step's gradients: one order of additions, whatever shares them out."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.training.conftest import Configured, trainer
from vitral.training.loop import one_step
from vitral.training.optimizers import SGD, AdamW
from vitral.training.summing import CanonicalSum, StepSum


def by_levels(parts: list[Tensor]) -> Tensor:
    """The same tree, level by level."""
    while len(parts) > 1:
        pairs = [parts[n] + parts[n + 1] for n in range(0, len(parts) - 1, 2)]
        parts = pairs + parts[len(parts) - len(parts) % 2 :]
    return parts[0]


@given(st.integers(1, 70), st.integers(0, 2**32))
def test_the_tree_pairs_neighbours_and_carries_an_odd_last_one_upward(count: int, seed: int) -> None:
    leaves = torch.randn(count, 3, generator=torch.Generator().manual_seed(seed))
    summed, most = CanonicalSum(), 0
    for leaf in leaves:
        summed.add(leaf.clone())
        most = max(most, len(summed._kept))
    assert torch.equal(summed.total(), by_levels(list(leaves)))
    assert most <= count.bit_length()  # ⌊log₂ n⌋ + 1


def test_a_parameter_without_a_gradient_stays_without_one(configured: Configured) -> None:
    training = configured(training={"accumulation": 3, "reduction": "canonical"}).training
    one, sometimes, never = (nn.Parameter(torch.zeros(2)) for _ in range(3))
    summed = StepSum([one, sometimes, never], training)
    for micro in range(3):
        one.grad = torch.full((2,), 1.0 + micro)
        sometimes.grad = torch.ones(2) if micro == 1 else None
        summed.add(torch.tensor(0.5))
    assert float(summed.total()) == 1.5
    assert [None if p.grad is None else p.grad.tolist() for p in (one, sometimes, never)] == [[6, 6], [1, 1], None]


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_the_plain_kernels_move_a_part_as_in_the_whole(kind: str) -> None:
    """Of 1,517 numbers, a prime cut: the fused kernel treats the last few of a tensor apart."""
    generator = torch.Generator().manual_seed(1)
    begun, gradients = torch.randn(1517, generator=generator), torch.randn(20, 1517, generator=generator)

    def moved(part: slice) -> Tensor:
        parameter = nn.Parameter(begun[part].clone())
        adamw = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8}
        numbers = adamw if kind == "adamw" else {"momentum": 0.9, "nesterov": True}
        group = {"params": [parameter], "lr": 0.01, "weight_decay": 0.1, **numbers}
        optimizer = (AdamW if kind == "adamw" else SGD)([group], fused=False)
        for gradient in gradients:
            parameter.grad = gradient[part].clone()
            optimizer.step()
        return parameter.detach()

    whole = moved(slice(None))
    for cut in (1, 7, 13, 751, 1511):
        assert torch.equal(torch.cat([moved(slice(cut)), moved(slice(cut, None))]), whole)


def test_without_the_key_gradients_are_added_one_after_another(configured: Configured, tmp_path: Path) -> None:
    """As in runs of earlier versions, whose checkpoints do not have it; "fast" is the same on one rank."""
    moved = {}
    for reduction in (None, "fast", "canonical"):
        config = configured(training={"accumulation": 5} | ({} if reduction is None else {"reduction": reduction}))
        made = trainer(config, tmp_path)
        one_step(made)
        moved[reduction] = torch.cat([p.detach().flatten() for p in made.model.parameters()])
    assert torch.equal(moved[None], moved["fast"])
    assert not torch.equal(moved["fast"], moved["canonical"])
