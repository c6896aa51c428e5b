"""GPT-2 of transformers: `GPT2LMHeadModel`."""

from typing import Any

from vitral.interop.foreign_settings import Settings
from vitral.interop.form import Form, Key
from vitral.interop.forms.common import BIASES, allowing, usual_rewrites
from vitral.interop.rewrites import with_biases
from vitral.interop.rules import Names, Place, by_names
from vitral.model import ModelConfig


def _read(settings: Settings, plain: dict[str, Any]) -> dict[str, Any]:
    settings.only(scale_attn_by_inverse_layer_idx=False)
    settings.take("reorder_and_upcast_attn")  # precision of 16 bits only
    positions = plain["context_length"]
    context = settings.count("n_ctx", positions)
    if context != positions:
        raise settings.contradiction("n_ctx", context, positions)
    return {"attention": {"scale": "sqrt" if settings.truth("scale_attn_weights", True) else "none"}}


def _written(_config: ModelConfig) -> dict[str, Any]:
    return {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}


def names(transpose: bool) -> Names:
    """The map of names; whether the matrices of the blocks are stored as [in, out]."""
    matrices = {
        "attn.in_proj": "attn.c_attn",
        "attn.out_proj": "attn.c_proj",
        "mlp.up": "mlp.c_fc",
        "mlp.down": "mlp.c_proj",
    }
    return {
        "token_embedding": "transformer.wte",
        "positions": "transformer.wpe",
        "blocks.{layer}.attn_norm": "transformer.h.{layer}.ln_1",
        "blocks.{layer}.mlp_norm": "transformer.h.{layer}.ln_2",
        **{
            f"blocks.{{layer}}.{ours}": Place(name=f"transformer.h.{{layer}}.{theirs}", transpose=transpose)
            for ours, theirs in matrices.items()
        },
        "final_norm": "transformer.ln_f",
        "head": "lm_head",
    }


GPT2 = Form(
    name="gpt2",
    model_type="gpt2",
    architecture="GPT2LMHeadModel",
    allows=allowing({}),
    rewrites=usual_rewrites(biases=with_biases(**BIASES)),
    keys=(
        Key("n_positions", "context_length", 1024),
        Key("n_embd", "d_model", 768),
        Key("n_layer", "num_layers", 12),
        Key("n_head", "num_heads", 12),
        Key("n_inner", "d_ff", lambda plain: 4 * plain["d_model"]),
        Key("activation_function", "feed_forward", "gelu_new"),
        Key("layer_norm_epsilon", "norm_epsilon", 1e-5),
    ),
    read=_read,
    written=_written,
    rules=by_names(names(transpose=True)),
    embedding="transformer.wte.weight",
    prefix="transformer.",
    ignored=(".attn.bias", ".attn.masked_bias"),
)
