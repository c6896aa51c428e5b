"""Forms with LayerNorm of transformers: GPT-2, GPT-Neo, OPT, GPT-NeoX and MPT."""

from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitral.interop.foreign_settings import Settings
from vitral.interop.form import ACTIVATIONS, BIASES, THEIRS, USUAL_WIDTH, Form, Key, allowing, sizes, usual_rewrites
from vitral.interop.forms.llama import read_rotary, write_rotary
from vitral.interop.rewrites import even_biases, with_biases
from vitral.interop.rules import Names, Place, Rule, by_names, listed, misshapen, require_named
from vitral.model import ModelConfig


def _read_gpt2(settings: Settings, plain: dict[str, Any]) -> dict[str, Any]:
    settings.only(scale_attn_by_inverse_layer_idx=False)
    settings.take("reorder_and_upcast_attn")  # precision of 16 bits only
    positions = plain["context_length"]
    context = settings.count("n_ctx", positions)
    if context != positions:
        raise settings.contradiction("n_ctx", context, positions)
    return {"attention": {"scale": "sqrt" if settings.truth("scale_attn_weights", True) else "none"}}


_GPT = {
    "token_embedding": "transformer.wte",
    "positions": "transformer.wpe",
    "blocks.{layer}.attn_norm": "transformer.h.{layer}.ln_1",
    "blocks.{layer}.mlp_norm": "transformer.h.{layer}.ln_2",
    "final_norm": "transformer.ln_f",
    "head": "lm_head",
}
"""Names that GPT-2 and GPT-Neo share."""


def gpt2_names(transpose: bool) -> Names:
    """The map of names; whether the matrices of the blocks are stored as [in, out]."""
    matrices = {
        "attn.in_proj": "attn.c_attn",
        "attn.out_proj": "attn.c_proj",
        "mlp.up": "mlp.c_fc",
        "mlp.down": "mlp.c_proj",
    }
    return {
        **_GPT,
        **{
            f"blocks.{{layer}}.{ours}": Place(name=f"transformer.h.{{layer}}.{theirs}", transpose=transpose)
            for ours, theirs in matrices.items()
        },
    }


GPT2 = Form(
    name="gpt2",
    model_type="gpt2",
    architecture="GPT2LMHeadModel",
    allows=allowing({}),
    rewrites=usual_rewrites(biases=with_biases(**BIASES)),
    keys=(
        *sizes(n_positions=1024, n_embd=768, n_layer=12, n_head=12),
        Key("n_inner", "d_ff", lambda plain: 4 * plain["d_model"]),
        Key("activation_function", "feed_forward", "gelu_new"),
        Key("layer_norm_epsilon", "norm_epsilon", 1e-5),
    ),
    read=_read_gpt2,
    written=lambda _config: {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0},
    rules=by_names(gpt2_names(transpose=True)),
    embedding="transformer.wte.weight",
    prefix="transformer.",
    ignored=(".attn.bias", ".attn.masked_bias"),
)


def _read_gpt_neo(settings: Settings, plain: dict[str, Any]) -> dict[str, Any]:
    layers = plain["num_layers"]
    window = {"name": "window", "size": settings.count("window_size", 256)}
    known = {"global": {"name": "causal"}, "local": window}
    are_typed = settings.given("attention_types")
    types = settings.take("attention_types", [[["global", "local"], 12]])
    listed = settings.take("attention_layers")
    try:
        expanded = _expanded(types, layers) if are_typed or not listed else listed
        kinds = listed or expanded
        masks = [known[kind] for kind in kinds]
    except (TypeError, KeyError, ValueError):
        raise settings.refused("attention_types", types) from None
    if len(masks) != layers or kinds != expanded:
        raise settings.refused("attention_layers", kinds)
    mask = masks[0] if all(one == masks[0] for one in masks) else {"name": "by-layer", "masks": masks}
    return {"attention": {"mask": mask, "scale": "none"}, "bias": {"qkv": False}}


def _expanded(types: Any, layers: int) -> list[str]:
    """The kind of each block. The count comes first, because a short file can ask for an enormous list."""
    if any(times < 0 for _names, times in types) or sum(len(names) * times for names, times in types) != layers:
        raise ValueError
    return list(chain.from_iterable(names * times for names, times in types))


def _written_gpt_neo(config: ModelConfig) -> dict[str, Any]:
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
        *sizes(max_position_embeddings=2048, hidden_size=2048, num_layers=24, num_heads=16),
        Key("intermediate_size", "d_ff", lambda plain: 4 * plain["d_model"]),
        Key("activation_function", "feed_forward", "gelu_new"),
        Key("layer_norm_epsilon", "norm_epsilon", 1e-5),
    ),
    read=_read_gpt_neo,
    written=_written_gpt_neo,
    rules=by_names(
        {
            **_GPT,
            "blocks.{layer}.attn.in_proj": tuple(
                f"transformer.h.{{layer}}.attn.attention.{letter}_proj" for letter in "qkv"
            ),
            "blocks.{layer}.attn.out_proj": "transformer.h.{layer}.attn.attention.out_proj",
            "blocks.{layer}.mlp.up": "transformer.h.{layer}.mlp.c_fc",
            "blocks.{layer}.mlp.down": "transformer.h.{layer}.mlp.c_proj",
        }
    ),
    embedding="transformer.wte.weight",
    prefix="transformer.",
    ignored=(".attn.attention.bias", ".attn.attention.masked_bias"),
)


UNUSED_ROWS = 2
_ROOT = "model.decoder"
_EMBEDDING, _HEAD = f"{_ROOT}.embed_tokens.weight", "lm_head.weight"
_INTO, _OUT = f"{_ROOT}.project_in.weight", f"{_ROOT}.project_out.weight"


def _prepare_opt(tensors: dict[str, Tensor], settings: Settings) -> dict[str, Tensor]:
    """Fold the projections between embedding and stream into the embedding and a head of its own (OPT-350M)."""
    if not {_INTO, _OUT} & tensors.keys():
        return tensors
    where, is_tied = str(Path(settings.where).parent), settings.truth("tie_word_embeddings", True)
    head = _EMBEDDING if is_tied else _HEAD
    require_named({_EMBEDDING, _INTO, _OUT, head}, tensors, where)

    def folded(matrix: str, projection: str, *, turned: bool = False) -> Tensor:
        by = tensors[projection].double()
        try:
            return (tensors[matrix].double() @ (by.mT if turned else by)).to(tensors[matrix].dtype)
        except RuntimeError:
            raise misshapen(where, listed([matrix, projection])) from None

    wide = {_EMBEDDING: folded(_EMBEDDING, _INTO, turned=True), _HEAD: folded(head, _OUT)}
    settings.only(word_embed_proj_dim=tensors[_EMBEDDING].shape[-1])
    settings.add("tie_word_embeddings", False)
    return {name: tensor for name, tensor in tensors.items() if name not in (_INTO, _OUT)} | wide


def _read_opt(settings: Settings, plain: dict[str, Any]) -> dict[str, Any]:
    settings.only(enable_bias=True, layer_norm_elementwise_affine=True)
    is_pre = settings.truth("do_layer_norm_before", True)
    return {
        "norm": "pre" if is_pre else "post",
        "final_norm": not settings.truth("_remove_final_layer_norm", False) and is_pre,
        "feed_forward": settings.choice("activation_function", ACTIVATIONS, "relu"),
    }


def _written_opt(config: ModelConfig) -> dict[str, Any]:
    return {
        "do_layer_norm_before": config.norm == "pre",
        "_remove_final_layer_norm": config.norm == "pre" and not config.has_final_norm,
        "activation_function": THEIRS[str(config.feed_forward)],
        "enable_bias": True,
        "layer_norm_elementwise_affine": True,
        "attention_dropout": 0.0,
        "dropout": 0.0,
        "layerdrop": 0.0,
    }


def _positions_opt(_config: ModelConfig, ours: str, _layer: int) -> Rule:
    """The table lies below rows that nothing uses, which are zero in an export."""

    def export(table: Tensor) -> list[Tensor]:
        return [torch.cat([table.new_zeros(UNUSED_ROWS, table.shape[1]), table])]

    return Rule(ours, (f"{_ROOT}.embed_positions.weight",), export, lambda tensors: tensors[0][UNUSED_ROWS:])


OPT = Form(
    name="opt",
    model_type="opt",
    architecture="OPTForCausalLM",
    allows=allowing({"norm": ("post", "pre"), "norm_epsilon": (None,), "final_norm": None}),
    rewrites=usual_rewrites(biases=with_biases(**BIASES)),
    keys=(
        *sizes(max_position_embeddings=2048, hidden_size=768, num_hidden_layers=12, num_attention_heads=12),
        Key("word_embed_proj_dim", "d_model", lambda plain: plain["d_model"]),
        Key("ffn_dim", "d_ff", 3072),
    ),
    read=_read_opt,
    written=_written_opt,
    rules=by_names(
        {
            "token_embedding": f"{_ROOT}.embed_tokens",
            "positions": _positions_opt,
            "blocks.{layer}.attn.in_proj": tuple(
                f"{_ROOT}.layers.{{layer}}.self_attn.{letter}_proj" for letter in "qkv"
            ),
            "blocks.{layer}.attn.out_proj": f"{_ROOT}.layers.{{layer}}.self_attn.out_proj",
            "blocks.{layer}.mlp.up": f"{_ROOT}.layers.{{layer}}.fc1",
            "blocks.{layer}.mlp.down": f"{_ROOT}.layers.{{layer}}.fc2",
            "blocks.{layer}.attn_norm": f"{_ROOT}.layers.{{layer}}.self_attn_layer_norm",
            "blocks.{layer}.mlp_norm": f"{_ROOT}.layers.{{layer}}.final_layer_norm",
            "final_norm": f"{_ROOT}.final_layer_norm",
            "head": "lm_head",
        }
    ),
    embedding=_EMBEDDING,
    prefix="model.",
    prepare=_prepare_opt,
)


def _read_neox(settings: Settings, _plain: dict[str, Any]) -> dict[str, Any]:
    projections = settings.truth("attention_bias", True)
    return {
        "positions": read_rotary(settings, base_key="rotary_emb_base", fraction_key="rotary_pct", fraction=0.25),
        "bias": {"qkv": projections, "output": projections},
    }


def _written_neox(config: ModelConfig) -> dict[str, Any]:
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
        *sizes(max_position_embeddings=2048, hidden_size=6144, num_hidden_layers=44, num_attention_heads=64),
        Key("intermediate_size", "d_ff", 24576),
        Key("hidden_act", "feed_forward", "gelu"),
        Key("layer_norm_eps", "norm_epsilon", 1e-5),
        Key("use_parallel_residual", "parallel", True),
    ),
    read=_read_neox,
    written=_written_neox,
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


# MPT: ALiBi, no biases. With heads that are no power of two its slopes are others than ours.


def _read_mpt(settings: Settings, plain: dict[str, Any]) -> dict[str, Any]:
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


def _written_mpt(config: ModelConfig) -> dict[str, Any]:
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
    keys=tuple(sizes(max_seq_len=2048, d_model=2048, n_layers=24, n_heads=16)),
    read=_read_mpt,
    written=_written_mpt,
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
