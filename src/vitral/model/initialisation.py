"""How a new model's numbers are drawn.

Matrices and embeddings are normal with standard deviation `init_std`; the matrices that write to the residual
stream (`out_proj`, `down`) with init_std/√(2 num_layers), so that its variance does not grow with depth (Radford
et al. 2019, §2.3). Biases are zero, norms' gains one, relative positions zero, learned scales 1/√d_k.

Every parameter draws from a stream of its own, keyed by its name: two models that share a part share its initial
numbers, whatever else they have.
"""

import math

import torch
from torch import nn

from vitral.core.streams import torch_stream

WRITES_TO_STREAM = ("out_proj.weight", "down.weight")


def initialise(model: nn.Module, *, std: float, num_layers: int, seed: int) -> None:
    """Draw all matrices and embeddings (two-dimensional `.weight`s) anew, and set biases to zero."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".bias"):
                parameter.zero_()
            elif name.endswith(".weight") and parameter.dim() == 2:
                spread = std / math.sqrt(2 * max(num_layers, 1)) if name.endswith(WRITES_TO_STREAM) else std
                parameter.copy_(torch.randn(parameter.shape, generator=torch_stream(seed, "init", name)) * spread)
