"""SGD is PyTorch's, with the names of parameters beside its state; a configuration that means nothing is refused."""

from typing import Any

import pytest
import torch

from vitral.core import parts
from vitral.core.errors import UsageError
from vitral.model import ModelConfig, Transformer
from vitral.runs.config import RunConfig, SGDConfig
from vitral.training.optimizers import SGD, build_optimizer, load_optimizer_tensors, optimizer_tensors

SIZES: dict[str, Any] = {"context_length": 5, "d_model": 6, "num_layers": 2, "num_heads": 3, "d_ff": 11}


@pytest.mark.parametrize(
    "numbers",
    [{}, {"momentum": 0.0}, {"nesterov": True, "momentum": 0.8}, {"weight_decay": 0.3}],
    ids=str,
)
def test_it_is_pytorchs_bit_for_bit(numbers: dict[str, Any]) -> None:
    config = SGDConfig(**numbers)
    models = [Transformer(ModelConfig.parse(SIZES), 7, seed=4) for _ in range(2)]
    ours = build_optimizer(models[0], config)
    groups: list[dict[str, Any]] = [
        {"params": [p for p in models[1].parameters() if p.dim() == 2], "weight_decay": config.weight_decay},
        {"params": [p for p in models[1].parameters() if p.dim() != 2], "weight_decay": 0.0},
    ]
    shared: dict[str, Any] = {"lr": config.learning_rate, "momentum": config.momentum, "nesterov": config.nesterov}
    theirs = torch.optim.SGD(groups, **shared, fused=True)
    for step in range(4):
        for model, optimizer in zip(models, (ours, theirs), strict=True):
            optimizer.zero_grad()
            model(torch.tensor([[1, 2, 3 + step]])).square().mean().backward()
            optimizer.step()
        for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize(("nesterov", "expected"), [(False, (-0.1, -0.25)), (True, (-0.15, -0.325))])
def test_two_steps_by_hand(nesterov: bool, expected: tuple[float, float]) -> None:
    """G = 1 twice, μ = 0.5, η = 0.1: B = 1, then 1.5; W moves by 0.1 B, or by 0.1 (G + 0.5 B)."""
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    group = {"params": [weight], "lr": 0.1, "momentum": 0.5, "nesterov": nesterov, "weight_decay": 0.0}
    optimizer = SGD([group])
    for place in expected:
        weight.grad = torch.ones(1, dtype=torch.float64)
        optimizer.step()
        assert weight.item() == pytest.approx(place, abs=1e-12)


def test_its_state_has_the_names_of_the_parameters() -> None:
    model = Transformer(ModelConfig.parse(SIZES), 7)
    optimizer = build_optimizer(model, SGDConfig())
    model(torch.tensor([[1, 2, 3]])).square().sum().backward()
    optimizer.step()
    tensors = optimizer_tensors(model, optimizer)
    assert set(tensors) == {f"{name}/momentum_buffer" for name, _ in model.named_parameters()}
    other = build_optimizer(model, SGDConfig())
    load_optimizer_tensors(model, other, tensors, "here")
    assert all(torch.equal(value, tensors[key]) for key, value in optimizer_tensors(model, other).items())


def test_without_momentum_nothing_is_kept() -> None:
    model = Transformer(ModelConfig.parse(SIZES), 7)
    optimizer = build_optimizer(model, SGDConfig(momentum=0.0))
    model(torch.tensor([[1, 2, 3]])).square().sum().backward()
    optimizer.step()
    assert optimizer_tensors(model, optimizer) == {}


@pytest.mark.parametrize("wrong", [{"nesterov": True, "momentum": 0}, {"momentum": 1}, {"beta1": 0.9}])
def test_a_configuration_that_means_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as refused:
        RunConfig.parse({"training": {"optimizer": {"name": "sgd", **wrong}}}, "mine.toml")
    assert "training.optimizer" in str(refused.value)
    assert "\n" not in str(refused.value)


def own_sgd(parameters: list[torch.nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=learning_rate)


def test_runs_with_an_own_optimizer_of_this_name_are_still_read() -> None:
    """Users could register one before; a new configuration that names it must say which of the two it means."""
    sealed = {"name": "sgd", "learning_rate": 0.2, "file": "mine.py", "sha256": "0" * 64}
    config = RunConfig.parse({"training": {"optimizer": sealed}}, "run")
    assert config.plain()["training"]["optimizer"] == sealed
    parts.register("optimizer", "sgd", own_sgd)
    assert RunConfig.parse({"training": {"optimizer": sealed}}, "run") == config
    with pytest.raises(UsageError, match="another name"):
        RunConfig.parse({"training": {"optimizer": "sgd"}}, "mine.toml")
    with pytest.raises(UsageError, match="another name"):
        parts.register("optimizer", "adamw", own_sgd)
