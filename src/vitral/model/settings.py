"""Settings of parts of a model that have more than a name: which biases there are, and how rotary positions turn."""

from typing import Annotated, Literal, cast

from pydantic import AfterValidator, Field, model_validator

from vitral.core.config import Config
from vitral.core.language import _

Factor = Annotated[float, Field(gt=0)]
ROTARY_BASE = 10_000.0


class BiasConfig(Config):
    """Which projections and norms have biases.

    Attributes:
        qkv: the projections of queries, keys and values.
        output: the projection of the heads' outputs.
        feed_forward: its matrices.
        norm: LayerNorm; RMSNorm never has one.
        head: the head.
    """

    qkv: bool = True
    output: bool = True
    feed_forward: bool = True
    norm: bool = True
    head: bool = False


_EVERYWHERE, _NOWHERE = BiasConfig(), BiasConfig(qkv=False, output=False, feed_forward=False, norm=False)


def biases_of(bias: bool | BiasConfig) -> BiasConfig:
    """The table that a bare true or false stands for."""
    if isinstance(bias, BiasConfig):
        return bias
    return _EVERYWHERE if bias else _NOWHERE


def _as_word(bias: bool | BiasConfig) -> bool | BiasConfig:
    return next((word for word in (True, False) if bias == biases_of(word)), bias)


Bias = Annotated[bool | BiasConfig, AfterValidator(_as_word)]
"""True, false, or a table; a table that says what a word says becomes that word."""


class LinearScaling(Config):
    """Every angle is divided by `factor`, so that a longer context has the angles of a shorter one (Chen et al. 2023).

    Attributes:
        name: "linear".
        factor: how many times longer.
    """

    name: Literal["linear"] = "linear"
    factor: Factor


class Llama3Scaling(Config):
    """Slow rotations are divided by `factor`, fast ones stay, those between are mixed (Llama 3.1, Dubey et al. 2024).

    A rotation is slow if it makes at most `low_frequency_factor` turns within the original context, and fast if it
    makes at least `high_frequency_factor`.

    Attributes:
        name: "llama3".
        factor: of the slow rotations.
        low_frequency_factor: turns.
        high_frequency_factor: turns; more than of the slow ones.
        original_context_length: tokens of the context before it was extended.
    """

    name: Literal["llama3"] = "llama3"
    factor: Factor
    low_frequency_factor: Factor = 1.0
    high_frequency_factor: Factor = 4.0
    original_context_length: Annotated[int, Field(ge=1)] = 8192

    @model_validator(mode="after")
    def _fast_is_above_slow(self) -> "Llama3Scaling":
        if self.high_frequency_factor <= self.low_frequency_factor:
            raise ValueError(
                _(
                    "high_frequency_factor = {high} must be larger than low_frequency_factor = {low}",
                    high=self.high_frequency_factor,
                    low=self.low_frequency_factor,
                )
            )
        return self


class RotaryConfig(Config):
    """Rotary positions.

    Attributes:
        name: "rotary".
        base: of the angles' rates: pair i of w features turns by base^(-2i/w) from one position to the next.
        fraction: share of a head's features that turn, the first ones; the others stay (GPT-NeoX, GPT-J).
        pairing: "halves": features i and i + w/2 are a pair (GPT-NeoX, Llama); "interleaved": 2i and 2i + 1 (GPT-J).
        scaling: {name = "linear", factor = f} or {name = "llama3", factor = f, …}; default: none.
    """

    name: Literal["rotary"] = "rotary"
    base: Annotated[float, Field(gt=1)] = ROTARY_BASE
    fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    pairing: Literal["halves", "interleaved"] = "halves"
    scaling: Annotated[LinearScaling | Llama3Scaling, Field(discriminator="name")] | None = None

    def width(self, d_head: int) -> int:
        """Number of a head's features that turn."""
        return int(d_head * self.fraction)


ROTARY = RotaryConfig()
"""Rotary positions with every setting as it usually is."""


def plain_rotary(positions: object) -> object:
    """The name alone where every setting has its default."""
    return "rotary" if positions == ROTARY else positions


def rotary_table(value: object) -> bool:
    """Whether a value of `positions` is a table of Vitral's rotary positions, or the settings themselves."""
    if isinstance(value, RotaryConfig):
        return True
    return isinstance(value, dict) and cast("dict[object, object]", value).get("name") == "rotary"
