"""A stack of blocks with positions before and a norm behind it: a decoder, or an encoder."""

from functools import partial

from jaxtyping import Bool, Float
from torch import Tensor, nn

from vitral.attention.masks import Bidirectional, Mask, Padding
from vitral.core.streams import Dropout
from vitral.core.taps import SILENT, Tap
from vitral.model.block import Block
from vitral.model.cache import KVCache, Source
from vitral.model.config import ModelConfig
from vitral.model.norms import norm_of
from vitral.model.positions import Positions, build_positions

PADDING = -1
"""The id of padding, at the end of a row: nobody attends to it."""
OPEN = Bidirectional()


class Stack(nn.Module):
    """Positions, blocks around a residual stream, and a final norm.

    Attributes:
        config: its configuration.
    """

    token_embedding: nn.Embedding

    def __init__(self, config: ModelConfig, token_embedding: nn.Embedding | None = None) -> None:
        """Build the parts; an encoder has no token embedding of its own."""
        super().__init__()
        self.config = config
        if token_embedding is not None:
            self.token_embedding = token_embedding
        self.positions = build_positions(config)
        self.embedding_norm = norm_of(config) if config.embedding_norm else None
        self.dropout = Dropout(config.dropout.embedding)
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.num_layers))
        self.final_norm = norm_of(config) if config.has_final_norm else nn.Identity()

    @property
    def rotates(self) -> bool:
        """Whether queries and keys are rotated by position."""
        return type(self.positions).rotate is not Positions.rotate

    def read(
        self,
        x: Float[Tensor, "batch time d_model"],
        *,
        real: Bool[Tensor, "batch time"] | None = None,
        bidirectional: bool = False,
        source: Source | None = None,
        cache: KVCache | None = None,
        tap: Tap = SILENT,
    ) -> Float[Tensor, "batch time d_model"]:
        """The states after the final norm.

        Args:
            x: token embeddings.
            real: which positions are no padding; all if None.
            bidirectional: whether every position sees every other, instead of those that the masks show.
            source: an encoded source, for cross-attention.
            cache: holds what came before x, and after the call holds x too.
            tap: receives every named activation, and may replace it.
        """
        time = x.shape[1]
        start = 0 if cache is None else cache.length
        vectors = self.positions.embed(start, time)
        x = tap("embed", x if vectors is None else x + vectors.to(x.dtype))
        if self.embedding_norm is not None:
            x = tap("embed_norm", self.embedding_norm(x))
        x = self.dropout(x)
        rotate = partial(self.positions.rotate, start=start) if self.rotates else None
        bias = self.positions.bias(time, start + time)
        for layer, block in enumerate(self.blocks):
            past, carry = (None, None) if cache is None else (partial(cache.extend, layer), partial(cache.carry, layer))
            x = block(
                x,
                rotate=rotate,
                bias=bias,
                past=past,
                carry=carry,
                mask=self._mask(layer, real, bidirectional),
                source=None if source is None else source[layer],
                tap=tap.within(f"blocks.{layer}"),
            )
        if cache is not None:
            cache.advance(time)
        return tap("final_norm", self.final_norm(x))

    def _mask(self, layer: int, real: Tensor | None, bidirectional: bool) -> Mask | None:
        """The mask of one block for this pass; None for its own."""
        if self.config.attention == "none" or (real is None and not bidirectional):
            return None
        mask = OPEN if bidirectional else self.config.attention.mask.of(layer)
        return mask if real is None else mask & Padding(real)
