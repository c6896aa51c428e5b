"""The optimizer's operations: Muon's products as PyTorch counts them, the rest by hand; a run's FLOPs include them."""

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from vitral.model import Transformer, cost, count_parameters
from vitral.runs.config import RunConfig
from vitral.training.costs import optimizer_flops, step_flops
from vitral.training.optimizers import build_optimizer

VOCAB = 13


def configured(optimizer: dict[str, Any], dtype: str = "float32", **model: Any) -> RunConfig:
    sizes = {"context_length": 5, "d_model": 12, "num_layers": 2, "num_heads": 6, "d_ff": 20}
    return RunConfig.parse(
        {"model": sizes | model, "training": {"optimizer": optimizer, "steps": 100, "dtype": dtype}}, "test"
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "model", [{}, {"num_kv_heads": 2}, {"feed_forward": "swiglu"}, {"attention": "none"}, {"num_layers": 0}], ids=str
)
def test_a_step_of_muon_is_what_pytorch_counts_and_the_operations_on_each_number(
    model: dict[str, Any], dtype: str
) -> None:
    config = configured({"name": "muon"}, dtype=dtype, **model)
    made = Transformer(config.model, VOCAB)
    optimizer = build_optimizer(made, config.training.optimizer, in_bfloat16=dtype == "bfloat16")
    made(torch.tensor([[1, 2, 3]])).square().sum().backward()
    with FlopCounterMode(display=False) as counter:
        optimizer.step()
    parameters = dict(made.named_parameters())
    inside = sum(p.numel() for name, p in parameters.items() if name.startswith("blocks.") and p.dim() == 2)
    others = sum(p.numel() for p in parameters.values()) - inside
    assert optimizer_flops(config, VOCAB) == counter.get_total_flops() + 12 * inside + 14 * others


@pytest.mark.parametrize(
    ("optimizer", "for_each", "for_each_decayed"),
    [
        ({"name": "adamw"}, 14, 0),
        ({"name": "sgd", "momentum": 0}, 2, 0),
        ({"name": "sgd"}, 4, 0),
        ({"name": "sgd", "nesterov": True, "weight_decay": 0.1}, 6, 2),
    ],
    ids=str,
)
def test_operations_on_each_number_by_hand(optimizer: dict[str, Any], for_each: int, for_each_decayed: int) -> None:
    config = configured(optimizer)
    parameters = list(Transformer(config.model, VOCAB).parameters())
    decayed = sum(p.numel() for p in parameters if p.dim() == 2)
    expected = for_each * count_parameters(config.model, VOCAB) + for_each_decayed * decayed
    assert optimizer_flops(config, VOCAB) == expected
    assert step_flops(config, VOCAB) == expected + config.tokens_per_step * 3 * cost(config.model, VOCAB).forward_flops
