"""The configuration of a model."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    InstanceOf,
    WrapValidator,
    model_serializer,
    model_validator,
)

from vitral.attention.masks import Bidirectional, ByLayer, Causal, MaskConfig
from vitral.attention.multihead import check_heads
from vitral.attention.scales import ScaleConfig
from vitral.core.config import Config
from vitral.core.language import _
from vitral.core.parts import OwnPart
from vitral.model.activations import ACTIVATIONS, Activation
from vitral.model.settings import ROTARY, Bias, BiasConfig, RotaryConfig, biases_of, plain_rotary, rotary_table

Count = Annotated[int, Field(ge=1, le=2**24)]
Layers = Annotated[int, Field(ge=0, le=10_000)]
Rate = Annotated[float, Field(ge=0, lt=1)]
NormType = Literal["layernorm", "rmsnorm"]
PositionsName = Literal["learned", "sinusoidal", "rotary", "alibi", "relative", "none"]
NORM_EPSILON = 1e-5


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
    built_in = (*ACTIVATIONS, "none")


def _norm_placement(norm: Any) -> Any:
    """The name of a norm is refused where its place is expected."""
    name = norm.get("name") if isinstance(norm, dict) else norm
    if isinstance(name, str) and (name in OwnNorm.built_in or OwnNorm.named(name)):
        raise ValueError(
            _("norm is the place of the norms (pre, post, none); write norm_type = {name!r} for their kind", name=name)
        )
    return norm


def _positions(value: Any) -> Any:
    """A table of rotary positions stays one; every other kind is a name."""
    return value if rotary_table(value) else OwnPositions.choose(value)


def _unless(default: object) -> AfterValidator:
    """A default that is written out is left out."""
    return AfterValidator(lambda value: None if value == default else value)


def _none_until_known(value: Any, validate: Callable[[Any], Any]) -> Any:
    return None if value is None else validate(value)


class AttentionConfig(Config):
    """Mask and scale of attention.

    Attributes:
        mask: "causal", "bidirectional", {name = "prefix", length = n} or {name = "window", size = n}; an own one; or a
            list of Vitral's masks, repeated over the blocks.
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
    """A Transformer of one of three shapes.

    An own part (`vitral.core.parts`) is a name, or a table with its name and settings.

    Attributes:
        shape: "decoder"; "encoder", whose positions see each other unless a mask is given; or "encoder-decoder", whose
            decoder also attends to the states of an encoder that reads a source.
        context_length: maximum number of tokens in the model's input, or in the decoder's.
        source_length: encoder-decoder only: maximum number of tokens of a source. Default: context_length.
        d_model: width of the residual stream.
        num_layers: number of blocks, or of the decoder's.
        encoder_layers: encoder-decoder only: number of the encoder's blocks. Default: num_layers.
        num_heads: query heads; they must divide d_model.
        num_kv_heads: key-value heads; they must divide num_heads. Default: num_heads.
        d_head: width of one head, d_k. Default: d_model / num_heads.
        d_ff: width of the feed-forward's hidden layer. Default: 4 d_model, or 8/3 d_model for swiglu.
        norm: "pre" (with a final norm), "post", or "none".
        norm_type: "layernorm", "rmsnorm" or an own one.
        norm_epsilon: added to the variance or the mean square in every norm. Default: 1e-5.
        final_norm: whether a norm follows the last block. Default: only with norm = "pre".
        embedding_norm: whether a norm follows the sum of the embeddings (BERT). Default: false.
        positions: "learned", "sinusoidal", "rotary", "alibi", "relative", "none" or an own one; rotary with settings is
            a table of `RotaryConfig`.
        attention: its mask and scale, or "none" for blocks without attention.
        recurrence: "lstm" for an LSTM layer of width d_model in the place of attention, which must then be "none".
            Default: none.
        feed_forward: the activation, "gelu", "gelu_tanh", "relu", "squared_relu", "swiglu" or an own one; "none"; or an
            own feed-forward.
        residual: whether a sublayer's output is added to its input or replaces it.
        parallel: whether attention and feed-forward read the same stream, x + attn(norm(x)) + mlp(norm(x)), each with
            its own norm (GPT-NeoX), instead of one after the other. Default: false.
        tie_head: whether the head's matrix is the token embedding's.
        head_transform: whether the head reads norm(φ(linear(x))), with the activation φ of the feed-forward (BERT).
            Default: false.
        bias: whether projections and norms have biases, or a table of `BiasConfig`; only there the head may have one.
        dropout: one rate for every place, or a table of `DropoutConfig`.
        initialisation: "gpt2", "wide", "pytorch" or "lecun"; see `vitral.model.initialisation`.
        parametrisation: {name = "mup", base_width = n}: initial values and AdamW's learning rates change with the width
            so that a rate tuned at the base width suits every width. Default: the standard one.
        num_labels: encoder only: the head has one row for each of so many labels of a sequence instead of one for each
            token, and reads the mean of the last states. A run sets it from its data. Default: none.
    """

    shape: Literal["decoder", "encoder", "encoder-decoder"] = "decoder"
    context_length: Count = 50
    source_length: Count | None = None
    d_model: Count = 128
    num_layers: Layers = 2
    encoder_layers: Layers | None = None
    num_heads: Count = 2
    num_kv_heads: Count | None = None
    # Unset until `_shape_has_its_parts` knows d_model and num_heads; a number afterwards.
    d_head: Annotated[Count, WrapValidator(_none_until_known)] = cast("int", None)
    d_ff: Count | None = None
    norm: Annotated[Literal["pre", "post", "none"], BeforeValidator(_norm_placement)] = "pre"
    norm_type: Annotated[NormType | InstanceOf[OwnNorm], BeforeValidator(OwnNorm.choose)] = "layernorm"
    norm_epsilon: Annotated[Annotated[float, Field(gt=0, le=1)] | None, _unless(NORM_EPSILON)] = None
    final_norm: bool | None = None
    embedding_norm: Annotated[bool | None, _unless(False)] = None
    positions: Annotated[
        PositionsName | RotaryConfig | InstanceOf[OwnPositions],
        BeforeValidator(_positions),
        AfterValidator(plain_rotary),
    ] = "learned"
    attention: AttentionConfig | Literal["none"] = AttentionConfig()
    recurrence: Literal["lstm"] | None = None
    feed_forward: Annotated[str | InstanceOf[OwnFeedForward], BeforeValidator(OwnFeedForward.choose)] = "gelu"
    residual: bool = True
    parallel: Annotated[bool | None, _unless(False)] = None
    tie_head: bool = False
    head_transform: Annotated[bool | None, _unless(False)] = None
    bias: Bias = True
    dropout: Annotated[DropoutConfig, BeforeValidator(_everywhere)] = DropoutConfig()
    initialisation: Literal["gpt2", "wide", "pytorch", "lecun"] = "gpt2"
    parametrisation: MaximalUpdate | None = None
    num_labels: Count | None = None

    @model_validator(mode="after")
    def _shape_has_its_parts(self) -> "ModelConfig":
        both = self.shape == "encoder-decoder"
        if both and self.attention == "none":
            raise ValueError(_("shape: an encoder-decoder needs attention, by which its decoder reads the source"))
        for key in ("source_length", "encoder_layers"):
            if not both and getattr(self, key) is not None:
                raise ValueError(_('{key}: only a model with shape = "encoder-decoder" has it; leave it out', key=key))
        if self.num_labels and (self.shape != "encoder" or self.tie_head):
            raise ValueError(_('num_labels: needs shape = "encoder" and tie_head = false'))
        if self.shape == "encoder" and self.attention != "none" and "mask" not in self.attention.model_fields_set:
            opened = self.attention.model_copy(update={"mask": Bidirectional()})
            object.__setattr__(self, "attention", opened)
        for key, usual in self._usual.items():
            if getattr(self, key) is None:
                object.__setattr__(self, key, usual)
        return self

    @model_validator(mode="after")
    def _positions_are_mixed_once(self) -> "ModelConfig":
        if self.recurrence is not None and self.attention != "none":
            raise ValueError(
                _('recurrence: the {name} takes the place of attention; set attention = "none"', name=self.recurrence)
            )
        return self

    @model_validator(mode="after")
    def _head_fits(self) -> "ModelConfig":
        if self.head_transform and (not self.activation or self.activation.gated):
            raise ValueError(_("head_transform: takes the activation of a feed-forward without a gate"))
        if self.parametrisation is not None and self.tie_head:
            raise ValueError(
                _("parametrisation: mup gives the head another size than the embedding; set tie_head = false")
            )
        return self

    @model_validator(mode="after")
    def _heads_fit(self) -> "ModelConfig":
        check_heads(self.d_model, self.num_heads, self.kv_heads, cast("int | None", self.d_head))
        turning = 2 if self.rotary is None else self.rotary.width(self.d_head)
        if turning == self.d_head and turning % 2:
            raise ValueError(
                _("positions: rotary rotates pairs, so d_model / num_heads = {d_head} must be even", d_head=self.d_head)
            )
        if turning % 2 or not turning:
            raise ValueError(
                _(
                    "positions: rotary rotates pairs, so the fraction of the {d_head} features of a head must be an "
                    "even number of them, not {turning}",
                    d_head=self.d_head,
                    turning=turning,
                )
            )
        return self

    @model_validator(mode="after")
    def _norms_are_there(self) -> "ModelConfig":
        if self.norm_epsilon is not None and (self.norm == "none" or isinstance(self.norm_type, OwnNorm)):
            raise ValueError(_("norm_epsilon: is of layernorm and rmsnorm; this model has neither"))
        if self.final_norm and self.norm == "none":
            raise ValueError(_('final_norm: a model with norm = "none" has no norms; leave it out'))
        if self.final_norm == (self.norm == "pre"):
            object.__setattr__(self, "final_norm", None)
        return self

    @model_validator(mode="after")
    def _sublayers_are_side_by_side(self) -> "ModelConfig":
        if self.parallel and (self.attention == "none" or self.feed_forward == "none"):
            raise ValueError(_("parallel: needs attention and a feed-forward; leave it out"))
        if self.parallel and (self.norm == "post" or not self.residual):
            raise ValueError(
                _('parallel: both outputs are added to the stream; set residual = true and norm = "pre" or "none"')
            )
        return self

    @model_validator(mode="after")
    def _bias_table_fits(self) -> "ModelConfig":
        if isinstance(self.bias, BiasConfig) and self.recurrence is not None:
            raise ValueError(_("bias: with an LSTM it is true or false, not a table"))
        return self

    @model_validator(mode="after")
    def _every_mask_has_a_block(self) -> "ModelConfig":
        mask = None if self.attention == "none" else self.attention.mask
        if isinstance(mask, ByLayer) and len(mask.masks) > self.num_layers:
            raise ValueError(
                _(
                    "attention.mask: {count} masks for num_layers = {layers}; a list is repeated over the blocks, so "
                    "it has at most one mask for each",
                    count=len(mask.masks),
                    layers=self.num_layers,
                )
            )
        return self

    @model_serializer(mode="wrap")
    def _without_what_follows(self, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        plain = handler(self)
        for key, usual in {**self._usual, "shape": "decoder"}.items():
            if getattr(self, key) == usual:
                plain.pop(key, None)
        return plain

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> "ModelConfig":
        """A copy with other values; what follows from others, as d_head from d_model, follows from the new ones."""
        made = super().model_copy(update=update, deep=deep)
        for key, usual in self._usual.items():
            if getattr(self, key) == usual and key not in (update or {}):
                object.__setattr__(made, key, made._usual.get(key, usual))
        return made

    @property
    def _usual(self) -> dict[str, int]:
        """The values of keys that follow from others where they are not given."""
        usual = {} if self.d_model % self.num_heads else {"d_head": self.d_model // self.num_heads}
        if self.shape == "encoder-decoder":
            usual |= {"source_length": self.context_length, "encoder_layers": self.num_layers}
        return usual

    @property
    def encoder(self) -> "ModelConfig | None":
        """The encoder of an encoder-decoder as a model of its own; None of another shape."""
        if self.shape != "encoder-decoder" or self.attention == "none":
            return None
        attention = self.attention.model_copy(update={"mask": Bidirectional()})
        sizes = {"context_length": self.source_length, "num_layers": self.encoder_layers}
        own = {"shape": "encoder", "source_length": None, "encoder_layers": None}
        return self.model_copy(update={**own, **sizes, "attention": attention})

    @property
    def kv_heads(self) -> int:
        """Number of key-value heads; by default the number of query heads."""
        return self.num_kv_heads or self.num_heads

    @property
    def epsilon(self) -> float:
        """The ε of every norm."""
        return NORM_EPSILON if self.norm_epsilon is None else self.norm_epsilon

    @property
    def has_final_norm(self) -> bool:
        """Whether a norm follows the last block."""
        return self.norm == "pre" if self.final_norm is None else self.final_norm

    @property
    def biases(self) -> BiasConfig:
        """Which projections and norms have biases."""
        return biases_of(self.bias)

    @property
    def rotary(self) -> RotaryConfig | None:
        """The settings of rotary positions; None if the positions are of another kind."""
        if isinstance(self.positions, RotaryConfig):
            return self.positions
        return ROTARY if self.positions == "rotary" else None

    @property
    def hidden_width(self) -> int:
        """d_ff, or its default: 4 d_model; 8/3 d_model for swiglu, which has a third matrix."""
        return self.d_ff or int(self.d_model * (4 if self.activation is None else self.activation.width))

    @property
    def activation(self) -> Activation | None:
        """The activation of the feed-forward; None if it is an own one, or there is no feed-forward."""
        return None if isinstance(self.feed_forward, OwnFeedForward) else ACTIVATIONS.get(self.feed_forward)
