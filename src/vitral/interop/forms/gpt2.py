"""GPT-2 of transformers: `GPT2LMHeadModel`."""

from collections.abc import Callable
from functools import partial
from typing import Any

from vitral.interop.form import Form
from vitral.interop.forms.common import ACTIVATIONS, BIASES, THEIRS, allowing, head_rule, usual_rewrites
from vitral.interop.rewrites import with_biases
from vitral.interop.rules import Rule, by_layer, same, transposed, weight_and_bias
from vitral.interop.settings import Settings
from vitral.model import ModelConfig


def _read(settings: Settings) -> dict[str, Any]:
    settings.only(scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    settings.take("reorder_and_upcast_attn")  # precision of 16 bits only
    width = settings.count("n_embd", 768)
    positions = settings.count("n_positions", 1024)
    context = settings.count("n_ctx", positions)
    if context != positions:
        raise settings.contradiction("n_ctx", context, positions)
    return {
        "context_length": positions,
        "d_model": width,
        "num_layers": settings.count("n_layer", 12),
        "num_heads": settings.count("n_head", 12),
        "d_ff": settings.count("n_inner", 4 * width),
        "feed_forward": settings.choice("activation_function", ACTIVATIONS, "gelu_new"),
        "norm_epsilon": settings.real("layer_norm_epsilon", 1e-5),
        "attention": {"scale": "sqrt" if settings.truth("scale_attn_weights", True) else "none"},
        "tie_head": settings.truth("tie_word_embeddings", True),
    }


def _write(config: ModelConfig) -> dict[str, Any]:
    return {
        "n_positions": config.context_length,
        "n_embd": config.d_model,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "n_inner": config.hidden_width,
        "activation_function": THEIRS[str(config.feed_forward)],
        "layer_norm_epsilon": config.epsilon,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
    }


def rules_with(matrix: Callable[[str, str], Rule], config: ModelConfig) -> list[Rule]:
    """The map of names; `matrix` says how the matrices of the blocks are stored."""
    biases = config.biases

    def block(layer: int) -> list[Rule]:
        ours, theirs = f"blocks.{layer}", f"transformer.h.{layer}"
        rules = []
        for one, other in (("attn_norm", "ln_1"), ("mlp_norm", "ln_2")):
            rules += weight_and_bias(same, f"{ours}.{one}", f"{theirs}.{other}", bias=biases.norm)
        for one, other, bias in (
            ("attn.in_proj", "attn.c_attn", biases.qkv),
            ("attn.out_proj", "attn.c_proj", biases.output),
            ("mlp.up", "mlp.c_fc", biases.feed_forward),
            ("mlp.down", "mlp.c_proj", biases.feed_forward),
        ):
            rules.append(matrix(f"{ours}.{one}.weight", f"{theirs}.{other}.weight"))
            rules += [same(f"{ours}.{one}.bias", f"{theirs}.{other}.bias")] if bias else []
        return rules

    return [
        same("token_embedding.weight", "transformer.wte.weight"),
        same("positions.weight", "transformer.wpe.weight"),
        *by_layer(config.num_layers, block),
        *weight_and_bias(same, "final_norm", "transformer.ln_f", bias=biases.norm),
        *head_rule(config),
    ]


GPT2 = Form(
    name="gpt2",
    model_type="gpt2",
    architecture="GPT2LMHeadModel",
    allows=allowing({}),
    rewrites=usual_rewrites(biases=with_biases(**BIASES)),
    read=_read,
    write=_write,
    rules=partial(rules_with, transposed),
    embedding="transformer.wte.weight",
    prefix="transformer.",
    ignored=(".attn.bias", ".attn.masked_bias"),
)
