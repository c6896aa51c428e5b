"""GPT-NeoX of transformers (Pythia): rotary positions, LayerNorm, attention and feed-forward side by side or not."""

from typing import Any

from vitral.interop.form import Form
from vitral.interop.forms.common import ACTIVATIONS, THEIRS, allowing, head_rule, usual_rewrites
from vitral.interop.forms.rotary import read_rotary, write_rotary
from vitral.interop.rewrites import even_biases, with_biases
from vitral.interop.rules import Rule, by_layer, packed, same
from vitral.interop.settings import Settings
from vitral.model import ModelConfig


def _read(settings: Settings) -> dict[str, Any]:
    projections = settings.truth("attention_bias", True)
    return {
        "context_length": settings.count("max_position_embeddings", 2048),
        "d_model": settings.count("hidden_size", 6144),
        "num_layers": settings.count("num_hidden_layers", 44),
        "num_heads": settings.count("num_attention_heads", 64),
        "d_ff": settings.count("intermediate_size", 24576),
        "feed_forward": settings.choice("hidden_act", ACTIVATIONS, "gelu"),
        "norm_epsilon": settings.real("layer_norm_eps", 1e-5),
        "positions": read_rotary(settings, base_key="rotary_emb_base", fraction_key="rotary_pct", fraction=0.25),
        "parallel": settings.truth("use_parallel_residual", True),
        "bias": {"qkv": projections, "output": projections},
        "tie_head": settings.truth("tie_word_embeddings", False),
    }


def _write(config: ModelConfig) -> dict[str, Any]:
    rotary = write_rotary(config)
    return {
        "max_position_embeddings": config.context_length,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.hidden_width,
        "hidden_act": THEIRS[str(config.feed_forward)],
        "layer_norm_eps": config.epsilon,
        "use_parallel_residual": bool(config.parallel),
        "attention_bias": config.biases.qkv,
        "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
        **rotary,
        "rotary_pct": rotary.get("partial_rotary_factor", 1.0),
        "rotary_emb_base": rotary["rope_theta"],
        "rope_parameters": {"partial_rotary_factor": 1.0, **rotary["rope_parameters"]},
    }


def _rules(config: ModelConfig) -> list[Rule]:
    attention, widths = ("weight", "bias") if config.biases.qkv else ("weight",), [config.d_model] * 3

    def block(layer: int) -> list[Rule]:
        ours, theirs = f"blocks.{layer}", f"gpt_neox.layers.{layer}"
        rules = []
        for part in attention:
            of_heads = {f"{theirs}.attention.query_key_value.{part}": sum(widths)}
            rules.append(packed(f"{ours}.attn.in_proj.{part}", of_heads, widths, range(3), heads=config.num_heads))
            rules.append(same(f"{ours}.attn.out_proj.{part}", f"{theirs}.attention.dense.{part}"))
        for one, other in (
            ("mlp.up", "mlp.dense_h_to_4h"),
            ("mlp.down", "mlp.dense_4h_to_h"),
            ("attn_norm", "input_layernorm"),
            ("mlp_norm", "post_attention_layernorm"),
        ):
            rules += [same(f"{ours}.{one}.{part}", f"{theirs}.{other}.{part}") for part in ("weight", "bias")]
        return rules

    return [
        same("token_embedding.weight", "gpt_neox.embed_in.weight"),
        *by_layer(config.num_layers, block),
        same("final_norm.weight", "gpt_neox.final_layer_norm.weight"),
        same("final_norm.bias", "gpt_neox.final_layer_norm.bias"),
        *head_rule(config, "embed_out.weight"),
    ]


NEOX = Form(
    name="gpt-neox",
    model_type="gpt_neox",
    architecture="GPTNeoXForCausalLM",
    allows=allowing({"positions": ("rotary",), "positions.pairing": ("halves",), "parallel": None}),
    rewrites=(*usual_rewrites(biases=with_biases(feed_forward=True, norm=True), has_table=False), even_biases),
    read=_read,
    write=_write,
    rules=_rules,
    embedding="gpt_neox.embed_in.weight",
    head="embed_out.weight",
    prefix="gpt_neox.",
    ignored=(".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"),
    aliases={"lm_head.weight": "embed_out.weight"},
    ties=False,
)
