"""AdamW and SGD are PyTorch's, matrices alone decay, and the state has the names of the parameters."""

from typing import Any

import pytest
import torch

from vitral.model import ModelConfig, Transformer
from vitral.runs.optimizers import AdamWConfig, MuonConfig, OptimizerConfig, SGDConfig
from vitral.training.optimizers import (
    build_optimizer,
    load_optimizer_tensors,
    optimizer_tensors,
)


def made(**chosen: Any) -> Transformer:
    sizes = {"context_length": 5, "d_model": 6, "num_heads": 3, "num_layers": 2, "d_ff": 11}
    return Transformer(ModelConfig.parse({**sizes, **chosen}), 7, seed=4)


@pytest.mark.parametrize(
    "config",
    [
        AdamWConfig(weight_decay=0.3, beta2=0.95),
        SGDConfig(momentum=0.0),
        SGDConfig(),
        SGDConfig(nesterov=True, momentum=0.8, weight_decay=0.3),
    ],
    ids=str,
)
def test_steps_are_pytorchs_bit_for_bit(config: AdamWConfig | SGDConfig) -> None:
    """Only the dictionaries around the kernels are our own."""
    models = [made(), made()]
    ours = build_optimizer(models[0], config)
    decayed = [parameter for parameter in models[1].parameters() if parameter.dim() == 2]
    rest = [parameter for parameter in models[1].parameters() if parameter.dim() != 2]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": rest, "weight_decay": 0.0}]
    if isinstance(config, AdamWConfig):
        theirs = torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.95), eps=1e-8, fused=True)
    else:
        shared: dict[str, Any] = {"momentum": config.momentum, "nesterov": config.nesterov, "fused": True}
        theirs = torch.optim.SGD(groups, lr=config.learning_rate, **shared)
    for step in range(4):
        for model, optimizer in zip(models, (ours, theirs), strict=True):
            optimizer.zero_grad()
            model(torch.tensor([[1, 2, 3 + step]])).square().mean().backward()
            optimizer.step()
        for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
            assert torch.equal(one, other)


def test_matrices_decay_and_the_rest_does_not() -> None:
    model = made(num_layers=1, attention={"scale": "learned-per-head"})
    names = {parameter: name for name, parameter in model.named_parameters()}
    first, second = build_optimizer(model, AdamWConfig(weight_decay=0.3)).param_groups
    assert {names[parameter] for parameter in first["params"]} == {
        "token_embedding.weight",
        "positions.weight",
        "blocks.0.attn.in_proj.weight",
        "blocks.0.attn.out_proj.weight",
        "blocks.0.mlp.up.weight",
        "blocks.0.mlp.down.weight",
        "head.weight",
    }
    assert "blocks.0.attn.scale.factor" in {names[parameter] for parameter in second["params"]}
    assert len(first["params"]) + len(second["params"]) == len(names)
    assert (first["weight_decay"], second["weight_decay"]) == (0.3, 0.0)
    assert len(build_optimizer(made(bias=False, norm="none"), AdamWConfig()).param_groups) == 1


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        (AdamWConfig(), "exp_avg exp_avg_sq step"),
        (SGDConfig(), "momentum_buffer"),
        (SGDConfig(momentum=0.0), ""),
        (MuonConfig(), "exp_avg exp_avg_sq momentum_buffer step"),
    ],
    ids=str,
)
def test_state_is_named_tensors_and_comes_back(config: OptimizerConfig, keys: str) -> None:
    model = made()
    optimizer = build_optimizer(model, config)
    assert optimizer_tensors(model, optimizer) == {}
    model(torch.tensor([[1, 2, 3]])).square().sum().backward()
    optimizer.step()
    tensors = optimizer_tensors(model, optimizer)
    assert sorted({key.split("/")[1] for key in tensors}) == keys.split()
    assert not keys or {key.split("/")[0] for key in tensors} == dict(model.named_parameters()).keys()
    other = build_optimizer(model, config)
    load_optimizer_tensors(model, other, tensors, "here")
    assert all(torch.equal(value, tensors[key]) for key, value in optimizer_tensors(model, other).items())
