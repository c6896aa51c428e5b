"""Llama, Mistral and Qwen2 of transformers: RMSNorm, SwiGLU, rotary positions, shared keys and values."""

from typing import Any

from vitral.interop.form import Form
from vitral.interop.forms.common import allowing, head_rule
from vitral.interop.forms.rotary import read_rotary, write_rotary
from vitral.interop.rewrites import (
    even_biases,
    fold_scale,
    forget_training,
    with_attention,
    with_biases,
    with_feed_forward,
)
from vitral.interop.rules import Rule, by_layer, same, split
from vitral.interop.settings import Settings
from vitral.model import ModelConfig


def _read(settings: Settings, context_length: int = 2048, kv_heads: int | None = None) -> dict[str, Any]:
    """Ours of theirs; the arguments are the defaults of absent keys (None: as many as heads)."""
    settings.only(hidden_act="silu")
    width, heads = settings.count("hidden_size"), settings.count("num_attention_heads")
    projections, sublayer = settings.truth("attention_bias", False), settings.truth("mlp_bias", False)
    biases = {"qkv": projections, "output": projections, "feed_forward": sublayer}
    if "num_key_value_heads" in settings:  # null: as many as heads
        kv_heads = None
    return {
        "context_length": settings.count("max_position_embeddings", context_length),
        "d_model": width,
        "num_layers": settings.count("num_hidden_layers"),
        "num_heads": heads,
        "num_kv_heads": settings.count("num_key_value_heads", kv_heads or heads),
        "d_head": settings.count("head_dim", width // heads),
        "d_ff": settings.count("intermediate_size"),
        "norm_type": "rmsnorm",
        "norm_epsilon": settings.real("rms_norm_eps", 1e-6),
        "positions": read_rotary(settings),
        "feed_forward": "swiglu",
        "bias": biases if projections or sublayer else False,
        "tie_head": settings.truth("tie_word_embeddings", False),
    }


def _read_mistral(settings: Settings) -> dict[str, Any]:
    attention: dict[str, Any] = {}
    if "sliding_window" not in settings or settings.given("sliding_window"):
        attention = {"mask": {"name": "window", "size": settings.count("sliding_window", 4096)}}
    return {**_read(settings, 131_072, 8), "attention": attention}


def _read_qwen2(settings: Settings) -> dict[str, Any]:
    settings.only(use_sliding_window=False)
    settings.take("sliding_window")
    settings.take("max_window_layers")
    read = _read(settings, 32_768, 32)
    if settings.given("layer_types"):
        settings.only(layer_types=["full_attention"] * read["num_layers"])
    return {**read, "bias": _QWEN2}


def _write(config: ModelConfig) -> dict[str, Any]:
    return {
        "hidden_size": config.d_model,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.d_head,
        "intermediate_size": config.hidden_width,
        "max_position_embeddings": config.context_length,
        "rms_norm_eps": config.epsilon,
        "hidden_act": "silu",
        "attention_bias": config.biases.qkv,
        "mlp_bias": config.biases.feed_forward,
        "attention_dropout": 0.0,
        **write_rotary(config),
    }


def _write_mistral(config: ModelConfig) -> dict[str, Any]:
    mask = None if config.attention == "none" else config.attention.mask.of(0)
    written = {key: value for key, value in _write(config).items() if key not in ("attention_bias", "mlp_bias")}
    return {**written, "sliding_window": getattr(mask, "size", None)}


def _rules(config: ModelConfig) -> list[Rule]:
    sizes = [heads * config.d_head for heads in (config.num_heads, config.kv_heads, config.kv_heads)]
    biases = config.biases

    def block(layer: int) -> list[Rule]:
        ours, theirs = f"blocks.{layer}", f"model.layers.{layer}"
        rules = [
            same(f"{ours}.attn_norm.weight", f"{theirs}.input_layernorm.weight"),
            same(f"{ours}.mlp_norm.weight", f"{theirs}.post_attention_layernorm.weight"),
        ]
        for part in ("weight", *(["bias"] if biases.qkv else [])):
            names = [f"{theirs}.self_attn.{letter}_proj.{part}" for letter in "qkv"]
            rules.append(split(f"{ours}.attn.in_proj.{part}", names, sizes))
        for part in ("weight", *(["bias"] if biases.output else [])):
            rules.append(same(f"{ours}.attn.out_proj.{part}", f"{theirs}.self_attn.o_proj.{part}"))
        for part in ("weight", *(["bias"] if biases.feed_forward else [])):
            rules += [same(f"{ours}.mlp.{one}.{part}", f"{theirs}.mlp.{one}_proj.{part}") for one in _MATRICES]
        return rules

    return [
        same("token_embedding.weight", "model.embed_tokens.weight"),
        *by_layer(config.num_layers, block),
        same("final_norm.weight", "model.norm.weight"),
        *head_rule(config),
    ]


_MATRICES = ("gate", "up", "down")
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
    "rules": _rules,
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
    write=_write,
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
    write=_write_mistral,
    **_COMMON,
)
QWEN2 = Form(
    name="qwen2",
    model_type="qwen2",
    architecture="Qwen2ForCausalLM",
    allows={**_ALLOWS, **_NO_BIAS, "bias.qkv": (True,)},
    rewrites=(*_REWRITES, with_biases(**_QWEN2)),
    read=_read_qwen2,
    write=_write_mistral,
    **_COMMON,
)
