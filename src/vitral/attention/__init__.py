"""Attention: steps, masks and scales, with one definition and two executions (fused and traced)."""

from vitral.attention import executions
from vitral.attention.executions import Steps
from vitral.attention.masks import Bidirectional, Causal, Explicit, Mask, Padding, Prefix, Window
from vitral.attention.multihead import MultiHeadAttention
from vitral.core.checked import checked

attend = checked(executions.attend)
attend_traced = checked(executions.attend_traced)

__all__ = [
    "Bidirectional",
    "Causal",
    "Explicit",
    "Mask",
    "MultiHeadAttention",
    "Padding",
    "Prefix",
    "Steps",
    "Window",
    "attend",
    "attend_traced",
]
