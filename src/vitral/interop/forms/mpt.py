"""MPT of transformers: ALiBi, no biases. With heads that are no power of two its slopes are others than ours."""

from typing import Any

from vitral.interop.form import USUAL_WIDTH, Form
from vitral.interop.forms.common import BIASES, allowing, head_rule, usual_rewrites
from vitral.interop.rewrites import with_biases
from vitral.interop.rules import Rule, by_layer, same
from vitral.interop.settings import Settings
from vitral.model import ModelConfig


def _read(settings: Settings) -> dict[str, Any]:
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
    heads, width = settings.count("n_heads", 16), settings.count("d_model", 2048)
    if heads & (heads - 1):
        raise settings.refused("n_heads", heads)
    return {
        "context_length": settings.count("max_seq_len", 2048),
        "d_model": width,
        "num_layers": settings.count("n_layers", 24),
        "num_heads": heads,
        "d_ff": 4 * width,
        "norm_epsilon": settings.real("layer_norm_epsilon", 1e-5),
        "positions": "alibi",
        "attention": {"scale": scale},
        "bias": dict.fromkeys(("qkv", "output", "feed_forward", "norm"), False),
        "tie_head": settings.truth("tie_word_embeddings", True),
    }


def _write(config: ModelConfig) -> dict[str, Any]:
    return {
        "max_seq_len": config.context_length,
        "d_model": config.d_model,
        "n_layers": config.num_layers,
        "n_heads": config.num_heads,
        "expansion_ratio": 4,
        "layer_norm_epsilon": config.epsilon,
        "learned_pos_emb": False,
        "no_bias": True,
        "norm_type": "low_precision_layernorm",
        "emb_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "attn_config": {"alibi": True, "alibi_bias_max": 8, "attn_impl": "torch"},
    }


def _rules(config: ModelConfig) -> list[Rule]:
    def block(layer: int) -> list[Rule]:
        ours, theirs = f"blocks.{layer}", f"transformer.blocks.{layer}"
        return [same(f"{ours}.{one}.weight", f"{theirs}.{other}.weight") for one, other in _NAMES.items()]

    return [
        same("token_embedding.weight", "transformer.wte.weight"),
        *by_layer(config.num_layers, block),
        same("final_norm.weight", "transformer.norm_f.weight"),
        *head_rule(config),
    ]


_NAMES = {
    "attn.in_proj": "attn.Wqkv",
    "attn.out_proj": "attn.out_proj",
    "mlp.up": "ffn.up_proj",
    "mlp.down": "ffn.down_proj",
    "attn_norm": "norm_1",
    "mlp_norm": "norm_2",
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
    read=_read,
    write=_write,
    rules=_rules,
    embedding="transformer.wte.weight",
    prefix="transformer.",
)
