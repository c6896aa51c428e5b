"""The position-wise feed-forward, applied to each position independently (Vaswani et al. 2017, §3.3)."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vitral.core.taps import SILENT, Tap
from vitral.model.config import ModelConfig


def squared_relu(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """max(0, x)² (So et al. 2021)."""
    return functional.relu(x).square()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "relu": functional.relu,
    "squared_relu": squared_relu,
}


class FeedForward(nn.Module):
    """down(φ(up(x))): two matrices with an activation between, d_model → d_ff → d_model."""

    def __init__(self, config: ModelConfig) -> None:
        """Build the two projections."""
        super().__init__()
        self.activation = ACTIVATIONS[config.feed_forward]
        self.up = nn.Linear(config.d_model, config.hidden_width, bias=config.bias)
        self.down = nn.Linear(config.hidden_width, config.d_model, bias=config.bias)

    def forward(self, x: Float[Tensor, "batch time d_model"], tap: Tap = SILENT) -> Float[Tensor, "batch time d_model"]:
        """The output at every position; taps: `pre` (before the activation), `hidden` (after it), `out`."""
        return tap("out", self.down(tap("hidden", self.activation(tap("pre", self.up(x))))))


class SwiGLU(nn.Module):
    """down(swish(gate(x)) · up(x)) (Shazeer 2020, eq. 6)."""

    def __init__(self, config: ModelConfig) -> None:
        """Build the three projections."""
        super().__init__()
        self.gate = nn.Linear(config.d_model, config.hidden_width, bias=config.bias)
        self.up = nn.Linear(config.d_model, config.hidden_width, bias=config.bias)
        self.down = nn.Linear(config.hidden_width, config.d_model, bias=config.bias)

    def forward(self, x: Float[Tensor, "batch time d_model"], tap: Tap = SILENT) -> Float[Tensor, "batch time d_model"]:
        """The output at every position; taps: `gate` and `pre` (the projections), `hidden` (their product), `out`."""
        gate = functional.silu(tap("gate", self.gate(x)))
        return tap("out", self.down(tap("hidden", gate * tap("pre", self.up(x)))))


def build_feed_forward(config: ModelConfig) -> FeedForward | SwiGLU | None:
    """The feed-forward that `config.feed_forward` names; None if there is none."""
    if config.feed_forward == "none":
        return None
    return SwiGLU(config) if config.feed_forward == "swiglu" else FeedForward(config)
