"""The learning rate as a pure function of the step: nothing to save, nothing to get out of step with."""

import math
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field

from vitral.core.config import Config


class ScheduleConfig(Config):
    """The course of the learning rate.

    Attributes:
        name: "constant"; "cosine" (Loshchilov & Hutter 2017); "linear"; "trapezoidal": constant, then linear down
            (Zhai et al. 2022).
        warmup_steps: steps in which the rate first rises linearly from near zero.
        final_fraction: share of the peak rate at the end (not for constant).
        decay_fraction: share of all steps in which a trapezoidal rate falls.
    """

    name: Literal["constant", "cosine", "linear", "trapezoidal"] = "constant"
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    final_fraction: Annotated[float, Field(ge=0, le=1)] = 0.0
    decay_fraction: Annotated[float, Field(gt=0, le=1)] = 0.2


def _constant(progress: float, decay: float) -> float:
    return 1.0


def _cosine(progress: float, decay: float) -> float:
    return (1 + math.cos(math.pi * progress)) / 2


def _linear(progress: float, decay: float) -> float:
    return 1 - progress


def _trapezoidal(progress: float, decay: float) -> float:
    return min(1.0, (1 - progress) / decay)


SHAPES: dict[str, Callable[[float, float], float]] = {
    "constant": _constant,
    "cosine": _cosine,
    "linear": _linear,
    "trapezoidal": _trapezoidal,
}
"""Share of the way between final and peak rate, by progress 0 … 1 after the warm-up."""


def learning_rate(schedule: ScheduleConfig, peak: float, step: int, steps: int) -> float:
    """The rate of the step numbered `step`, 0 … steps - 1.

    Warm-up: peak · (step + 1) / warmup_steps. Then final + (peak - final) · shape(progress), progress running from 0
    at the first step after the warm-up to 1 just past the last.

    >>> learning_rate(ScheduleConfig(name="linear"), 1.0, 5, 10)
    0.5
    """
    if step < schedule.warmup_steps:
        return peak * (step + 1) / schedule.warmup_steps
    progress = (step - schedule.warmup_steps) / max(1, steps - schedule.warmup_steps)
    share = SHAPES[schedule.name](min(progress, 1.0), schedule.decay_fraction)
    return peak * (schedule.final_fraction + (1 - schedule.final_fraction) * share)
