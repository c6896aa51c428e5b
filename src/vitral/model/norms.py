"""Normalisation layers, and their placement in a block.

LayerNorm  g · (x - mean(x)) / √(var(x) + ε) + b       Ba et al. 2016, eq. 4
RMSNorm    g · x / √(mean(x²) + ε)                     Zhang & Sennrich 2019, eq. 4
pre-norm   x + f(norm(x))                              Xiong et al. 2020
post-norm  norm(x + f(x))                              Vaswani et al. 2017, §3.1
parallel   x + f(norm(x)) + g(norm(x)), in `model/block.py` (Wang & Komatsuzaki 2021)
"""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from vitral.core.parts import OwnPart, own_module
from vitral.core.taps import SILENT, Tap
from vitral.model.config import ModelConfig

Map = Callable[[Tensor], Tensor]


def norm_of(config: ModelConfig) -> nn.Module:
    """A LayerNorm or RMSNorm of the stream, or a registered norm, as the configuration describes it."""
    kind, width = config.norm_type, config.d_model
    if isinstance(kind, OwnPart):
        return own_module(kind, kind.make(width))
    if kind == "rmsnorm":
        return nn.RMSNorm(width, eps=config.epsilon)
    return nn.LayerNorm(width, eps=config.epsilon, bias=config.biases.norm)


@dataclass(frozen=True)
class Sublayer:
    """A part of a block between its norm and the residual stream.

    Attributes:
        name: "attn", "recurrence", "cross" or "mlp".
        norm: applied to what is read, or to the sum.
        body: the part itself.
        norm_placement: where the norm is; "none": it is not used.
        residual: whether the output is added to the stream or replaces it.
    """

    name: str
    norm: Map
    body: Map
    norm_placement: str = "pre"
    residual: bool = True

    def __call__(
        self, x: Float[Tensor, "... d_model"], tap: Tap = SILENT, *, read: Float[Tensor, "... d_model"] | None = None
    ) -> Float[Tensor, "... d_model"]:
        """The stream x after this sublayer, which reads `read`, or x; taps: `NAME_norm` (pre) or `NAME_sum` (post)."""
        y = x if read is None else read
        if self.norm_placement == "pre":
            y = tap(f"{self.name}_norm", self.norm(y))
        y = self.body(y)
        if self.residual:
            y = x + y
        return self.norm(tap(f"{self.name}_sum", y)) if self.norm_placement == "post" else y
