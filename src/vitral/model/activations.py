"""Activations of the feed-forward, each one object: what it computes, and what follows from it for sizes and memory."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Activation:
    """An activation φ of the hidden layer.

    Attributes:
        function: φ.
        gated: whether the feed-forward is down(φ(gate(x)) · up(x)), with a third matrix, and not down(φ(up(x))).
        kept: numbers that the backward pass needs for each entry of the hidden layer.
        width: default of d_ff in terms of d_model.
    """

    function: Callable[[Tensor], Tensor]
    gated: bool = False
    kept: int = 2
    width: Fraction = Fraction(4)


def squared_relu(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """max(0, x)² (So et al. 2021)."""
    return functional.relu(x).square()


def gelu_tanh(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))), GELU approximately (Hendrycks & Gimpel 2016, §2), as in GPT-2."""
    return functional.gelu(x, approximate="tanh")


ACTIVATIONS = {
    "gelu": Activation(functional.gelu),
    "gelu_tanh": Activation(gelu_tanh),
    "relu": Activation(functional.relu, kept=1),
    "squared_relu": Activation(squared_relu),
    "swiglu": Activation(functional.silu, gated=True, kept=4, width=Fraction(8, 3)),  # Shazeer 2020, eq. 6
}
"""Vitral's activations by the name that `model.feed_forward` gives them."""
