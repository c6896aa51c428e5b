"""muP: equal to the standard parametrisation at the base width; activations and their steps keep their size beyond."""

import math
from typing import Any

import pytest
import torch
from torch.nn import functional

from vitral.core.streams import torch_stream
from vitral.model import ModelConfig, Transformer
from vitral.training import RunConfig
from vitral.training.optimizers import build_optimizer

BASE, VOCAB = 16, 31
MUP = {"parametrisation": {"name": "mup", "base_width": BASE}}


def config(width: int, **changes: Any) -> ModelConfig:
    sizes = {"context_length": 12, "d_model": width, "num_layers": 2, "num_heads": 2}
    scale = math.sqrt(BASE / 2) / (width / 2) if "parametrisation" in changes else "sqrt"
    return ModelConfig.parse({**sizes, "attention": {"scale": scale}, **changes})


@pytest.mark.parametrize("initialisation", ["gpt2", "wide", "pytorch", "lecun"])
def test_initial_sizes_by_hand(initialisation: str) -> None:
    small, large = (
        Transformer(config(width, initialisation=initialisation, **MUP), VOCAB).state_dict() for width in (64, 256)
    )
    plain = Transformer(config(BASE, initialisation=initialisation), VOCAB).state_dict()
    base = Transformer(config(BASE, initialisation=initialisation, **MUP), VOCAB).state_dict()
    assert all(torch.equal(value, base[name]) for name, value in plain.items())
    for name, value in small.items():
        if value.dim() == 2:  # four times as wide
            shrinks = 4.0 if name == "head.weight" else 2.0 if name.startswith("blocks.") else 1.0
            assert float(value.std() / large[name].std()) == pytest.approx(shrinks, rel=0.1), name


def test_learning_rates_by_hand() -> None:
    model = Transformer(config(64, **MUP), VOCAB)
    run = RunConfig.parse({"training": {"optimizer": {"learning_rate": 0.01, "weight_decay": 0.1}}})
    groups = build_optimizer(model, run.training.optimizer).param_groups
    rates = {id(parameter): group["peak"] for group in groups for parameter in group["params"]}
    assert len(rates) == sum(1 for _ in model.parameters())
    for name, parameter in model.named_parameters():
        inside = parameter.dim() == 2 and (name.startswith("blocks.") or name == "head.weight")
        assert rates[id(parameter)] == (0.01 * 16 / 64 if inside else 0.01), name
    assert groups[0]["peak"] == 0.01  # the rate that is logged is the configured one
    plain = build_optimizer(Transformer(config(64), VOCAB), run.training.optimizer).param_groups
    assert [group["peak"] for group in plain] == [0.01, 0.01]


def movement(width: int, steps: int, rate: float, **changes: Any) -> dict[str, float]:
    """The root mean square of how far some steps of AdamW move each activation, in the mean over two models."""
    by_name: dict[str, float] = {}
    tokens = torch.randint(VOCAB, (8, 13), generator=torch_stream(2, "tokens"))
    optimizer_config = RunConfig.parse(
        {"training": {"optimizer": {"learning_rate": rate, "weight_decay": 0.0, "beta2": 0.95}}}
    ).training.optimizer
    for seed in range(2):
        model = Transformer(config(width, **changes), VOCAB, seed=seed)
        before = model.trace(tokens[:, :-1])
        optimizer = build_optimizer(model, optimizer_config)
        for _ in range(steps):
            optimizer.zero_grad()
            functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()
        after = model.trace(tokens[:, :-1])
        for name in ("blocks.0.attn.out", "blocks.1.mlp.out", "logits"):
            moved = (after[name] - before[name]).square().mean().sqrt()
            by_name[name] = by_name.get(name, 0.0) + float(moved) / 2
    return by_name


def test_coordinates_keep_their_size_under_mup_and_grow_under_the_standard_one() -> None:
    """Yang et al. 2022, figure 5: an activation moves as far at any width, or ever further."""
    kinds: dict[str, dict[str, Any]] = {"mup": MUP, "standard": {}}
    narrow, wide = (
        {kind: movement(width, 4, 0.003, **changes) for kind, changes in kinds.items()} for width in (32, 256)
    )
    for name in narrow["mup"]:
        assert wide["mup"][name] / narrow["mup"][name] < 1.5, name
        assert wide["standard"][name] / narrow["standard"][name] > 2.5, name
