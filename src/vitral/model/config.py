"""The configuration of a model."""

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, InstanceOf, model_validator

from vitral.attention.masks import Causal, MaskConfig
from vitral.attention.multihead import check_heads
from vitral.attention.scales import ScaleConfig
from vitral.core.config import Config
from vitral.core.language import _
from vitral.core.parts import OwnPart

Count = Annotated[int, Field(ge=1, le=2**24)]
Rate = Annotated[float, Field(ge=0, lt=1)]
NormType = Literal["layernorm", "rmsnorm"]
PositionsName = Literal["learned", "sinusoidal", "rotary", "alibi", "relative", "none"]
FeedForwardName = Literal["gelu", "relu", "squared_relu", "swiglu", "none"]


class OwnNorm(OwnPart):
    """A registered norm."""

    kinds = ("norm",)
    built_in = get_args(NormType)


class OwnPositions(OwnPart):
    """A registered position encoding."""

    kinds = ("positions",)
    built_in = get_args(PositionsName)


class OwnFeedForward(OwnPart):
    """A registered feed-forward, or the activation of the usual one."""

    kinds = ("feed_forward", "activation")
    built_in = get_args(FeedForwardName)


def _place(place: Any) -> Any:
    """The name of a norm is refused where its place is expected."""
    name = place.get("name") if isinstance(place, dict) else place
    if isinstance(name, str) and (name in OwnNorm.built_in or OwnNorm.names(name)):
        raise ValueError(
            _("norm is the place of the norms (pre, post, none); write norm_type = {name!r} for their kind", name=name)
        )
    return place


class AttentionConfig(Config):
    """Mask and scale of attention.

    Attributes:
        mask: "causal", "bidirectional", {name = "prefix", length = n} or {name = "window", size = n}; or an own one.
        scale: "none", "sqrt" (1/√d_k), "linear" (1/d_k), "adaptive", "learned", "learned-per-head", or a number; or an
            own one.
    """

    mask: MaskConfig = Causal()
    scale: ScaleConfig = "sqrt"


class MaximalUpdate(Config):
    """The maximal update parametrisation (Yang & Hu 2021), see `vitral.model.parametrisation`.

    Attributes:
        name: "mup".
        base_width: the d_model at which it equals the standard parametrisation.
    """

    name: Literal["mup"] = "mup"
    base_width: Count


class DropoutConfig(Config):
    """Dropout rates during training (Srivastava et al. 2014).

    A bare number sets all four rates, as in GPT-2.

    Attributes:
        embedding: for the sum of the embeddings.
        weights: for the attention weights.
        attention: for the output of attention, or of the recurrent layer in its place, before it is added to the
            residual stream.
        feed_forward: for the output of the feed-forward, before it is added to the residual stream.
    """

    embedding: Rate = 0.0
    weights: Rate = 0.0
    attention: Rate = 0.0
    feed_forward: Rate = 0.0


def _everywhere(rate: Any) -> Any:
    """A bare rate applies to every place."""
    if isinstance(rate, int | float) and not isinstance(rate, bool):
        return dict.fromkeys(DropoutConfig.model_fields, rate)
    return rate


class ModelConfig(Config):
    """A decoder-only Transformer.

    An own part (`vitral.core.parts`) is a name, or a table with its name and settings.

    Attributes:
        context_length: maximum number of tokens in the model's input.
        d_model: width of the residual stream.
        num_layers: number of blocks.
        num_heads: query heads; they must divide d_model.
        num_kv_heads: key-value heads; they must divide num_heads. Default: num_heads.
        d_ff: width of the feed-forward's hidden layer. Default: 4 d_model, or 8/3 d_model for swiglu.
        norm: "pre" (with a final norm), "post", or "none".
        norm_type: "layernorm", "rmsnorm" or an own one.
        positions: "learned", "sinusoidal", "rotary", "alibi", "relative", "none" or an own one.
        attention: its mask and scale, or "none" for blocks without attention.
        recurrence: "lstm" for an LSTM layer of width d_model in the place of attention, which must then be "none".
            Default: none.
        feed_forward: the activation, "gelu", "relu", "squared_relu", "swiglu" or an own one; "none"; or an own
            feed-forward.
        residual: whether a sublayer's output is added to its input or replaces it.
        tie_head: whether the head's matrix is the token embedding's.
        bias: whether projections and norms have biases. The head never has one.
        dropout: one rate for every place, or a table of `DropoutConfig`.
        initialisation: "gpt2", "wide" or "pytorch"; see `vitral.model.initialisation`.
        parametrisation: {name = "mup", base_width = n}: initial values and AdamW's learning rates change with the width
            so that a rate tuned at the base width suits every width. Default: the standard one.
    """

    context_length: Count = 50
    d_model: Count = 128
    num_layers: Annotated[int, Field(ge=0, le=10_000)] = 2
    num_heads: Count = 2
    num_kv_heads: Count | None = None
    d_ff: Count | None = None
    norm: Annotated[Literal["pre", "post", "none"], BeforeValidator(_place)] = "pre"
    norm_type: Annotated[NormType | InstanceOf[OwnNorm], BeforeValidator(OwnNorm.choose)] = "layernorm"
    positions: Annotated[PositionsName | InstanceOf[OwnPositions], BeforeValidator(OwnPositions.choose)] = "learned"
    attention: AttentionConfig | Literal["none"] = AttentionConfig()
    recurrence: Literal["lstm"] | None = None
    feed_forward: Annotated[FeedForwardName | InstanceOf[OwnFeedForward], BeforeValidator(OwnFeedForward.choose)] = (
        "gelu"
    )
    residual: bool = True
    tie_head: bool = False
    bias: bool = True
    dropout: Annotated[DropoutConfig, BeforeValidator(_everywhere)] = DropoutConfig()
    initialisation: Literal["gpt2", "wide", "pytorch"] = "gpt2"
    parametrisation: MaximalUpdate | None = None

    @model_validator(mode="after")
    def _positions_are_mixed_once(self) -> "ModelConfig":
        if self.recurrence is not None and self.attention != "none":
            raise ValueError(
                _('recurrence: the {name} takes the place of attention; set attention = "none"', name=self.recurrence)
            )
        return self

    @model_validator(mode="after")
    def _head_has_its_own_size(self) -> "ModelConfig":
        if self.parametrisation is not None and self.tie_head:
            raise ValueError(
                _("parametrisation: mup gives the head another size than the embedding; set tie_head = false")
            )
        return self

    @model_validator(mode="after")
    def _heads_fit(self) -> "ModelConfig":
        check_heads(self.d_model, self.num_heads, self.kv_heads)
        if self.positions == "rotary" and self.d_head % 2:
            raise ValueError(
                _("positions: rotary rotates pairs, so d_model / num_heads = {d_head} must be even", d_head=self.d_head)
            )
        return self

    @property
    def kv_heads(self) -> int:
        """Number of key-value heads; by default the number of query heads."""
        return self.num_kv_heads or self.num_heads

    @property
    def d_head(self) -> int:
        """Width of one head, d_k."""
        return self.d_model // self.num_heads

    @property
    def hidden_width(self) -> int:
        """d_ff, or its default: 4 d_model; 8/3 d_model for swiglu, which has a third matrix."""
        return self.d_ff or (8 * self.d_model // 3 if self.feed_forward == "swiglu" else 4 * self.d_model)
