"""The position-wise feed-forward, applied to each position independently (Vaswani et al. 2017, §3.3)."""

from collections.abc import Callable
from typing import Any, cast

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vitral.core.language import _
from vitral.core.modules import own_module
from vitral.core.taps import SILENT, Tap
from vitral.model.config import ModelConfig, OwnFeedForward


def squared_relu(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """max(0, x)² (So et al. 2021)."""
    return functional.relu(x).square()


def gelu_tanh(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))), GELU approximately (Hendrycks & Gimpel 2016, §2), as in GPT-2."""
    return functional.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_tanh": gelu_tanh,
    "relu": functional.relu,
    "squared_relu": squared_relu,
}


class FeedForward(nn.Module):
    """down(φ(up(x))): two matrices with an activation between, d_model → d_ff → d_model."""

    def __init__(self, config: ModelConfig) -> None:
        """Build the two projections."""
        super().__init__()
        self.activation = _activation(config.feed_forward)
        self.up = nn.Linear(config.d_model, config.hidden_width, bias=config.biases.feed_forward)
        self.down = nn.Linear(config.hidden_width, config.d_model, bias=config.biases.feed_forward)

    def forward(self, x: Float[Tensor, "batch time d_model"], tap: Tap = SILENT) -> Float[Tensor, "batch time d_model"]:
        """The output at every position; taps: `pre` (before the activation), `hidden` (after it), `out`."""
        return tap("out", self.down(tap("hidden", self.activation(tap("pre", self.up(x))))))


class SwiGLU(nn.Module):
    """down(swish(gate(x)) · up(x)) (Shazeer 2020, eq. 6)."""

    def __init__(self, config: ModelConfig) -> None:
        """Build the three projections."""
        super().__init__()
        self.gate = nn.Linear(config.d_model, config.hidden_width, bias=config.biases.feed_forward)
        self.up = nn.Linear(config.d_model, config.hidden_width, bias=config.biases.feed_forward)
        self.down = nn.Linear(config.hidden_width, config.d_model, bias=config.biases.feed_forward)

    def forward(self, x: Float[Tensor, "batch time d_model"], tap: Tap = SILENT) -> Float[Tensor, "batch time d_model"]:
        """The output at every position; taps: `gate` and `pre` (the projections), `hidden` (their product), `out`."""
        gate = functional.silu(tap("gate", self.gate(x)))
        return tap("out", self.down(tap("hidden", gate * tap("pre", self.up(x)))))


def build_feed_forward(config: ModelConfig) -> FeedForward | SwiGLU | Any | None:
    """The feed-forward that `config.feed_forward` names; None if there is none."""
    kind = config.feed_forward
    if kind == "none":
        return None
    if isinstance(kind, OwnFeedForward) and kind.part.kind == "feed_forward":
        return own_module(kind, kind.make(config))
    return SwiGLU(config) if kind == "swiglu" else FeedForward(config)


def _activation(kind: str | OwnFeedForward) -> Callable[[Tensor], Tensor]:
    if not isinstance(kind, OwnFeedForward):
        return ACTIVATIONS[kind]
    made: object = kind.make()
    if isinstance(made, nn.Module):
        return own_module(kind, made)
    if not callable(made):
        raise kind.wrong(_("its factory returns {kind}, not a function or an nn.Module", kind=type(made).__name__))
    return cast("Callable[[Tensor], Tensor]", made)
