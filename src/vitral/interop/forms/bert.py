"""BERT of transformers: an encoder with post-norm and the head of a masked language model."""

from typing import Any

from torch import Tensor

from vitral.interop.foreign_settings import Settings
from vitral.interop.form import BIASES, Form, Key, allowing, sizes, usual_rewrites
from vitral.interop.rewrites import with_biases
from vitral.interop.rules import Rule, by_names
from vitral.model import ModelConfig

_BIASES = {**BIASES, "head": True}


def _prepare(tensors: dict[str, Tensor], _settings: Settings) -> dict[str, Tensor]:
    """In older files the parameters of norms have other names."""
    return {name.replace(".gamma", ".weight").replace(".beta", ".bias"): tensor for name, tensor in tensors.items()}


def _read(settings: Settings, plain: dict[str, Any]) -> dict[str, Any]:
    settings.only(is_decoder=False, position_embedding_type="absolute", directionality="bidi")
    if not plain["tie_head"]:
        raise settings.refused("tie_word_embeddings", False)
    return {"shape": "encoder", "norm": "post", "embedding_norm": True, "head_transform": True, "bias": _BIASES}


def _positions(_config: ModelConfig, ours: str, _layer: int) -> Rule:
    """The table has the vector of a first segment in it; in an export the vectors of both segments are zero."""
    return Rule(
        ours,
        ("bert.embeddings.position_embeddings.weight", "bert.embeddings.token_type_embeddings.weight"),
        lambda table: [table, table.new_zeros(2, table.shape[1])],
        lambda tensors: tensors[0] + tensors[1][:1],
    )


BERT = Form(
    name="bert",
    model_type="bert",
    architecture="BertForMaskedLM",
    allows=allowing(
        {
            "norm": ("post",),
            "final_norm": (False,),
            "embedding_norm": (True,),
            "attention.mask": ("bidirectional",),
            "head_transform": (True,),
            "bias.head": None,
            "tie_head": (True,),
        }
    ),
    rewrites=usual_rewrites(biases=with_biases(**_BIASES)),
    keys=(
        *sizes(max_position_embeddings=512, hidden_size=768, num_hidden_layers=12, num_attention_heads=12),
        Key("intermediate_size", "d_ff", 3072),
        Key("hidden_act", "feed_forward", "gelu"),
        Key("layer_norm_eps", "norm_epsilon", 1e-12),
    ),
    read=_read,
    written=lambda _config: {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0, "type_vocab_size": 2},
    rules=by_names(
        {
            "token_embedding": "bert.embeddings.word_embeddings",
            "positions": _positions,
            "embedding_norm": "bert.embeddings.LayerNorm",
            "blocks.{layer}.attn.in_proj": tuple(
                f"bert.encoder.layer.{{layer}}.attention.self.{part}" for part in ("query", "key", "value")
            ),
            "blocks.{layer}.attn.out_proj": "bert.encoder.layer.{layer}.attention.output.dense",
            "blocks.{layer}.mlp.up": "bert.encoder.layer.{layer}.intermediate.dense",
            "blocks.{layer}.mlp.down": "bert.encoder.layer.{layer}.output.dense",
            "blocks.{layer}.attn_norm": "bert.encoder.layer.{layer}.attention.output.LayerNorm",
            "blocks.{layer}.mlp_norm": "bert.encoder.layer.{layer}.output.LayerNorm",
            "head_transform.linear": "cls.predictions.transform.dense",
            "head_transform.norm": "cls.predictions.transform.LayerNorm",
            "head": "cls.predictions",
        }
    ),
    embedding="bert.embeddings.word_embeddings.weight",
    head="cls.predictions.decoder.weight",
    # Whether one sentence follows another is no logit of a token; the decoder's bias is a copy.
    ignored=(
        *(".position_ids", ".pooler.dense.weight", ".pooler.dense.bias", ".predictions.decoder.bias"),
        *(".seq_relationship.weight", ".seq_relationship.bias"),
    ),
    prepare=_prepare,
)
