"""Initialisation of a new model's parameters.

    gpt2     matrices and embeddings N(0, 0.02²); the matrices that write to the residual stream (`out_proj`, `down`)
             N(0, 0.02²/(2 num_layers)), so that its variance does not grow with depth (Radford et al. 2019, §2.3)
    wide     as gpt2, but token and position embeddings N(0, 0.2²), which saves the first steps of Muon or of a high
             learning rate from having to enlarge them
    pytorch  matrices uniform in ±1/√(input width), embeddings N(0, 1), the defaults of `nn.Linear` and
             `nn.Embedding`
    lecun    matrices uniform in ±√(3/input width), so that outputs have the variance of inputs (LeCun et al. 1998,
             §4.6; of square matrices that is Glorot and Bengio 2010, eq. 16); embeddings and head as in pytorch

In all of them biases are zero (of an LSTM's forget gate one, so that it remembers at first: Jozefowicz et al. 2015),
norm gains one, relative positions zero, learned scales 1/√d_k. Every parameter draws from its own random stream, keyed
by its name, so models that share a module also share its initial values.

A fresh model knows nothing, so its loss on random tokens should be ln V, of V tokens. With an own head it is larger by
half the variance of the logits, 0.02² d_model / 2 for gpt2 and wide (0.03 at 128) and at most 0.5 for pytorch. A tied
head wants small embeddings, the blocks want large ones: see `calm_tied_head`.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from vitral.core.streams import torch_stream
from vitral.model.recurrence import GATES

GPT2_STD = 0.02
WIDER = 10
EMBEDDING_STD = {"gpt2": GPT2_STD, "wide": WIDER * GPT2_STD, "pytorch": 1.0, "lecun": 1.0}
"""The standard deviation of embeddings by value of `model.initialisation`."""
EMBEDDINGS = ("token_embedding.weight", "positions.weight", "encoder.positions.weight")
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


def uniform(variance: float, name: str, shape: torch.Size, num_layers: int, stream: torch.Generator) -> Tensor:
    """Initial values of the parameter `name`: matrices of this variance over their input width, of the head 1/3."""
    if name in EMBEDDINGS:
        return torch.randn(shape, generator=stream)
    bound = math.sqrt(shape[1] / (1 if name == "head.weight" else 3 * variance))
    return (2 * torch.rand(shape, generator=stream) - 1) / bound


DRAWS: dict[str, Draw] = {"gpt2": gpt2, "wide": wide, "pytorch": partial(uniform, 1 / 3), "lecun": partial(uniform, 1)}
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


def calm_tied_head(embedding: Tensor, std: float, last_norm: nn.Module | None, added: float | None) -> None:
    """Make a fresh model's logits small where the head is the token embedding, so that its loss is about ln V.

    The stream still contains the token's own row e, so the logit of the current token is about √d |e| ≈ d std after a
    norm and |e|² ≈ d std² without: 26 at d = 128 and std = 0.2, a loss of 17 nats instead of 4.6. The gain of the last
    norm begins so small that this logit is at most ln(1 + V/30), which adds 1/30 to the loss, and at most √d/4, so
    that the other logits vary little; the embedding stays as large as the blocks want it. Without such a gain the
    embedding itself begins smaller. Only initial values are changed: the forward pass is that of every other model.

    Args:
        embedding: of the tokens, [vocab_size, d_model], as drawn.
        std: with which it was drawn.
        last_norm: the norm before the head; None if there is none.
        added: variance of the positions that are added to it; None if a norm follows their sum.
    """
    vocab_size, d_model = embedding.shape
    largest = min(math.log1p(vocab_size / 30), math.sqrt(d_model) / 4)
    gain = getattr(last_norm, "weight", None)
    with torch.no_grad():
        ours = isinstance(last_norm, nn.LayerNorm | nn.RMSNorm)  # begins at 1, also where numbers cannot be looked at
        if isinstance(gain, nn.Parameter) and gain.shape == (d_model,) and (ours or bool(gain.eq(1).all())):
            gain.fill_(min(1.0, largest / (d_model * std)))
        elif last_norm is not None or added is None:  # one of the user's is taken to give numbers of size 1
            embedding.mul_(min(1.0, largest / (d_model * std)))
        else:
            largest = min(largest, 0.1 / added) if added else largest
            embedding.mul_(min(1.0, math.sqrt(largest / d_model) / std))
