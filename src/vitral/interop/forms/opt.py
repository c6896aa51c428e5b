"""OPT of transformers: the form of post-norm; its positions begin at row 2."""

from pathlib import Path
from typing import Any

from torch import Tensor

from vitral.interop.form import Form
from vitral.interop.forms.common import ACTIVATIONS, BIASES, THEIRS, allowing, head_rule, usual_rewrites
from vitral.interop.rewrites import with_biases
from vitral.interop.rules import Rule, by_layer, listed, misshapen, require_named, same, shifted, split
from vitral.interop.settings import Settings
from vitral.model import ModelConfig

UNUSED_ROWS = 2
_ROOT = "model.decoder"
_EMBEDDING, _HEAD = f"{_ROOT}.embed_tokens.weight", "lm_head.weight"
_PROJECTIONS = frozenset(f"{_ROOT}.project_{way}.weight" for way in ("in", "out"))


def _prepare(tensors: dict[str, Tensor], settings: Settings) -> dict[str, Tensor]:
    """Fold the projections between embedding and stream into the embedding and a head of its own (OPT-350M)."""
    if _PROJECTIONS.isdisjoint(tensors):
        return tensors
    where, is_tied = str(Path(settings.where).parent), settings.truth("tie_word_embeddings", True)
    used = [_EMBEDDING, *sorted(_PROJECTIONS), *([] if is_tied else [_HEAD])]
    require_named(used, tensors, where)
    embedding, into, out, head = (tensors[name] for name in [*used[:3], used[0] if is_tied else _HEAD])
    if any(tensor.dim() != 2 for tensor in (embedding, into, out, head)):
        raise misshapen(where, listed([name for name in used if tensors[name].dim() != 2]))
    narrow = embedding.shape[1]
    settings.only(word_embed_proj_dim=narrow)
    widths = dict(zip(used, (narrow, into.shape[1], out.shape[0], head.shape[1]), strict=False))
    if set(widths.values()) != {narrow}:
        raise misshapen(where, listed([name for name, width in widths.items() if width != narrow]))
    settings.add("tie_word_embeddings", False)
    folded = {
        _EMBEDDING: (embedding.double() @ into.double().T).to(embedding.dtype),
        _HEAD: (head.double() @ out.double()).to(head.dtype),
    }
    return {name: tensor for name, tensor in tensors.items() if name not in _PROJECTIONS} | folded


def _read(settings: Settings) -> dict[str, Any]:
    settings.only(enable_bias=True, layer_norm_elementwise_affine=True)
    width = settings.count("hidden_size", 768)
    settings.only(word_embed_proj_dim=width)
    is_pre = settings.truth("do_layer_norm_before", True)
    has_final_norm = not settings.truth("_remove_final_layer_norm", False) and is_pre
    return {
        "context_length": settings.count("max_position_embeddings", 2048),
        "d_model": width,
        "num_layers": settings.count("num_hidden_layers", 12),
        "num_heads": settings.count("num_attention_heads", 12),
        "d_ff": settings.count("ffn_dim", 3072),
        "norm": "pre" if is_pre else "post",
        "final_norm": has_final_norm,
        "feed_forward": settings.choice("activation_function", ACTIVATIONS, "relu"),
        "tie_head": settings.truth("tie_word_embeddings", True),
    }


def _write(config: ModelConfig) -> dict[str, Any]:
    return {
        "max_position_embeddings": config.context_length,
        "hidden_size": config.d_model,
        "word_embed_proj_dim": config.d_model,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "ffn_dim": config.hidden_width,
        "do_layer_norm_before": config.norm == "pre",
        "_remove_final_layer_norm": config.norm == "pre" and not config.has_final_norm,
        "activation_function": THEIRS[str(config.feed_forward)],
        "enable_bias": True,
        "layer_norm_elementwise_affine": True,
        "attention_dropout": 0.0,
        "dropout": 0.0,
        "layerdrop": 0.0,
    }


def _rules(config: ModelConfig) -> list[Rule]:
    sizes = [config.d_model] * 3

    def block(layer: int) -> list[Rule]:
        ours, theirs = f"blocks.{layer}", f"{_ROOT}.layers.{layer}"
        rules = []
        for part in ("weight", "bias"):
            names = [f"{theirs}.self_attn.{letter}_proj.{part}" for letter in "qkv"]
            rules.append(split(f"{ours}.attn.in_proj.{part}", names, sizes))
            rules += [same(f"{ours}.{one}.{part}", f"{theirs}.{other}.{part}") for one, other in _NAMES.items()]
        return rules

    final = [same(f"final_norm.{part}", f"{_ROOT}.final_layer_norm.{part}") for part in ("weight", "bias")]
    return [
        same("token_embedding.weight", _EMBEDDING),
        shifted("positions.weight", f"{_ROOT}.embed_positions.weight", UNUSED_ROWS),
        *by_layer(config.num_layers, block),
        *(final if config.has_final_norm else []),
        *head_rule(config),
    ]


_NAMES = {
    "attn.out_proj": "self_attn.out_proj",
    "mlp.up": "fc1",
    "mlp.down": "fc2",
    "attn_norm": "self_attn_layer_norm",
    "mlp_norm": "final_layer_norm",
}
OPT = Form(
    name="opt",
    model_type="opt",
    architecture="OPTForCausalLM",
    allows=allowing({"norm": ("post", "pre"), "norm_epsilon": (None,), "final_norm": None}),
    rewrites=usual_rewrites(biases=with_biases(**BIASES)),
    read=_read,
    write=_write,
    rules=_rules,
    embedding=_EMBEDDING,
    prefix="model.",
    prepare=_prepare,
)
