"""Learning rate schedules as pure functions of the step, so that there is no state to save."""

import math
from collections.abc import Callable

from vitral.runs.config import ScheduleConfig

SHAPES: dict[str, Callable[[float, float], float]] = {
    "constant": lambda progress, decay: 1.0,
    "cosine": lambda progress, decay: (1 + math.cos(math.pi * progress)) / 2,
    "linear": lambda progress, decay: 1 - progress,
    "trapezoidal": lambda progress, decay: min(1.0, (1 - progress) / decay),
}
"""Position between final rate (0) and peak rate (1), as a function of progress 0 … 1 after the warm-up."""


def learning_rate(schedule: ScheduleConfig, peak: float, step: int, steps: int) -> float:
    """The learning rate of step number `step`, 0 … steps - 1; both are counted from `schedule.begin`.

    Warm-up: peak · (step + 1) / warmup_steps. Then final + (peak - final) · shape(progress), where progress
    is 0 at the first step after the warm-up and 1 just after the last step.

    >>> learning_rate(ScheduleConfig(name="linear"), 1.0, 5, 10)
    0.5
    """
    begin = schedule.begin or 0
    step, steps = step - begin, steps - begin
    if step < schedule.warmup_steps:
        return peak * (step + 1) / schedule.warmup_steps
    progress = (step - schedule.warmup_steps) / max(1, steps - schedule.warmup_steps)
    share = SHAPES[schedule.name](min(progress, 1.0), schedule.decay_fraction)
    return peak * (schedule.final_fraction + (1 - schedule.final_fraction) * share)
