"""MPT of transformers: ALiBi, no biases. With heads that are no power of two its slopes are others than ours."""

from typing import Any

from vitral.interop.foreign_settings import Settings
from vitral.interop.form import BIASES, USUAL_WIDTH, Form, Key, allowing, usual_rewrites
from vitral.interop.rewrites import with_biases
from vitral.interop.rules import by_names
from vitral.model import ModelConfig


def _read(settings: Settings, plain: dict[str, Any]) -> dict[str, Any]:
    settings.only(expansion_ratio=4, no_bias=True, embedding_fraction=1.0, norm_type="low_precision_layernorm")
    if (logit_scale := settings.take("logit_scale")) is not None:
        raise settings.refused("logit_scale", logit_scale)
    for unread in ("learned_pos_emb", "verbose", "fc_type", "ffn_config", "init_config"):
        settings.take(unread)
    inside = settings.inside("attn_config")
    inside.only(alibi=True, alibi_bias_max=8, prefix_lm=False, qk_ln=False, attn_type="multihead_attention")
    for unread in ("attn_impl", "attn_uses_sequence_id", "tie_word_embeddings", "add_cross_attention", "pruned_heads"):
        inside.take(unread)
    scale = inside.real("softmax_scale", 1.0) if inside.given("softmax_scale") else "sqrt"
    inside.end()
    if (heads := plain["num_heads"]) & (heads - 1):
        raise settings.refused("n_heads", heads)
    return {
        "d_ff": 4 * plain["d_model"],
        "norm_epsilon": settings.real("layer_norm_epsilon", 1e-5),
        "positions": "alibi",
        "attention": {"scale": scale},
        "bias": dict.fromkeys(BIASES, False),
    }


def _written(config: ModelConfig) -> dict[str, Any]:
    return {
        "expansion_ratio": 4,
        "layer_norm_epsilon": config.epsilon,
        "learned_pos_emb": False,
        "no_bias": True,
        "norm_type": "low_precision_layernorm",
        "emb_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "attn_config": {"alibi": True, "alibi_bias_max": 8, "attn_impl": "torch"},
    }


MPT = Form(
    name="mpt",
    model_type="mpt",
    architecture="MptForCausalLM",
    allows=allowing(
        {
            "positions": ("alibi",),
            "feed_forward": ("gelu",),
            "num_heads": tuple(2**power for power in range(13)),
            "d_ff": (USUAL_WIDTH,),
            **{f"bias.{kind}": (False,) for kind in BIASES},
        }
    ),
    rewrites=usual_rewrites(biases=with_biases(**dict.fromkeys(BIASES, False)), has_table=False),
    keys=(
        Key("max_seq_len", "context_length", 2048),
        Key("d_model", "d_model", 2048),
        Key("n_layers", "num_layers", 24),
        Key("n_heads", "num_heads", 16),
    ),
    read=_read,
    written=_written,
    rules=by_names(
        {
            "token_embedding": "transformer.wte",
            "blocks.{layer}.attn.in_proj": "transformer.blocks.{layer}.attn.Wqkv",
            "blocks.{layer}.attn.out_proj": "transformer.blocks.{layer}.attn.out_proj",
            "blocks.{layer}.mlp.up": "transformer.blocks.{layer}.ffn.up_proj",
            "blocks.{layer}.mlp.down": "transformer.blocks.{layer}.ffn.down_proj",
            "blocks.{layer}.attn_norm": "transformer.blocks.{layer}.norm_1",
            "blocks.{layer}.mlp_norm": "transformer.blocks.{layer}.norm_2",
            "final_norm": "transformer.norm_f",
            "head": "lm_head",
        }
    ),
    embedding="transformer.wte.weight",
    prefix="transformer.",
)
