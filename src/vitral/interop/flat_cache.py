"""A cache as flat tensors, in and out: what a graph of one more token takes of the earlier ones, and gives back."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vitral.model import Transformer
from vitral.model.cache import KVCache
from vitral.model.positions import Learned, Positions, Sinusoidal

UNTIL_NOW = "past_length"
"""The input with the number of earlier tokens, where no other input tells it."""


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


class Placing(Positions):
    """Positions from a table by index, so that no step decides anything by a length."""

    def __init__(self, table: Tensor) -> None:
        """Take the table, [positions, d_model]."""
        super().__init__()
        self.table = table

    def embed(self, start: Any, time: int) -> Tensor:
        """Rows of the table."""
        return self.table.index_select(0, start + torch.arange(time))


def has_cache(model: Transformer) -> bool:
    """Whether later tokens need something of earlier ones that can be kept."""
    mixes = model.config.attention != "none" or model.config.recurrence is not None
    mixes = mixes and min(model.config.num_layers, model.config.context_length - 1) > 0
    return mixes and (model.mask is None or model.mask.joint_prefix() is not None)


def joint_prefix(model: Transformer) -> int:
    """How many first tokens a model has to be given at once, since they see each other."""
    return 0 if model.mask is None else model.mask.joint_prefix() or 0


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
