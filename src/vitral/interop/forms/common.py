"""What is usual in forms: the values that they can express, the rewritings that they try."""

from collections.abc import Mapping
from typing import Any

from vitral.interop.form import THEIRS
from vitral.interop.rewrites import (
    Rewrite,
    fold_scale,
    forget_training,
    positions_as_table,
    with_attention,
    with_feed_forward,
    with_own_keys,
)

BIASES = {"qkv": True, "output": True, "feed_forward": True, "norm": True}
"""A bias everywhere but at the head."""
_USUAL: dict[str, tuple[Any, ...]] = {
    "norm": ("pre",),
    "norm_type": ("layernorm",),
    "final_norm": (True,),
    "positions": ("learned",),
    "attention": ("softmax",),
    "attention.mask": ("causal",),
    "attention.windows": (0, 1),
    "attention.scale": ("sqrt",),
    "recurrence": (None,),
    "feed_forward": tuple(THEIRS),
    "residual": (True,),
    "parallel": (False,),
    "num_kv_heads": (None,),
    "d_head": (None,),
    "bias.head": (False,),
}


def allowing(others: Mapping[str, tuple[Any, ...] | None]) -> dict[str, tuple[Any, ...]]:
    """The values that a form can express.

    Args:
        others: keys whose values are not the usual ones; None for any value.
    """
    return {key: values for key, values in {**_USUAL, **others}.items() if values is not None}


def usual_rewrites(*, biases: Rewrite, has_table: bool = True, scale: str = "sqrt") -> tuple[Rewrite, ...]:
    """The rewritings that a form with heads of their own keys tries.

    Args:
        biases: the rewriting to the biases that the form has.
        has_table: whether its positions are a table.
        scale: the scale of its scores.
    """
    return (
        forget_training,
        *([positions_as_table] if has_table else []),
        with_attention,
        with_feed_forward("gelu"),
        biases,
        with_own_keys,
        fold_scale(scale),
    )
