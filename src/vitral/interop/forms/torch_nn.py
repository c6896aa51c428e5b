"""`torch.nn.TransformerEncoder` with embeddings and a head: its blocks, and the whole model as a form."""

from typing import Any

from vitral.interop.form import SOME, Form
from vitral.interop.forms.common import allowing, usual_rewrites
from vitral.interop.rewrites import Weighted, with_biases
from vitral.interop.rules import Rule, by_layer, same, weight_and_bias
from vitral.interop.settings import Settings
from vitral.model import ModelConfig

NAME = "torch-nn"
ACTIVATIONS = {name: name for name in ("gelu", "gelu_tanh", "relu")}


def attention_rules(config: ModelConfig, ours: str, theirs: str) -> list[Rule]:
    """The map of a `MultiheadAttention`, whose packed rows are queries, keys, values as ours are."""
    return [
        same(f"{ours}.in_proj.weight", f"{theirs}.in_proj_weight"),
        *([same(f"{ours}.in_proj.bias", f"{theirs}.in_proj_bias")] if config.biases.qkv else []),
        *weight_and_bias(same, f"{ours}.out_proj", f"{theirs}.out_proj", bias=config.biases.output),
    ]


def layer_rules(config: ModelConfig, ours: str, theirs: str) -> list[Rule]:
    """The map of a `TransformerEncoderLayer`."""
    biases = config.biases
    return [
        *attention_rules(config, f"{ours}.attn", f"{theirs}.self_attn"),
        *weight_and_bias(same, f"{ours}.mlp.up", f"{theirs}.linear1", bias=biases.feed_forward),
        *weight_and_bias(same, f"{ours}.mlp.down", f"{theirs}.linear2", bias=biases.feed_forward),
        *weight_and_bias(same, f"{ours}.attn_norm", f"{theirs}.norm1", bias=biases.norm),
        *weight_and_bias(same, f"{ours}.mlp_norm", f"{theirs}.norm2", bias=biases.norm),
    ]


def _rules(config: ModelConfig) -> list[Rule]:
    final = weight_and_bias(same, "final_norm", "encoder.norm", bias=config.biases.norm)
    head = weight_and_bias(same, "head", "head", bias=config.biases.head)
    return [
        same("token_embedding.weight", "embedding.weight"),
        same("positions.weight", "positions.weight"),
        *by_layer(config.num_layers, lambda layer: layer_rules(config, f"blocks.{layer}", f"encoder.layers.{layer}")),
        *(final if config.has_final_norm else []),
        *([] if config.tie_head else head),
    ]


def _read(settings: Settings) -> dict[str, Any]:
    width = settings.count("d_model")
    inner = settings.truth("bias", True)
    head = settings.truth("head_bias", False)
    return {
        "context_length": settings.count("context_length"),
        "d_model": width,
        "num_layers": settings.count("num_layers"),
        "num_heads": settings.count("nhead"),
        "d_ff": settings.count("dim_feedforward", 2048),
        "feed_forward": settings.choice("activation", ACTIVATIONS, "relu"),
        "norm": "pre" if settings.truth("norm_first", False) else "post",
        "norm_epsilon": settings.real("layer_norm_eps", 1e-5),
        "final_norm": settings.truth("final_norm", True),
        "bias": {"qkv": inner, "output": inner, "feed_forward": inner, "norm": inner, "head": head},
        "tie_head": settings.truth("tie_word_embeddings", False),
    }


def _write(config: ModelConfig) -> dict[str, Any]:
    return {
        "context_length": config.context_length,
        "d_model": config.d_model,
        "num_layers": config.num_layers,
        "nhead": config.num_heads,
        "dim_feedforward": config.hidden_width,
        "activation": str(config.feed_forward),
        "norm_first": config.norm == "pre",
        "layer_norm_eps": config.epsilon,
        "final_norm": config.has_final_norm,
        "bias": config.biases.qkv,
        "head_bias": config.biases.head,
    }


def _all_biases_or_none(model: Weighted) -> Weighted:
    """The layer has biases everywhere or nowhere."""
    biases = model.config.biases
    some = biases.qkv or biases.output or biases.feed_forward or biases.norm
    return with_biases(qkv=some, output=some, feed_forward=some, norm=some)(model)


TORCH_NN = Form(
    name=NAME,
    model_type=NAME,
    architecture="TransformerEncoder",
    allows=allowing(
        {
            "norm": ("pre", "post", "post, final_norm"),
            "final_norm": None,
            "feed_forward": tuple(ACTIVATIONS),
            "num_layers": (SOME,),
            "bias.head": None,
        }
    ),
    rewrites=usual_rewrites(biases=_all_biases_or_none),
    read=_read,
    write=_write,
    rules=_rules,
    embedding="embedding.weight",
    head="head.weight",
    ties=False,
)
