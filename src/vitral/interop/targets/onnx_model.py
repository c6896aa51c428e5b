"""A model of which PyTorch makes ONNX graphs for lengths that are not known: no step decides anything by a length."""

import copy
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from vitral.core.taps import SILENT, Recorder, Tap
from vitral.model import Transformer
from vitral.model.cache import KVCache
from vitral.model.positions import ALiBi, Learned, Positions, Relative, Rotary, Sinusoidal
from vitral.model.recurrence import Carry, Recurrence

ONNX_GATES = (0, 3, 1, 2)
"""The gates in the order of ONNX: input, output, forget, candidate. PyTorch's are input, forget, candidate, output."""
PACKAGES = ("onnx", "onnxscript", "onnxruntime")
"""PyTorch writes graphs with the first two; the third runs them."""
LOWEST_TORCH = (2, 13)
"""The lowest version of PyTorch on which the tests of these graphs have passed."""
UNTIL_NOW = "past_length"
"""The input with the number of earlier tokens, where no other input tells it."""


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
        return _Placing(kept.weight)
    if isinstance(kept, Sinusoidal):
        return _Placing(kept.table)
    if model.config.attention == "none" and isinstance(kept, Rotary | ALiBi | Relative):
        return Positions()  # nothing to rotate, no scores
    return _Rotating(kept) if isinstance(kept, Rotary) else kept


class _Placing(Positions):
    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.table = table

    def embed(self, start: Any, time: int) -> Tensor:
        return self.table.index_select(0, start + torch.arange(time))


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


class FlatCache(KVCache):
    """A cache that is given and returned as flat tensors; it makes new tensors and writes into none."""

    def __init__(self, model: Transformer, past: Sequence[Tensor], length: Any) -> None:
        """Take the tensors in the order of `cache_names`; `length` is used if they do not tell it."""
        recurrent = model.config.recurrence is not None
        first, second = list(past[0::2]), list(past[1::2])
        self.keys, self.values = ([], []) if recurrent else (first, second)
        self.states = list(zip(first, second, strict=True)) if recurrent else []
        self._new_states = {}
        self.length = self.keys[0].shape[2] if self.keys else 0 if length is None else length
        self.capacity = model.config.context_length

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append one layer's new keys and values; return all of them."""
        self.keys[layer] = torch.cat((self.keys[layer], k), dim=2)
        self.values[layer] = torch.cat((self.values[layer], v), dim=2)
        return self.keys[layer], self.values[layer]

    def reserve(self, batch: int, time: int) -> None:
        """There is always room."""

    def flat(self) -> list[Tensor]:
        """The tensors in the order of `cache_names`."""
        pairs = self.states or zip(self.keys, self.values, strict=True)
        return [tensor for pair in pairs for tensor in pair]


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


def has_cache(model: Transformer) -> bool:
    """Whether later tokens need something of earlier ones that can be kept."""
    mixes = model.config.attention != "none" or model.config.recurrence is not None
    mixes = mixes and min(model.config.num_layers, model.config.context_length - 1) > 0
    return mixes and (model.mask is None or model.mask.joint_prefix() is not None)


def needs_length(model: Transformer) -> bool:
    """Whether the cache of a model does not tell how many tokens it has."""
    return model.config.recurrence is not None and isinstance(model.positions, Learned | Sinusoidal)


def cache_names(model: Transformer, before: bool) -> list[str]:
    """The names of the cache's tensors, as optimum has them: before the new tokens, or with them.

    The keys and values of each block; or the hidden state and the cell of its LSTM.
    """
    pair = ("hidden", "cell") if model.config.recurrence is not None else ("key", "value")
    scope = "past_key_values" if before else "present"
    if model.config.recurrence is not None:
        scope = "past_state" if before else "present_state"
    return [f"{scope}.{layer}.{each}" for layer in range(model.config.num_layers) for each in pair]
