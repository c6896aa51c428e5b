"""GPT-Neo of transformers: scores without a scale, causal and windowed blocks in turn, no biases of q, k and v."""

from itertools import chain
from typing import Any

from vitral.interop.form import Form
from vitral.interop.forms.common import ACTIVATIONS, BIASES, THEIRS, allowing, head_rule, usual_rewrites
from vitral.interop.rewrites import with_biases
from vitral.interop.rules import Rule, by_layer, same, split
from vitral.interop.settings import Settings
from vitral.model import ModelConfig


def _read(settings: Settings) -> dict[str, Any]:
    width, layers = settings.count("hidden_size", 2048), settings.count("num_layers", 24)
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
    return {
        "context_length": settings.count("max_position_embeddings", 2048),
        "d_model": width,
        "num_layers": layers,
        "num_heads": settings.count("num_heads", 16),
        "d_ff": settings.count("intermediate_size", 4 * width),
        "feed_forward": settings.choice("activation_function", ACTIVATIONS, "gelu_new"),
        "norm_epsilon": settings.real("layer_norm_epsilon", 1e-5),
        "attention": {"mask": mask, "scale": "none"},
        "bias": {"qkv": False},
        "tie_head": settings.truth("tie_word_embeddings", True),
    }


def _expanded(types: Any, layers: int) -> list[str]:
    """The kind of each block. The count comes first, because a short file can ask for an enormous list."""
    if any(times < 0 for _names, times in types) or sum(len(names) * times for names, times in types) != layers:
        raise ValueError
    return list(chain.from_iterable(names * times for names, times in types))


def _write(config: ModelConfig) -> dict[str, Any]:
    attention: Any = config.attention
    masks = [attention.mask.of(layer) for layer in range(config.num_layers)]
    kinds = ["local" if mask.name == "window" else "global" for mask in masks]
    sizes = [mask.size for mask in masks if mask.name == "window"]
    return {
        "max_position_embeddings": config.context_length,
        "hidden_size": config.d_model,
        "num_layers": config.num_layers,
        "num_heads": config.num_heads,
        "intermediate_size": config.hidden_width,
        "activation_function": THEIRS[str(config.feed_forward)],
        "layer_norm_epsilon": config.epsilon,
        "attention_types": [[[kind], 1] for kind in kinds],
        "attention_layers": kinds,
        "window_size": sizes[0] if sizes else 256,
        "attention_dropout": 0.0,
        "embed_dropout": 0.0,
        "resid_dropout": 0.0,
    }


def _rules(config: ModelConfig) -> list[Rule]:
    sizes = [config.d_model] * 3

    def block(layer: int) -> list[Rule]:
        ours, theirs = f"blocks.{layer}", f"transformer.h.{layer}"
        names = [f"{theirs}.attn.attention.{letter}_proj.weight" for letter in "qkv"]
        rules = [split(f"{ours}.attn.in_proj.weight", names, sizes)]
        for part in ("weight", "bias"):
            rules += [same(f"{ours}.{one}.{part}", f"{theirs}.{other}.{part}") for one, other in _NAMES.items()]
        return rules

    return [
        same("token_embedding.weight", "transformer.wte.weight"),
        same("positions.weight", "transformer.wpe.weight"),
        *by_layer(config.num_layers, block),
        same("final_norm.weight", "transformer.ln_f.weight"),
        same("final_norm.bias", "transformer.ln_f.bias"),
        *head_rule(config),
    ]


_NAMES = {
    "attn.out_proj": "attn.attention.out_proj",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
    "attn_norm": "ln_1",
    "mlp_norm": "ln_2",
}
GPT_NEO = Form(
    name="gpt-neo",
    model_type="gpt_neo",
    architecture="GPTNeoForCausalLM",
    allows=allowing(
        {"attention.mask": ("causal", "window", "by-layer"), "attention.scale": ("none",), "bias.qkv": (False,)}
    ),
    rewrites=usual_rewrites(biases=with_biases(**(BIASES | {"qkv": False})), scale="none"),
    read=_read,
    write=_write,
    rules=_rules,
    embedding="transformer.wte.weight",
    prefix="transformer.",
    ignored=(".attn.attention.bias", ".attn.attention.masked_bias"),
)
