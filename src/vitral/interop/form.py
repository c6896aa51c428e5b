"""A form: another library's model, as far as it is one of Vitral's, in both directions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from vitral.core.config import shown
from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.interop.foreign_settings import Settings
from vitral.interop.rewrites import (
    Rewrite,
    Weighted,
    fold_scale,
    forget_training,
    positions_as_table,
    with_attention,
    with_feed_forward,
    with_own_keys,
)
from vitral.interop.rules import Rule
from vitral.model import ModelConfig

UNCHANGED = ("norm", "norm_type", "embedding_norm", "head_transform", "recurrence", "residual")
"""Keys that no rewrite changes."""


class Inexpressible(UsageError):
    """A model that a form cannot express.

    Attributes:
        distance: how many of the properties that the form lacks no rewrite changes, and how many it lacks at all.
    """

    def __init__(self, form: "Form", refused: Mapping[str, Any]) -> None:
        """Name the first of the properties, its value and the values that the form has."""
        self.distance = sum(key in UNCHANGED for key in refused), len(refused)
        key = min(refused, key=lambda key: key not in UNCHANGED)
        super().__init__(
            "{form}: {key} = {value} cannot be expressed in this form, which has {known}",
            form=form.name,
            key=key,
            value=shown(refused[key]),
            known=_(" or ").join(map(shown, form.allows[key])),
        )


Prepare = Callable[[dict[str, Tensor], Settings], dict[str, Tensor]]
ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "relu": "relu",
    "relu2": "squared_relu",
}
THEIRS = {"gelu_tanh": "gelu_new", "gelu": "gelu", "relu": "relu", "squared_relu": "relu2"}


@dataclass(frozen=True)
class Key:
    """A key of a foreign configuration that says what a key of ours says.

    Attributes:
        theirs: their key.
        ours: ours.
        default: the value where theirs is absent, which also tells its kind: a count, a number, true or false, an
            activation; None if it must be given; a function of what the keys before it said, for a count.
    """

    theirs: str
    ours: str
    default: Any = None

    def read(self, settings: Settings, plain: dict[str, Any]) -> Any:
        """The value in a foreign configuration, after those of earlier keys."""
        default: Any = self.default(plain) if callable(self.default) else self.default
        if isinstance(default, bool):
            return settings.truth(self.theirs, default)
        if isinstance(default, float):
            return settings.real(self.theirs, default)
        if isinstance(default, str):
            return settings.choice(self.theirs, ACTIVATIONS, default)
        return settings.count(self.theirs, default)

    def write(self, config: ModelConfig) -> Any:
        """The value for a model of ours."""
        if self.ours == "feed_forward":
            return THEIRS[str(config.feed_forward)]
        names = {"d_ff": "hidden_width", "norm_epsilon": "epsilon", "num_kv_heads": "kv_heads"}
        value = getattr(config, names.get(self.ours, self.ours))
        return bool(value) if isinstance(self.default, bool) else value


def sizes(**theirs: int | None) -> Iterator[Key]:
    """The keys of context_length, d_model, num_layers and num_heads, in this order, with their defaults."""
    ours = ("context_length", "d_model", "num_layers", "num_heads")
    for (name, default), key in zip(theirs.items(), ours, strict=True):
        yield Key(name, key, default)


@dataclass(frozen=True)
class Form:
    """A foreign model: its configuration, its names, and what of ours it can express.

    Attributes:
        name: what users type after `--to`.
        model_type: its name in `config.json`.
        architecture: its class in transformers.
        allows: keys of our configuration (`facts`) and the values that it can express.
        rewrites: changes of our model that keep the function, tried before an export is refused.
        keys: the keys of its configuration that say one of ours.
        read: its other keys → ours as plain data; given what `keys` said. Every key is taken.
        written: ours → its other keys, without those common to all forms.
        rules: the map of names for a configuration.
        head: the name of its head's matrix.
        embedding: the name of its token embedding.
        prefix: that some files leave out of their names.
        ignored: ends of the names of its constants, and of weights that no logit needs.
        aliases: other names of a tensor in files of other versions.
        prepare: changes its tensors and its configuration before they are read (import only).
        ties: whether its head is its embedding where `tie_word_embeddings` is not given.
        absent: its values of keys that are not given; null is a value of its own there.
    """

    name: str
    model_type: str
    architecture: str
    allows: Mapping[str, Sequence[Any]]
    rewrites: Sequence[Rewrite]
    keys: Sequence[Key]
    read: Callable[[Settings, dict[str, Any]], dict[str, Any]]
    written: Callable[[ModelConfig], dict[str, Any]]
    rules: Callable[[ModelConfig], list[Rule]]
    embedding: str
    head: str = "lm_head.weight"
    prefix: str = ""
    ignored: Sequence[str] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    prepare: Prepare | None = None
    ties: bool = True
    absent: Mapping[str, Any] = field(default_factory=dict)

    def config(self, settings: Settings) -> ModelConfig:
        """Our configuration of a foreign one, every key of which is understood.

        Raises:
            UsageError: a key is unknown, or Vitral cannot express its value.
        """
        settings.only(is_causal=True, add_cross_attention=False, pruned_heads={})
        for key, value in self.absent.items():
            if key not in settings:
                settings.add(key, value)
        plain: dict[str, Any] = {"tie_head": settings.truth("tie_word_embeddings", self.ties)}
        for key in self.keys:
            plain[key.ours] = key.read(settings, plain)
        plain |= self.read(settings, plain)
        settings.take("is_decoder")
        settings.end()
        return ModelConfig.parse(plain, settings.where)

    def write(self, config: ModelConfig) -> dict[str, Any]:
        """The foreign configuration of a model that the form can express."""
        return {key.theirs: key.write(config) for key in self.keys} | self.written(config)

    def said(self, model: Weighted) -> Weighted:
        """The model, rewritten until this form can express it.

        Raises:
            Inexpressible: it cannot be expressed.
        """
        if self._refused(model).keys().isdisjoint(UNCHANGED):
            for rewrite in self.rewrites:
                model = rewrite(model)
        if refused := self._refused(model):
            raise Inexpressible(self, refused)
        return model

    def _refused(self, model: Weighted) -> dict[str, Any]:
        known = facts(model.config).items()
        return {key: value for key, value in known if key in self.allows and value not in self.allows[key]}

    def named(self, tensors: Mapping[str, Tensor], *, tied: bool, where: str) -> dict[str, Tensor]:
        """Its tensors by their full names, without constants and without a second copy of a tied head.

        Raises:
            UsageError: the head is tied to the embedding, and the file has another one.
        """
        weights = {name: tensor for name, tensor in tensors.items() if not name.endswith(tuple(self.ignored))}
        if self.prefix and not any(name.startswith(self.prefix) for name in weights):
            weights = {name if name == self.head else self.prefix + name: tensor for name, tensor in weights.items()}
        weights = {self.aliases.get(name, name): tensor for name, tensor in weights.items()}
        if tied and self.head in weights:
            head = weights.pop(self.head)
            if self.embedding in weights and not head.equal(weights[self.embedding]):
                raise UsageError(
                    "{where}: its head is tied to its embedding, but {name} is another matrix",
                    where=where,
                    name=self.head,
                )
        return weights


NORM_EPSILON = 1e-5
USUAL_WIDTH, SOME = "4 d_model", "1 or more"


def facts(config: ModelConfig) -> dict[str, Any]:
    """The properties of a configuration that a form may not be able to express, by key."""
    attention, biases = config.attention, config.biases
    layers = range(config.num_layers)
    masks: list[Any] = [] if attention == "none" else [attention.mask.of(layer) for layer in layers]
    windows = [mask for mask in masks if getattr(mask, "name", "own") == "window"]
    rotary = config.rotary
    return {
        "norm": "post, final_norm" if config.norm == "post" and config.has_final_norm else config.norm,
        "norm_type": _called(config.norm_type),
        "norm_epsilon": None if config.epsilon == NORM_EPSILON else config.epsilon,
        "final_norm": config.has_final_norm,
        "embedding_norm": bool(config.embedding_norm),
        "head_transform": bool(config.head_transform),
        "positions": _called(config.positions),
        "positions.pairing": None if rotary is None else rotary.pairing,
        "positions.fraction": None if rotary is None else rotary.fraction,
        "positions.scaling": None if rotary is None or rotary.scaling is None else rotary.scaling.name,
        "attention": "none" if attention == "none" else "softmax",
        "attention.mask": _one_mask([getattr(mask, "name", "own") for mask in masks]),
        "attention.windows": len({mask.size for mask in windows}),
        "attention.scale": None if attention == "none" else getattr(attention.scale, "name", attention.scale),
        "recurrence": config.recurrence,
        "feed_forward": _called(config.feed_forward),
        "residual": config.residual,
        "parallel": bool(config.parallel),
        "num_kv_heads": config.kv_heads if config.kv_heads != config.num_heads else None,
        "num_heads": config.num_heads,
        "num_layers": SOME if config.num_layers else 0,
        "d_ff": USUAL_WIDTH if config.hidden_width == 4 * config.d_model else config.hidden_width,
        "d_head": config.d_head if config.d_head * config.num_heads != config.d_model else None,
        "bias.qkv": biases.qkv,
        "bias.output": biases.output,
        "bias.feed_forward": biases.feed_forward,
        "bias.norm": biases.norm,
        "bias.head": biases.head,
        "tie_head": config.tie_head,
    }


def _called(part: Any) -> str:
    return str(getattr(part, "name", part))


def _one_mask(masks: Sequence[str]) -> str:
    """The mask of all blocks; "by-layer" where causal and windowed blocks take turns, else the first other one."""
    if len(set(masks)) <= 1:
        return next(iter(masks), "causal")
    return next((mask for mask in masks if mask not in ("causal", "window")), "by-layer")


BIASES = {"qkv": True, "output": True, "feed_forward": True, "norm": True}
"""A bias everywhere but at the head."""
_USUAL: dict[str, tuple[Any, ...]] = {
    "norm": ("pre",),
    "norm_type": ("layernorm",),
    "final_norm": (True,),
    "embedding_norm": (False,),
    "head_transform": (False,),
    "positions": ("learned",),
    "attention": ("softmax",),
    "attention.mask": ("causal",),
    "attention.windows": (0, 1),
    "attention.scale": ("sqrt",),
    "recurrence": (None,),
    "feed_forward": tuple(THEIRS),
    "residual": (True,),
    "parallel": (False,),
    "num_kv_heads": (None,),
    "d_head": (None,),
    "bias.head": (False,),
}


def allowing(others: Mapping[str, tuple[Any, ...] | None]) -> dict[str, tuple[Any, ...]]:
    """The values that a form can express.

    Args:
        others: keys whose values are not the usual ones; None for any value.
    """
    return {key: values for key, values in {**_USUAL, **others}.items() if values is not None}


def usual_rewrites(*, biases: Rewrite, has_table: bool = True, scale: str = "sqrt") -> tuple[Rewrite, ...]:
    """The rewritings that a form with heads of their own keys tries.

    Args:
        biases: the rewriting to the biases that the form has.
        has_table: whether its positions are a table.
        scale: the scale of its scores.
    """
    return (
        forget_training,
        *([positions_as_table] if has_table else []),
        with_attention,
        with_feed_forward("gelu"),
        biases,
        with_own_keys,
        fold_scale(scale),
    )
