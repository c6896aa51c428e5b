"""The parts of a computation."""

import math
from dataclasses import dataclass

from torch import Tensor

from vitral.attention.masks import Mask
from vitral.model.settings import ROTARY, RotaryConfig


@dataclass(frozen=True)
class Architecture:
    """The parts of a computation, without its numbers.

    Attributes:
        stream: name of the first quantity of the stream: "x" (attention alone), "resid_pre" (a block) or "embed".
        norm: "pre", "post" or "none"; None for attention alone.
        sublayers: of the block; "attn" and "mlp".
        residual: whether the block has residual connections.
        parallel: whether the feed-forward reads the stream before attention.
        mask: None if unknown.
        scale: its name, or a number; None if unknown.
        num_heads: query heads.
        d_k: width of a head, for computations that begin after q and k.
        bias: position bias of the scores, [heads, time, source].
        frequencies: of rotary positions, radians per position, one for each pair.
        rotation: of rotary positions.
        activation: of the feed-forward.
        norm_type: "layernorm" or "rmsnorm".
        epsilon: of the norms.
        final_norm: whether a norm follows the last block.
        tied: whether the head's matrix is the embedding.
        rows: the row of the embedding for each position.
        sinusoidal: whether the position embedding is sinusoidal.
        position_base: of the rates of its angles.
        position_halves: whether its sines stand before its cosines.
        first_position: number of its first position.
        softmax_base: of the exponentials in the weights of attention and in the probabilities.
        memory: whether keys and values are projected from `memory`, the states of an encoder.
    """

    stream: str = "x"
    norm: str | None = None
    sublayers: tuple[str, ...] = ("attn", "mlp")
    residual: bool = True
    parallel: bool = False
    mask: Mask | None = None
    scale: str | float | None = None
    num_heads: int = 1
    d_k: int | None = None
    bias: Tensor | None = None
    frequencies: Tensor | None = None
    rotation: RotaryConfig = ROTARY
    activation: str = "relu"
    norm_type: str = "layernorm"
    epsilon: float = 1e-5
    final_norm: bool = False
    tied: bool = False
    rows: tuple[int, ...] = ()
    sinusoidal: bool = False
    position_base: float = 10_000.0
    position_halves: bool = False
    first_position: int = 0
    softmax_base: float = math.e
    memory: bool = False
