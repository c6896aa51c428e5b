"""A model of which PyTorch makes ONNX graphs for lengths that are not known: no step decides anything by a length."""

import copy
from typing import Any, cast

import torch
from torch import Tensor, nn

from vitral.core.taps import SILENT, Recorder, Tap
from vitral.interop.flat_cache import FlatCache, Placing
from vitral.model import Transformer
from vitral.model.positions import ALiBi, Learned, Positions, Relative, Rotary, Sinusoidal
from vitral.model.recurrence import Carry, Recurrence

ONNX_GATES = (0, 3, 1, 2)
"""The gates in the order of ONNX: input, output, forget, candidate. PyTorch's are input, forget, candidate, output."""
PACKAGES = ("onnx", "onnxscript", "onnxruntime")
"""PyTorch writes graphs with the first two; the third runs them."""
LOWEST_TORCH = (2, 13)
"""The lowest version of PyTorch on which the tests of these graphs have passed."""


def onnx_model(model: Transformer) -> Transformer:
    """The same model with parts that can be traced; it shares the parameters.

    Positions come from tables by index, so that one beyond the context length is an error; the LSTM is one operation.
    """
    made = _with(model, positions=_positions(model))
    if model.config.recurrence is None:
        return made
    blocks = [_with(block, recurrence=_Lstm(cast("Any", block).recurrence)) for block in model.blocks]
    return _with(made, blocks=nn.ModuleList(blocks))


def _with(module: Any, **parts: nn.Module) -> Any:
    """A copy with other parts; everything else is shared."""
    made = copy.copy(module)
    made._modules = {**module._modules, **parts}
    return made


def _positions(model: Transformer) -> Positions:
    kept = model.positions
    if isinstance(kept, Learned):
        return Placing(kept.weight)
    if isinstance(kept, Sinusoidal):
        return Placing(kept.table)
    if model.config.attention == "none" and isinstance(kept, Rotary | ALiBi | Relative):
        return Positions()  # nothing to rotate, no scores
    return _Rotating(kept) if isinstance(kept, Rotary) else kept


class _Rotating(Positions):
    def __init__(self, rotary: Rotary) -> None:
        super().__init__()
        self.rotary = rotary

    def rotate(self, x: Tensor, start: int) -> Tensor:
        cos, sin = self.rotary.turns.index_select(1, torch.arange(start, start + x.shape[-2])).to(x.dtype)
        return torch.addcmul(x * cos, self.rotary.swapped(x), sin)


class _Lstm(nn.Module):
    """The recurrent layer as the LSTM of ONNX; PyTorch would write one position after another."""

    def __init__(self, recurrence: Recurrence) -> None:
        super().__init__()
        self.width = recurrence.lstm.hidden_size
        kept = dict(recurrence.lstm.named_parameters())
        self.of_input, self.of_state = (_by_onnx(kept[name])[None] for name in ("weight_ih_l0", "weight_hh_l0"))
        biases = [_by_onnx(kept[name]) for name in ("bias_ih_l0", "bias_hh_l0") if name in kept]
        self.bias = torch.cat(biases)[None] if biases else None

    def forward(self, x: Tensor, *, carry: Carry | None = None, tap: Tap = SILENT) -> Tensor:
        batch, time, width = x.shape
        hidden, cell = (None, None) if carry is None else carry(None)
        y, hidden, cell = torch.onnx.ops.symbolic_multi_out(
            "LSTM",
            (x.transpose(0, 1), self.of_input, self.of_state, self.bias, None, hidden, cell),
            {"hidden_size": self.width},
            dtypes=(x.dtype,) * 3,
            shapes=((time, 1, batch, width), (1, batch, width), (1, batch, width)),
        )
        if carry is not None:
            carry((hidden, cell))
        return tap("out", y.squeeze(1).transpose(0, 1))


def _by_onnx(stacked: Tensor) -> Tensor:
    pieces = stacked.detach().chunk(len(ONNX_GATES))
    return torch.cat([pieces[gate] for gate in ONNX_GATES])


class _OfModel(nn.Module):
    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model


class Logits(_OfModel):
    """tokens → logits."""

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """The logits."""
        return (self.model(tokens),)


class Activations(_OfModel):
    """tokens → every named activation."""

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """The activations in the order of `model.activation_names`."""
        recorder = Recorder()
        self.model(tokens, tap=recorder)
        return tuple(recorder.kept[name] for name in self.model.activation_names)


class WithPast(_OfModel):
    """tokens, cache → logits, cache."""

    def forward(self, tokens: Tensor, past: tuple[Tensor, ...], length: Tensor | None = None) -> tuple[Tensor, ...]:
        """The logits of the new tokens, and the cache with them."""
        cache = FlatCache(self.model, past, length)
        return self.model(tokens, cache=cache), *cache.flat()
