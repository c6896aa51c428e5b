"""GPT-NeoX of transformers (Pythia): rotary positions, LayerNorm, attention and feed-forward side by side or not."""

from typing import Any

from vitral.interop.foreign_settings import Settings
from vitral.interop.form import Form, Key
from vitral.interop.forms.common import allowing, usual_rewrites
from vitral.interop.forms.rotary import read_rotary, write_rotary
from vitral.interop.rewrites import even_biases, with_biases
from vitral.interop.rules import Place, by_names
from vitral.model import ModelConfig


def _read(settings: Settings, _plain: dict[str, Any]) -> dict[str, Any]:
    projections = settings.truth("attention_bias", True)
    return {
        "positions": read_rotary(settings, base_key="rotary_emb_base", fraction_key="rotary_pct", fraction=0.25),
        "bias": {"qkv": projections, "output": projections},
    }


def _written(config: ModelConfig) -> dict[str, Any]:
    rotary = write_rotary(config)
    return {
        "attention_bias": config.biases.qkv,
        "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
        **rotary,
        "rotary_pct": rotary.get("partial_rotary_factor", 1.0),
        "rotary_emb_base": rotary["rope_theta"],
        "rope_parameters": {"partial_rotary_factor": 1.0, **rotary["rope_parameters"]},
    }


NEOX = Form(
    name="gpt-neox",
    model_type="gpt_neox",
    architecture="GPTNeoXForCausalLM",
    allows=allowing({"positions": ("rotary",), "positions.pairing": ("halves",), "parallel": None}),
    rewrites=(*usual_rewrites(biases=with_biases(feed_forward=True, norm=True), has_table=False), even_biases),
    keys=(
        Key("max_position_embeddings", "context_length", 2048),
        Key("hidden_size", "d_model", 6144),
        Key("num_hidden_layers", "num_layers", 44),
        Key("num_attention_heads", "num_heads", 64),
        Key("intermediate_size", "d_ff", 24576),
        Key("hidden_act", "feed_forward", "gelu"),
        Key("layer_norm_eps", "norm_epsilon", 1e-5),
        Key("use_parallel_residual", "parallel", True),
    ),
    read=_read,
    written=_written,
    rules=by_names(
        {
            "token_embedding": "gpt_neox.embed_in",
            "blocks.{layer}.attn.in_proj": Place(name="gpt_neox.layers.{layer}.attention.query_key_value", by="head"),
            "blocks.{layer}.attn.out_proj": "gpt_neox.layers.{layer}.attention.dense",
            "blocks.{layer}.mlp.up": "gpt_neox.layers.{layer}.mlp.dense_h_to_4h",
            "blocks.{layer}.mlp.down": "gpt_neox.layers.{layer}.mlp.dense_4h_to_h",
            "blocks.{layer}.attn_norm": "gpt_neox.layers.{layer}.input_layernorm",
            "blocks.{layer}.mlp_norm": "gpt_neox.layers.{layer}.post_attention_layernorm",
            "final_norm": "gpt_neox.final_layer_norm",
            "head": "embed_out",
        }
    ),
    embedding="gpt_neox.embed_in.weight",
    head="embed_out.weight",
    prefix="gpt_neox.",
    ignored=(".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"),
    aliases={"lm_head.weight": "embed_out.weight"},
    ties=False,
)
