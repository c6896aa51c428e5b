"""The maximal update parametrisation, muP: how initial values and learning rates change with the width.

With m = d_model / base_width, and AdamW (Yang & Hu 2021; Yang et al. 2022, table 3):

                                            initial standard deviation          learning rate
    embeddings, biases, norms               as at the base width                η
    matrices inside the blocks              · 1/√m                              η / m
    head                                    · 1/m                               η / m

At the base width nothing differs from the standard parametrisation. Attention needs scores that shrink as 1/d_k where
heads become wider: that is `model.attention.scale`. Matrices have a side that grows with the width, so d_ff has to grow
as d_model does (its default).
"""

import torch
from torch import nn

from vitral.model.config import ModelConfig

HEAD, INSIDE = "head.weight", ("blocks.", "encoder.blocks.", "head_transform.")
"""How the names begin of the matrices from stream to stream."""


def scales_with_width(name: str, dimensions: int) -> bool:
    """Whether a parameter is a matrix whose input grows with the width: one inside a block, or the head."""
    return dimensions == 2 and (name == HEAD or name.startswith(INSIDE))


def rate_factor(config: ModelConfig, name: str, dimensions: int) -> float:
    """The learning rate of a parameter in terms of the configured one, under AdamW."""
    if config.parametrisation is None or not scales_with_width(name, dimensions):
        return 1.0
    return config.parametrisation.base_width / config.d_model


def parametrise(model: nn.Module, config: ModelConfig) -> None:
    """Give the freshly drawn matrices of a model their size under its parametrisation.

    `gpt2` and `wide` draw them with one standard deviation at every width; `pytorch` and `lecun` already
    divide by √width.
    """
    if config.parametrisation is None:
        return
    wider = config.d_model / config.parametrisation.base_width
    drawn = 0.5 if config.initialisation in ("pytorch", "lecun") else 0.0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if scales_with_width(name, parameter.dim()):
                parameter.mul_(wider ** (drawn - (1.0 if name == HEAD else 0.5)))
