"""OPT of transformers: the form of post-norm; its positions begin at row 2."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitral.interop.foreign_settings import Settings
from vitral.interop.form import ACTIVATIONS, THEIRS, Form, Key
from vitral.interop.forms.common import BIASES, allowing, usual_rewrites
from vitral.interop.rewrites import with_biases
from vitral.interop.rules import Place, Rule, by_names, listed, misshapen, require_named
from vitral.model import ModelConfig

UNUSED_ROWS = 2
_ROOT = "model.decoder"
_EMBEDDING, _HEAD = f"{_ROOT}.embed_tokens.weight", "lm_head.weight"
_INTO, _OUT = f"{_ROOT}.project_in.weight", f"{_ROOT}.project_out.weight"


def _prepare(tensors: dict[str, Tensor], settings: Settings) -> dict[str, Tensor]:
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


def _read(settings: Settings, plain: dict[str, Any]) -> dict[str, Any]:
    settings.only(enable_bias=True, layer_norm_elementwise_affine=True)
    is_pre = settings.truth("do_layer_norm_before", True)
    return {
        "norm": "pre" if is_pre else "post",
        "final_norm": not settings.truth("_remove_final_layer_norm", False) and is_pre,
        "feed_forward": settings.choice("activation_function", ACTIVATIONS, "relu"),
    }


def _written(config: ModelConfig) -> dict[str, Any]:
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


def _positions(_config: ModelConfig, ours: str, _layer: int) -> Rule:
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
        Key("max_position_embeddings", "context_length", 2048),
        Key("hidden_size", "d_model", 768),
        Key("word_embed_proj_dim", "d_model", lambda plain: plain["d_model"]),
        Key("num_hidden_layers", "num_layers", 12),
        Key("num_attention_heads", "num_heads", 12),
        Key("ffn_dim", "d_ff", 3072),
    ),
    read=_read,
    written=_written,
    rules=by_names(
        {
            "token_embedding": f"{_ROOT}.embed_tokens",
            "positions": _positions,
            "blocks.{layer}.attn.in_proj": Place(
                name=tuple(f"{_ROOT}.layers.{{layer}}.self_attn.{letter}_proj" for letter in "qkv")
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
    prepare=_prepare,
)
