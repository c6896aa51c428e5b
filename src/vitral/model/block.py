"""One block: attention or a recurrent layer, then feed-forward, around the residual stream."""

from functools import partial

from jaxtyping import Float
from torch import Tensor, nn

from vitral.attention.multihead import MultiHeadAttention, Past, Rotation
from vitral.core.dropout import Dropout
from vitral.core.taps import SILENT, Tap
from vitral.model.config import ModelConfig
from vitral.model.feedforward import FeedForward, SwiGLU, build_feed_forward
from vitral.model.norms import WIRINGS, norm_of, with_residual, without_residual
from vitral.model.recurrence import Carry, Recurrence


class Block(nn.Module):
    """Attention (or a recurrent layer) and feed-forward, each with its norm, with or without residual.

    Omitting a sublayer also omits its norm.
    """

    def __init__(self, config: ModelConfig, layer: int = 0) -> None:
        """Build the sublayers that `config` asks for; blocks differ in their mask only."""
        super().__init__()
        self.wire = WIRINGS[config.norm]
        self.combine = with_residual if config.residual else without_residual
        self.parallel = bool(config.parallel)
        self.attn = build_attention(config, layer)
        self.attn_norm = _norm_of(config) if self.attn is not None else None
        self.recurrence = None if config.recurrence is None else Recurrence(config)
        self.recurrence_norm = None if config.recurrence is None else _norm_of(config)
        self.mlp = build_feed_forward(config)
        self.mlp_norm = _norm_of(config) if self.mlp is not None else None
        self.attn_dropout = Dropout(config.dropout.attention)
        self.mlp_dropout = Dropout(config.dropout.feed_forward)

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        *,
        rotate: Rotation | None = None,
        bias: Float[Tensor, "heads time source"] | None = None,
        past: Past | None = None,
        carry: Carry | None = None,
        tap: Tap = SILENT,
    ) -> Float[Tensor, "batch time d_model"]:
        """The residual stream after this block; arguments as `MultiHeadAttention.forward` and `Recurrence.forward`."""
        x = before = tap("resid_pre", x)
        if self.attn is not None and self.attn_norm is not None:
            attend = partial(self.attn, rotate=rotate, bias=bias, past=past, tap=tap.within("attn"))
            x = self.wire(x, self.attn_norm, lambda y: self.attn_dropout(attend(y)), self.combine, tap, "attn")
        if self.recurrence is not None and self.recurrence_norm is not None:
            recur = partial(self.recurrence, carry=carry, tap=tap.within("recurrence"))
            norm, combine = self.recurrence_norm, self.combine
            x = self.wire(x, norm, lambda y: self.attn_dropout(recur(y)), combine, tap, "recurrence")
        x = tap("resid_mid", x)
        if self.mlp is not None and self.mlp_norm is not None:
            part, inside = self.mlp, tap.within("mlp")
            mlp = partial(part, tap=inside) if has_taps(part) else lambda y: inside("out", part(y))
            read = before if self.parallel else x
            wire, stream = self.wire, x
            combine = (lambda _, output: self.combine(stream, output)) if self.parallel else self.combine
            x = wire(read, self.mlp_norm, lambda y: self.mlp_dropout(mlp(y)), combine, tap, "mlp")
        return tap("resid_post", x)


def has_taps(feed_forward: object) -> bool:
    """Whether a feed-forward is one of Vitral's, whose steps have names."""
    return type(feed_forward) in (FeedForward, SwiGLU)


def build_attention(config: ModelConfig, layer: int = 0) -> MultiHeadAttention | None:
    """The attention that `config.attention` describes for one block; None if there is none."""
    if config.attention == "none":
        return None
    return MultiHeadAttention(
        config.d_model,
        config.num_heads,
        num_kv_heads=config.kv_heads,
        d_head=config.d_head,
        mask=config.attention.mask.of(layer),
        scale=config.attention.scale,
        bias=(config.biases.qkv, config.biases.output),
        dropout=config.dropout.weights,
    )


def _norm_of(config: ModelConfig) -> nn.Module:
    return nn.Identity() if config.norm == "none" else norm_of(config)
