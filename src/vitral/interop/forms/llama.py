"""Llama, Mistral and Qwen2 of transformers, and rotary positions in configurations, old spellings and new."""

from collections.abc import Sequence
from typing import Any

from vitral.interop.foreign_settings import Settings
from vitral.interop.form import Form, Key, allowing
from vitral.interop.rewrites import (
    even_biases,
    fold_scale,
    forget_training,
    with_attention,
    with_biases,
    with_feed_forward,
)
from vitral.interop.rules import by_names
from vitral.model import ModelConfig

LLAMA3 = {
    "low_freq_factor": "low_frequency_factor",
    "high_freq_factor": "high_frequency_factor",
    "original_max_position_embeddings": "original_context_length",
}


def read_rotary(
    settings: Settings, *, base_key: str = "rope_theta", fraction_key: str | None = None, fraction: float = 1.0
) -> dict[str, Any]:
    """The table of `model.positions` for `rope_parameters`, or for the older keys.

    Args:
        settings: the configuration.
        base_key: the older key of the base.
        fraction_key: the older key of the share of a head that turns; None where it is always `fraction`.
        fraction: that share where none is given.

    Raises:
        UsageError: two keys contradict each other.
    """
    tables = [settings.inside(key) for key in ("rope_parameters", "rope_scaling") if settings.given(key)]
    bases = [*((table, "rope_theta") for table in tables), (settings, base_key)]
    shares = [*((table, "partial_rotary_factor") for table in tables), (settings, "partial_rotary_factor")]
    first_shares = [*shares[:-1], (settings, fraction_key)] if fraction_key else []
    result = {
        "name": "rotary",
        "base": _agreed(bases, [(settings, "rope_theta"), (settings, "rotary_emb_base")], 10_000.0),
        "fraction": _agreed(first_shares, [*shares, (settings, "rotary_pct")], fraction),
    }
    scalings = [_scaling(table) for table in tables]
    for table, scaling in zip(tables, scalings, strict=True):
        table.end()
        if scaling != scalings[0]:
            raise settings.contradiction("rope_scaling", scaling or "default", scalings[0] or "default")
    return result | ({"scaling": scalings[0]} if scalings and scalings[0] is not None else {})


Spelling = tuple[Settings, str]


def _agreed(spellings: Sequence[Spelling], others: Sequence[Spelling], default: float) -> float:
    """The number of the first of some keys that is given; the other spellings must say the same."""
    numbers = [(*one, one[0].real(one[1], default)) for one in [*spellings, *others] if one[0].given(one[1])]
    number = next((value for settings, key, value in numbers if (settings, key) in spellings), default)
    for settings, key, other in numbers:
        if other != number:
            raise settings.contradiction(key, other, number)
    return number


def _scaling(rope: Settings) -> dict[str, Any] | None:
    older = rope.take("type")
    name = rope.take("rope_type", "default" if older is None else older)
    if older not in (None, name):
        raise rope.contradiction("type", older, name)
    if name == "default":
        return None
    if name == "linear":
        return {"name": "linear", "factor": rope.real("factor", 1.0)}
    if name == "llama3":
        table: dict[str, Any] = {"name": "llama3", "factor": rope.real("factor", 8.0)}
        table |= {ours: rope.real(theirs, 1.0) for theirs, ours in LLAMA3.items() if ours != "original_context_length"}
        return table | {"original_context_length": rope.count("original_max_position_embeddings")}
    raise rope.refused("rope_type", name)


def write_rotary(config: ModelConfig) -> dict[str, Any]:
    """`rope_parameters`, and the older keys, which other readers know."""
    rotary = config.rotary
    if rotary is None:
        return {}
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": rotary.base}
    older: dict[str, Any] = {"rope_theta": rotary.base}
    if rotary.scaling is not None:
        plain = rotary.scaling.plain()
        theirs = {ours: name for name, ours in LLAMA3.items()}
        scaled = {theirs.get(key, key): value for key, value in plain.items() if key != "name"}
        rope |= {"rope_type": plain["name"], **scaled}
        older["rope_scaling"] = {"rope_type": plain["name"], **scaled}
    if rotary.fraction != 1:
        rope["partial_rotary_factor"] = older["partial_rotary_factor"] = rotary.fraction
    return {**older, "rope_parameters": rope}


def _read(settings: Settings, _plain: dict[str, Any]) -> dict[str, Any]:
    settings.only(hidden_act="silu")
    projections, sublayer = settings.truth("attention_bias", False), settings.truth("mlp_bias", False)
    biases = {"qkv": projections, "output": projections, "feed_forward": sublayer}
    return {
        "norm_type": "rmsnorm",
        "positions": read_rotary(settings),
        "feed_forward": "swiglu",
        "bias": biases if projections or sublayer else False,
    }


def _read_mistral(settings: Settings, plain: dict[str, Any]) -> dict[str, Any]:
    is_whole = not settings.given("sliding_window")
    mask = "causal" if is_whole else {"name": "window", "size": settings.count("sliding_window")}
    return {**_read(settings, plain), "attention": {"mask": mask}}


def _read_qwen2(settings: Settings, plain: dict[str, Any]) -> dict[str, Any]:
    settings.only(use_sliding_window=False)
    settings.take("sliding_window")
    settings.take("max_window_layers")
    if settings.given("layer_types"):
        settings.only(layer_types=["full_attention"] * plain["num_layers"])
    return {**_read(settings, plain), "bias": _QWEN2}


def _written(config: ModelConfig) -> dict[str, Any]:
    return {
        "hidden_act": "silu",
        "attention_bias": config.biases.qkv,
        "mlp_bias": config.biases.feed_forward,
        "attention_dropout": 0.0,
        **write_rotary(config),
    }


def _written_mistral(config: ModelConfig) -> dict[str, Any]:
    mask = None if config.attention == "none" else config.attention.mask.of(0)
    written = {key: value for key, value in _written(config).items() if key not in ("attention_bias", "mlp_bias")}
    return {**written, "sliding_window": getattr(mask, "size", None)}


_ALLOWS = allowing(
    {
        "norm_type": ("rmsnorm",),
        "positions": ("rotary",),
        "positions.pairing": ("halves",),
        "positions.fraction": (1,),
        "feed_forward": ("swiglu",),
        "num_kv_heads": None,
        "d_head": None,
    }
)


_COMMON: dict[str, Any] = {
    "keys": (
        Key("hidden_size", "d_model"),
        Key("num_hidden_layers", "num_layers"),
        Key("num_attention_heads", "num_heads"),
        Key("num_key_value_heads", "num_kv_heads", lambda plain: plain["num_heads"]),
        Key("head_dim", "d_head", lambda plain: plain["d_model"] // plain["num_heads"]),
        Key("intermediate_size", "d_ff"),
        Key("max_position_embeddings", "context_length"),
        Key("rms_norm_eps", "norm_epsilon", 1e-6),
    ),
    "rules": by_names(
        {
            "token_embedding": "model.embed_tokens",
            "blocks.{layer}.attn_norm": "model.layers.{layer}.input_layernorm",
            "blocks.{layer}.mlp_norm": "model.layers.{layer}.post_attention_layernorm",
            "blocks.{layer}.attn.in_proj": tuple(f"model.layers.{{layer}}.self_attn.{letter}_proj" for letter in "qkv"),
            "blocks.{layer}.attn.out_proj": "model.layers.{layer}.self_attn.o_proj",
            "blocks.{layer}.mlp.gate": "model.layers.{layer}.mlp.gate_proj",
            "blocks.{layer}.mlp.up": "model.layers.{layer}.mlp.up_proj",
            "blocks.{layer}.mlp.down": "model.layers.{layer}.mlp.down_proj",
            "final_norm": "model.norm",
            "head": "lm_head",
        }
    ),
    "embedding": "model.embed_tokens.weight",
    "prefix": "model.",
    "ignored": (".rotary_emb.inv_freq",),
    "ties": False,
}
_REWRITES = (forget_training, with_attention, with_feed_forward("swiglu"), fold_scale("sqrt"))
LLAMA = Form(
    name="llama",
    model_type="llama",
    architecture="LlamaForCausalLM",
    allows=_ALLOWS,
    rewrites=(*_REWRITES, with_biases(qkv=False, output=False, feed_forward=False), even_biases),
    read=_read,
    written=_written,
    absent={"max_position_embeddings": 2048},
    **_COMMON,
)
_NO_BIAS = {"bias.output": (False,), "bias.feed_forward": (False,)}
_QWEN2 = {"qkv": True, "output": False, "feed_forward": False}
MISTRAL = Form(
    name="mistral",
    model_type="mistral",
    architecture="MistralForCausalLM",
    allows={**_ALLOWS, **_NO_BIAS, "attention.mask": ("window", "causal"), "bias.qkv": (False,)},
    rewrites=(*_REWRITES, with_biases(qkv=False, output=False, feed_forward=False)),
    read=_read_mistral,
    written=_written_mistral,
    absent={"max_position_embeddings": 131_072, "num_key_value_heads": 8, "sliding_window": 4096},
    **_COMMON,
)
QWEN2 = Form(
    name="qwen2",
    model_type="qwen2",
    architecture="Qwen2ForCausalLM",
    allows={**_ALLOWS, **_NO_BIAS, "bias.qkv": (True,)},
    rewrites=(*_REWRITES, with_biases(**_QWEN2)),
    read=_read_qwen2,
    written=_written_mistral,
    absent={"max_position_embeddings": 32_768, "num_key_value_heads": 32},
    **_COMMON,
)
