"""`torch.nn.TransformerEncoder` with embeddings and a head: its blocks, and the whole model as a form."""

from typing import Any

from vitral.interop.foreign_settings import Settings
from vitral.interop.form import BIASES, SOME, Form, Key, allowing, sizes, usual_rewrites
from vitral.interop.rewrites import Weighted, with_biases
from vitral.interop.rules import by_names
from vitral.model import ModelConfig

NAME = "torch-nn"
KNOWN = {name: name for name in ("gelu", "gelu_tanh", "relu")}


ATTENTION = {"in_proj.weight": "in_proj_weight", "in_proj.bias": "in_proj_bias", "out_proj": "out_proj"}
"""The names of a `MultiheadAttention`, whose packed rows are queries, keys, values as ours are."""
BLOCK = {
    **{f"attn.{ours}": f"self_attn.{theirs}" for ours, theirs in ATTENTION.items()},
    "mlp.up": "linear1",
    "mlp.down": "linear2",
    "attn_norm": "norm1",
    "mlp_norm": "norm2",
}
"""The names of a `TransformerEncoderLayer`."""


def _read(settings: Settings, _plain: dict[str, Any]) -> dict[str, Any]:
    inner = settings.truth("bias", True)
    return {
        "feed_forward": settings.choice("activation", KNOWN, "relu"),
        "norm": "pre" if settings.truth("norm_first", False) else "post",
        "norm_epsilon": settings.real("layer_norm_eps", 1e-5),
        "final_norm": settings.truth("final_norm", True),
        "bias": {**dict.fromkeys(BIASES, inner), "head": settings.truth("head_bias", False)},
    }


def _written(config: ModelConfig) -> dict[str, Any]:
    return {
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
    return with_biases(**dict.fromkeys(BIASES, any(getattr(biases, kind) for kind in BIASES)))(model)


TORCH_NN = Form(
    name=NAME,
    model_type=NAME,
    architecture="TransformerEncoder",
    allows=allowing(
        {
            "norm": ("pre", "post", "post, final_norm"),
            "final_norm": None,
            "feed_forward": tuple(KNOWN),
            "num_layers": (SOME,),
            "bias.head": None,
        }
    ),
    rewrites=usual_rewrites(biases=_all_biases_or_none),
    keys=(
        *sizes(context_length=None, d_model=None, num_layers=None, nhead=None),
        Key("dim_feedforward", "d_ff", 2048),
    ),
    read=_read,
    written=_written,
    rules=by_names(
        {
            "token_embedding": "embedding",
            "positions": "positions",
            **{f"blocks.{{layer}}.{ours}": f"encoder.layers.{{layer}}.{theirs}" for ours, theirs in BLOCK.items()},
            "final_norm": "encoder.norm",
            "head": "head",
        }
    ),
    embedding="embedding.weight",
    head="head.weight",
    ties=False,
)
