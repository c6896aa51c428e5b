"""Optimizers: PyTorch's, with the groups of weight decay stated, and their state as plain named tensors."""

from collections.abc import Mapping
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from vitral.core.config import Config
from vitral.core.errors import UsageError


class OptimizerConfig(Config):
    """AdamW (Loshchilov & Hutter 2019).

    Attributes:
        name: "adamw".
        learning_rate: the peak rate.
        weight_decay: for matrices and embeddings; biases, norms and scales are never decayed.
        beta1: decay of the average of gradients.
        beta2: decay of the average of their squares.
        epsilon: added to the root of the latter.
    """

    name: Literal["adamw"] = "adamw"
    learning_rate: Annotated[float, Field(gt=0)] = 3e-3
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.99
    epsilon: Annotated[float, Field(gt=0)] = 1e-8


def decay_groups(model: nn.Module) -> tuple[list[str], list[str]]:
    """Names of parameters that are decayed (two axes: matrices, embeddings) and those that are not (the rest)."""
    named = list(model.named_parameters())
    return [name for name, p in named if p.dim() == 2], [name for name, p in named if p.dim() != 2]


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """The optimizer of all of the model's parameters, in the two groups of `decay_groups`."""
    parameters = dict(model.named_parameters())
    decayed, rest = decay_groups(model)
    groups = [
        {"params": [parameters[name] for name in decayed], "weight_decay": config.weight_decay},
        {"params": [parameters[name] for name in rest], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        fused=True,
    )


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as `parameter/quantity` → tensor."""
    return {
        f"{name}/{quantity}": value
        for name, parameter in model.named_parameters()
        for quantity, value in optimizer.state[parameter].items()
    }


def load_optimizer_tensors(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], where: str
) -> None:
    """Put back what `optimizer_tensors` gave.

    Raises:
        UsageError: a tensor for a parameter the model lacks, or of another shape.
    """
    parameters = dict(model.named_parameters())
    for key, value in tensors.items():
        name, _, quantity = key.partition("/")
        if name not in parameters:
            raise UsageError(f"{where}: optimizer state for {name}, which this model does not have")
        parameter = parameters[name]
        if quantity != "step" and value.shape != parameter.shape:
            raise UsageError(
                f"{where}: optimizer state {key} has shape {tuple(value.shape)}, not {tuple(parameter.shape)}"
            )
        device = parameter.device if quantity != "step" or optimizer.param_groups[0].get("fused") else "cpu"
        optimizer.state[parameter][quantity] = value.to(device)
