"""Initialisation of a new model's parameters.

    gpt2     matrices and embeddings N(0, 0.02²); the matrices that write to the residual stream (`out_proj`, `down`)
             N(0, 0.02²/(2 num_layers)), so that its variance does not grow with depth (Radford et al. 2019, §2.3)
    wide     as gpt2, but token and position embeddings N(0, 0.2²), which saves the first steps of Muon or of a high
             learning rate from having to enlarge them
    pytorch  matrices uniform in ±1/√(input width), embeddings N(0, 1), the defaults of `nn.Linear` and
             `nn.Embedding`

In all of them biases are zero (of an LSTM's forget gate one, so that it remembers at first: Jozefowicz et al. 2015),
norm gains one, relative positions zero, learned scales 1/√d_k. Every parameter draws from its own random stream, keyed
by its name, so models that share a module also share its initial values.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from vitral.core.streams import torch_stream
from vitral.model.recurrence import GATES

GPT2_STD = 0.02
WIDER = 10
EMBEDDINGS = ("token_embedding.weight", "positions.weight")
WRITES_TO_STREAM = ("out_proj.weight", "down.weight")
RECURRENT = ".recurrence.lstm."

Draw = Callable[[str, torch.Size, int, torch.Generator], Tensor]


def gpt2(name: str, shape: torch.Size, num_layers: int, stream: torch.Generator) -> Tensor:
    """Initial values of the parameter `name` as in GPT-2."""
    std = GPT2_STD / math.sqrt(2 * max(num_layers, 1)) if name.endswith(WRITES_TO_STREAM) else GPT2_STD
    return torch.randn(shape, generator=stream) * std


def wide(name: str, shape: torch.Size, num_layers: int, stream: torch.Generator) -> Tensor:
    """Initial values of the parameter `name` as in GPT-2, with wide embeddings."""
    return gpt2(name, shape, num_layers, stream) * (WIDER if name in EMBEDDINGS else 1)


def pytorch(name: str, shape: torch.Size, num_layers: int, stream: torch.Generator) -> Tensor:
    """Initial values of the parameter `name` as in PyTorch's layers."""
    if name in EMBEDDINGS:
        return torch.randn(shape, generator=stream)
    return (2 * torch.rand(shape, generator=stream) - 1) / math.sqrt(shape[1])


DRAWS: dict[str, Draw] = {"gpt2": gpt2, "wide": wide, "pytorch": pytorch}
"""Initialisations by value of `model.initialisation`."""


def initialise(model: nn.Module, draw: Draw, *, num_layers: int, seed: int) -> None:
    """Draw all matrices and embeddings (two-dimensional `.weight`s and those of LSTMs), and set biases to zero."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            of_lstm = RECURRENT in name
            if name.endswith(".bias") or (of_lstm and parameter.dim() == 1):
                parameter.zero_()
                if of_lstm and name.endswith(".bias_ih_l0"):  # the second of the four gates; the other bias is added
                    parameter.chunk(GATES)[1].fill_(1.0)
            elif (name.endswith(".weight") or of_lstm) and parameter.dim() == 2:
                parameter.copy_(draw(name, parameter.shape, num_layers, torch_stream(seed, "init", name)))
