"""GPT-Neo of transformers: scores without a scale, causal and windowed blocks in turn, no biases of q, k and v."""

from itertools import chain
from typing import Any

from vitral.interop.foreign_settings import Settings
from vitral.interop.form import Form, Key
from vitral.interop.forms.common import BIASES, allowing, usual_rewrites
from vitral.interop.rewrites import with_biases
from vitral.interop.rules import Place, by_names
from vitral.model import ModelConfig


def _read(settings: Settings, plain: dict[str, Any]) -> dict[str, Any]:
    layers = plain["num_layers"]
    window = {"name": "window", "size": settings.count("window_size", 256)}
    known = {"global": {"name": "causal"}, "local": window}
    are_typed = settings.given("attention_types")
    types = settings.take("attention_types", [[["global", "local"], 12]])
    listed = settings.take("attention_layers")
    try:
        kinds = listed or _expanded(types, layers)
        expanded = _expanded(types, layers) if are_typed else kinds
        masks = [known[kind] for kind in kinds]
    except (TypeError, KeyError, ValueError):
        raise settings.refused("attention_types", types) from None
    if len(masks) != layers:
        raise settings.refused("attention_layers", kinds)
    if kinds != expanded:
        raise settings.contradiction("attention_layers", kinds, expanded)
    mask = masks[0] if all(one == masks[0] for one in masks) else {"name": "by-layer", "masks": masks}
    return {"attention": {"mask": mask, "scale": "none"}, "bias": {"qkv": False}}


def _expanded(types: Any, layers: int) -> list[str]:
    """The kind of each block. The count comes first, because a short file can ask for an enormous list."""
    if any(times < 0 for _names, times in types) or sum(len(names) * times for names, times in types) != layers:
        raise ValueError
    return list(chain.from_iterable(names * times for names, times in types))


def _written(config: ModelConfig) -> dict[str, Any]:
    attention: Any = config.attention
    masks = [attention.mask.of(layer) for layer in range(config.num_layers)]
    kinds = ["local" if mask.name == "window" else "global" for mask in masks]
    sizes = [mask.size for mask in masks if mask.name == "window"]
    return {
        "attention_types": [[[kind], 1] for kind in kinds],
        "attention_layers": kinds,
        "window_size": sizes[0] if sizes else 256,
        "attention_dropout": 0.0,
        "embed_dropout": 0.0,
        "resid_dropout": 0.0,
    }


GPT_NEO = Form(
    name="gpt-neo",
    model_type="gpt_neo",
    architecture="GPTNeoForCausalLM",
    allows=allowing(
        {"attention.mask": ("causal", "window", "by-layer"), "attention.scale": ("none",), "bias.qkv": (False,)}
    ),
    rewrites=usual_rewrites(biases=with_biases(**(BIASES | {"qkv": False})), scale="none"),
    keys=(
        Key("max_position_embeddings", "context_length", 2048),
        Key("hidden_size", "d_model", 2048),
        Key("num_layers", "num_layers", 24),
        Key("num_heads", "num_heads", 16),
        Key("intermediate_size", "d_ff", lambda plain: 4 * plain["d_model"]),
        Key("activation_function", "feed_forward", "gelu_new"),
        Key("layer_norm_epsilon", "norm_epsilon", 1e-5),
    ),
    read=_read,
    written=_written,
    rules=by_names(
        {
            "token_embedding": "transformer.wte",
            "positions": "transformer.wpe",
            "blocks.{layer}.attn.in_proj": Place(
                name=tuple(f"transformer.h.{{layer}}.attn.attention.{letter}_proj" for letter in "qkv")
            ),
            "blocks.{layer}.attn.out_proj": "transformer.h.{layer}.attn.attention.out_proj",
            "blocks.{layer}.mlp.up": "transformer.h.{layer}.mlp.c_fc",
            "blocks.{layer}.mlp.down": "transformer.h.{layer}.mlp.c_proj",
            "blocks.{layer}.attn_norm": "transformer.h.{layer}.ln_1",
            "blocks.{layer}.mlp_norm": "transformer.h.{layer}.ln_2",
            "final_norm": "transformer.ln_f",
            "head": "lm_head",
        }
    ),
    embedding="transformer.wte.weight",
    prefix="transformer.",
    ignored=(".attn.attention.bias", ".attn.attention.masked_bias"),
)
