"""A recurrent layer as the part of a block that mixes positions, in the place of attention."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.core.graphs import is_tracing, lstm
from vitral.core.taps import SILENT, Tap
from vitral.model.config import ModelConfig

State = tuple[Tensor, Tensor]
"""What an LSTM carries from one position to the next: hidden state and cell state, each [1, batch, d_model]."""
Carry = Callable[[State | None], State]
"""One layer of a cache: given None it returns the carried state, given a state it keeps that one."""
GATES = 4
"""Stacked in the matrices of an LSTM, in PyTorch's order: input gate, forget gate, candidate, output gate."""


class Recurrence(nn.Module):
    """One LSTM layer (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000), from left to right.

    i, f, o = σ(W x_t + U h_{t-1} + b),  g = tanh(…),  c_t = f · c_{t-1} + i · g,  h_t = o · tanh(c_t)

    Its width is d_model, so that its output h is added to the stream without a projection. Every window begins with a
    state of zeros. The computation is `torch.nn.LSTM`'s, which has two biases that are added. On a GPU cuDNN rounds the
    factors of float32 products to ten bits (TF32), unless torch.backends.cudnn.allow_tf32 is False.
    """

    def __init__(self, config: ModelConfig) -> None:
        """Make the layer."""
        super().__init__()
        self.lstm = nn.LSTM(config.d_model, config.d_model, batch_first=True, bias=config.bias is True)

    def forward(
        self, x: Float[Tensor, "batch time d_model"], *, carry: Carry | None = None, tap: Tap = SILENT
    ) -> Float[Tensor, "batch time d_model"]:
        """The hidden state h at every position, tapped as `out`.

        Args:
            x: the residual stream, normalised or not as the block has it.
            carry: gives the state after the tokens of earlier calls and keeps the new one (a cache).
            tap: receives the output, and may replace it; the carried state stays as it is.
        """
        if is_tracing() and carry is None:
            return tap("out", lstm(x, list(self.lstm.parameters())))
        kernel: AbstractContextManager[object] = nullcontext()
        if x.is_cuda and torch.is_grad_enabled() and not self.training:
            kernel = torch.backends.cudnn.flags(enabled=False)  # cuDNN computes no gradients outside training
        elif x.device.type == "cpu":
            kernel = torch.autocast("cpu", enabled=False)  # few processors have an LSTM in bfloat16: none uses it
            x = x.to(next(self.lstm.parameters()).dtype)
        with kernel:
            y, state = self.lstm(x, None if carry is None else carry(None))
        if carry is not None:
            carry(state)
        return tap("out", y)
