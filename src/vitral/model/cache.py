"""The cache: what a model keeps of earlier tokens, so that each new token costs one step."""

import torch
from jaxtyping import Int
from torch import Tensor

from vitral.attention.multihead import Given
from vitral.core.errors import UsageError
from vitral.model.config import ModelConfig
from vitral.model.recurrence import State

Source = tuple[Given, ...]
"""An encoded source, as each of the decoder's blocks reads it."""


class KVCache:
    """Keys and values of every layer for the tokens so far, in preallocated tensors; of an LSTM its state after them.

    Attributes:
        length: number of stored tokens.
        capacity: maximum number of tokens.
        source: what an encoder has read; it stays when the cache is cleared.
    """

    source: Source | None = None

    def __init__(
        self, config: ModelConfig, batch: int, capacity: int, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        """Allocate room for `capacity` tokens of `batch` sequences."""
        layers = 0 if config.attention == "none" else config.num_layers
        shape = (batch, config.kv_heads, capacity, config.d_head)
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(layers)]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(layers)]
        layers = 0 if config.recurrence is None else config.num_layers
        empty = torch.zeros((1, batch, config.d_model), dtype=dtype, device=device)
        self.states: list[State] = [(empty, empty)] * layers
        self._new_states: dict[int, State] = {}
        self.length, self.capacity = 0, capacity

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append one layer's new keys and values; return all of them.

        Args:
            layer: index of the block.
            k: new keys, [batch, kv_heads, time, d_head].
            v: new values, the same shape.
        """
        end = self.length + k.shape[-2]
        self.keys[layer][:, :, self.length : end] = k
        self.values[layer][:, :, self.length : end] = v
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]

    def carry(self, layer: int, state: State | None) -> State:
        """One layer's recurrent state after the stored tokens; a new one is kept for `advance`.

        Args:
            layer: index of the block.
            state: the state after the new tokens; None to ask for that before them.
        """
        if state is not None:
            self._new_states[layer] = state
        return self.states[layer]

    def reserve(self, batch: int, time: int) -> None:
        """Check that there is room for `time` more tokens of `batch` sequences.

        Raises:
            UsageError: there is no room; names capacity and need.
        """
        rows = [len(keys) for keys in self.keys] + [hidden.shape[1] for hidden, _cell in self.states]
        if rows and rows[0] != batch:
            raise UsageError(
                "cache: allocated for {allocated} sequences, given {batch}", allocated=rows[0], batch=batch
            )
        if self.length + time > self.capacity:
            raise UsageError(
                "cache: room for {capacity} tokens, {needed} needed; restart it with clear()",
                capacity=self.capacity,
                needed=self.length + time,
            )

    def advance(self, time: int) -> None:
        """Add `time` to the length, once every layer has stored those tokens."""
        self.length = self.length + time  # a new tensor, where a graph is given the length
        for layer, state in self._new_states.items():
            self.states[layer] = state
        self._new_states.clear()

    def clear(self) -> None:
        """Remove all tokens; the tensors stay allocated."""
        self.length = 0
        self.states = [(torch.zeros_like(hidden), torch.zeros_like(cell)) for hidden, cell in self.states]

    def select(self, rows: Int[Tensor, " batch"]) -> None:
        """Reorder, repeat or drop sequences: the new row i is the old row rows[i]."""
        if rows.dim() != 1:
            raise UsageError("cache: expected a list of rows, not {shape}", shape=tuple(rows.shape))
        self.keys = [keys[rows] for keys in self.keys]
        self.values = [values[rows] for values in self.values]
        self.states = [(hidden[:, rows], cell[:, rows]) for hidden, cell in self.states]
        if self.source is not None:
            self.source = tuple(Given(*(tensor[rows] for tensor in given)) for given in self.source)
