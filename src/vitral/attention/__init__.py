"""Attention: steps, masks and scales, with one definition and two executions (fused and traced)."""

from vitral.attention.executions import attend, attend_traced
from vitral.attention.masks import Bidirectional, Causal, Explicit, Mask, Padding, Prefix, Window
from vitral.attention.multihead import MultiHeadAttention

__all__ = [
    "Bidirectional",
    "Causal",
    "Explicit",
    "Mask",
    "MultiHeadAttention",
    "Padding",
    "Prefix",
    "Window",
    "attend",
    "attend_traced",
]
