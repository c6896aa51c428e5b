"""Llama, Mistral and Qwen2 of transformers: RMSNorm, SwiGLU, rotary positions, shared keys and values."""

from typing import Any

from vitral.interop.foreign_settings import Settings
from vitral.interop.form import Form, Key
from vitral.interop.forms.common import allowing
from vitral.interop.forms.rotary import read_rotary, write_rotary
from vitral.interop.rewrites import (
    even_biases,
    fold_scale,
    forget_training,
    with_attention,
    with_biases,
    with_feed_forward,
)
from vitral.interop.rules import Place, by_names
from vitral.model import ModelConfig


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
            "blocks.{layer}.attn.in_proj": Place(
                name=tuple(f"model.layers.{{layer}}.self_attn.{letter}_proj" for letter in "qkv")
            ),
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
