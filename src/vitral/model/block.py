"""One block: attention or a recurrent layer, cross-attention, then feed-forward, around the residual stream."""

from functools import partial

from jaxtyping import Float
from torch import Tensor, nn

from vitral.attention.masks import Mask
from vitral.attention.multihead import Given, MultiHeadAttention, Past, Rotation
from vitral.core.streams import Dropout
from vitral.core.taps import SILENT, Tap
from vitral.model.config import ModelConfig
from vitral.model.feedforward import FeedForward, build_feed_forward
from vitral.model.norms import Map, Sublayer, norm_of
from vitral.model.recurrence import Carry, Recurrence


class Block(nn.Module):
    """Attention (or a recurrent layer) and feed-forward, each with its norm, with or without residual.

    The decoder's blocks of an encoder-decoder have cross-attention between the two.

    Omitting a sublayer also omits its norm.
    """

    def __init__(self, config: ModelConfig, layer: int = 0) -> None:
        """Build the sublayers that `config` asks for; blocks differ in their mask only."""
        super().__init__()
        self.norm_placement, self.residual, self.parallel = config.norm, config.residual, bool(config.parallel)
        self.attn = build_attention(config, layer)
        self.attn_norm = _norm_of(config) if self.attn is not None else None
        self.recurrence = None if config.recurrence is None else Recurrence(config)
        self.recurrence_norm = None if config.recurrence is None else _norm_of(config)
        self.cross = None if config.encoder is None else build_attention(config.encoder)
        self.cross_norm = _norm_of(config) if self.cross is not None else None
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
        mask: Mask | None = None,
        source: Given | None = None,
        tap: Tap = SILENT,
    ) -> Float[Tensor, "batch time d_model"]:
        """The residual stream after this block; arguments as `MultiHeadAttention.forward` and `Recurrence.forward`.

        Cross-attention is given `source`.
        """
        x = before = tap("resid_pre", x)
        if self.attn is not None:
            attend = partial(self.attn, rotate=rotate, bias=bias, past=past, mask=mask, tap=tap.within("attn"))
            x = self.sublayer("attn", lambda y: self.attn_dropout(attend(y)))(x, tap)
        if self.recurrence is not None:
            recur = partial(self.recurrence, carry=carry, tap=tap.within("recurrence"))
            x = self.sublayer("recurrence", lambda y: self.attn_dropout(recur(y)))(x, tap)
        x = tap("resid_mid", x)
        if self.cross is not None:
            cross = partial(self.cross, given=source, tap=tap.within("cross"))
            read = before if self.parallel else x
            x = tap("resid_cross", self.sublayer("cross", lambda y: self.attn_dropout(cross(y)))(x, tap, read=read))
        if self.mlp is not None:
            mlp = with_taps(self.mlp, tap.within("mlp"))
            read = before if self.parallel else x
            x = self.sublayer("mlp", lambda y: self.mlp_dropout(mlp(y)))(x, tap, read=read)
        return tap("resid_post", x)

    def sublayer(self, name: str, body: Map) -> Sublayer:
        """The sublayer `name` with this body, as the block wires all of them."""
        return Sublayer(name, getattr(self, f"{name}_norm"), body, self.norm_placement, self.residual)


def with_taps(feed_forward: nn.Module, tap: Tap) -> Map:
    """A feed-forward as a map whose steps are tapped; of the user's own only the output is."""
    if has_taps(feed_forward):
        return partial(feed_forward, tap=tap)
    return lambda x: tap("out", feed_forward(x))


def has_taps(feed_forward: object) -> bool:
    """Whether a feed-forward is one of Vitral's, whose steps have names."""
    return type(feed_forward) is FeedForward


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
