"""The position-wise feed-forward, applied to each position independently (Vaswani et al. 2017, §3.3)."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from jaxtyping import Float
from torch import Tensor, nn

from vitral.core.language import _
from vitral.core.parts import own_module
from vitral.core.taps import SILENT, Tap
from vitral.model.activations import ACTIVATIONS
from vitral.model.config import ModelConfig, OwnFeedForward
from vitral.model.norms import norm_of


class FeedForward(nn.Module):
    """down(φ(up(x))), or gated down(φ(gate(x)) · up(x)): d_model → d_ff → d_model, with an activation φ."""

    gate: nn.Linear | None

    def __init__(self, config: ModelConfig) -> None:
        """Build the projections."""
        super().__init__()
        self.activation, gated = _activation(config.feed_forward)
        inward = partial(nn.Linear, config.d_model, config.hidden_width, bias=config.biases.feed_forward)
        self.gate = inward() if gated else None
        self.up = inward()
        self.down = nn.Linear(config.hidden_width, config.d_model, bias=config.biases.feed_forward)

    def forward(self, x: Float[Tensor, "batch time d_model"], tap: Tap = SILENT) -> Float[Tensor, "batch time d_model"]:
        """The output at every position.

        Taps: `gate` and `pre` (the projections), `hidden` (activation, or product of the two), `out`.
        """
        if self.gate is None:
            hidden = self.activation(tap("pre", self.up(x)))
        else:
            gate = self.activation(tap("gate", self.gate(x)))
            hidden = gate * tap("pre", self.up(x))
        return tap("out", self.down(tap("hidden", hidden)))


class HeadTransform(nn.Module):
    """norm(φ(linear(x))): d_model → d_model, before the head of a masked language model (Devlin et al. 2019)."""

    def __init__(self, config: ModelConfig) -> None:
        """Build it with the activation and the norm of the blocks."""
        super().__init__()
        self.linear = nn.Linear(config.d_model, config.d_model, bias=config.biases.feed_forward)
        self.activation, _gated = _activation(config.feed_forward)
        self.norm = norm_of(config)

    def forward(self, x: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any d_model"]:
        """What the head reads."""
        return self.norm(self.activation(self.linear(x)))


def build_feed_forward(config: ModelConfig) -> FeedForward | Any | None:
    """The feed-forward that `config.feed_forward` names; None if there is none."""
    kind = config.feed_forward
    if kind == "none":
        return None
    if isinstance(kind, OwnFeedForward) and kind.part.kind == "feed_forward":
        return own_module(kind, kind.make(config))
    return FeedForward(config)


def _activation(kind: str | OwnFeedForward) -> tuple[Callable[[Tensor], Tensor], bool]:
    """The activation, and whether it is of a gate."""
    if not isinstance(kind, OwnFeedForward):
        return ACTIVATIONS[kind].function, ACTIVATIONS[kind].gated
    made: object = kind.make()
    if isinstance(made, nn.Module):
        return own_module(kind, made), False
    if not callable(made):
        raise kind.wrong(_("its factory returns {kind}, not a function or an nn.Module", kind=type(made).__name__))
    return cast("Callable[[Tensor], Tensor]", made), False
