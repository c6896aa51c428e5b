"""The execution plan: in which precision, compiled or not, and how many steps fit a time; measured once, then written.

A run is a pure function of its configuration. So what a measurement decides is decided before the first step and
becomes part of the configuration: resumes, and all arms of a study, share it.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitral.core.devices import precision
from vitral.core.errors import UsageError
from vitral.model import Transformer, next_token_loss
from vitral.training.config import RunConfig
from vitral.training.optimizers import build_optimizer

TRIALS = 4
"""Steps that are timed for each plan at least, after one that is not."""
TRIAL_SECONDS, TRIAL_SHARE = 2.0, 0.03
"""Where steps are to fill a time, they are timed so long, or for this share of it: a processor that was idle is faster
in its first second than it will be."""
WORTH_COMPILING = 600.0
"""Seconds of training from which the compiler's own time is likely to come back."""
MOST_EPOCHS = 8
"""Seen more often, a text is learned by heart; time allowed beyond that is not used."""
EVALUATIONS = 5
"""Of a run whose steps follow from a time: so many evaluations at most, spread evenly."""
EVALUATING = 0.1
"""The share of a time that evaluations before the last may take; the last comes when it is over."""
FORWARD = 1 / 3
"""What a forward pass takes of a training step."""


@dataclass(frozen=True)
class ExecutionPlan:
    """How steps are computed.

    Attributes:
        dtype: of the arithmetic.
        compile: whether the model is compiled.
    """

    dtype: str
    compile: bool

    def __str__(self) -> str:
        """As people say it."""
        return f"{self.dtype}, {'compiled' if self.compile else 'not compiled'}"


@dataclass(frozen=True)
class ResolvedPlan:
    """A configuration in which nothing is left to be measured.

    Attributes:
        config: the configuration.
        notes: what was measured and decided, a line each.
    """

    config: RunConfig
    notes: tuple[str, ...]


def resolve_plan(
    config: RunConfig, build: Callable[[RunConfig], Transformer], num_tokens: int, num_held_out: int = 0
) -> ResolvedPlan:
    """Measure what the configuration leaves to measurement: `training.plan = "auto"` and `training.minutes`.

    Args:
        config: of the run.
        build: makes its model, on its device.
        num_tokens: of the text's training part.
        num_held_out: tokens that an evaluation measures.

    Raises:
        UsageError: not even a handful of steps fits the time.
    """
    training = config.training
    if training.plan != "auto" and training.minutes is None:
        return ResolvedPlan(config, ())
    notes: list[str] = []
    plan, seconds = _first_plan(config, build, notes)
    if training.plan == "auto":
        plan, seconds = _fastest(config, build, {plan: seconds}, notes)
    changes: dict[str, Any] = {"plan": "as-written", "dtype": plan.dtype, "compile": plan.compile}
    if training.minutes is not None:
        changes |= _steps_in(config, seconds, num_tokens, num_held_out, notes)
    return ResolvedPlan(config.model_copy(update={"training": training.model_copy(update=changes)}), tuple(notes))


def _first_plan(
    config: RunConfig, build: Callable[[RunConfig], Transformer], notes: list[str]
) -> tuple[ExecutionPlan, float]:
    """The plan as written and its time; without the compiler where that fails."""
    plan = ExecutionPlan(config.training.dtype, config.training.compile)
    try:
        return plan, seconds_per_step(config, build, plan)
    except Exception as error:  # whatever the compiler or its own compilers raise
        if not plan.compile:
            raise
        notes.append(f"plan: cannot compile here ({type(error).__name__}); going on without")
    plan = ExecutionPlan(config.training.dtype, compile=False)
    return plan, seconds_per_step(config, build, plan)


def _fastest(
    config: RunConfig, build: Callable[[RunConfig], Transformer], timed: dict[ExecutionPlan, float], notes: list[str]
) -> tuple[ExecutionPlan, float]:
    """The plan whose steps take least time, of those worth trying."""
    training = config.training
    for dtype in ("float32", "bfloat16"):
        other = ExecutionPlan(dtype, compile=False)
        if other not in timed and training.dtype != "float64":
            timed[other] = seconds_per_step(config, build, other)
    plan = min(timed, key=lambda each: timed[each])
    expected = timed[plan] * training.steps if training.minutes is None else 60 * training.minutes
    if expected >= WORTH_COMPILING and not plan.compile:
        compiled = ExecutionPlan(plan.dtype, compile=True)
        try:
            timed[compiled] = seconds_per_step(config, build, compiled)
        except Exception as error:  # whatever the compiler or its own compilers raise
            notes.append(f"plan: cannot compile here ({type(error).__name__}); going on without")
        plan = min(timed, key=lambda each: timed[each])
    listed = ", ".join(f"{each} {1000 * took:.1f} ms" for each, took in timed.items())
    notes.append(f"plan: {plan} (a step: {listed})")
    return plan, timed[plan]


def _steps_in(
    config: RunConfig, seconds: float, num_tokens: int, num_held_out: int, notes: list[str]
) -> dict[str, Any]:
    """What follows from a time: steps, evaluations, and a warm-up that is not most of them."""
    training, allowed = config.training, 60 * (config.training.minutes or 0)
    minutes, tokens_per_step = allowed / 60, config.tokens_per_step
    an_evaluation = FORWARD * seconds * num_held_out / tokens_per_step
    evaluations = min(EVALUATIONS, 1 + int(EVALUATING * allowed / an_evaluation)) if an_evaluation else EVALUATIONS
    steps = math.floor((allowed - (evaluations - 1) * an_evaluation) / seconds)
    if steps < 2 * EVALUATIONS:
        raise UsageError(
            f"training.minutes: {minutes:g} are {steps} steps of {seconds:.2f} s; allow more time, or a smaller model"
        )
    notes.append(f"plan: {steps:,} steps of {1000 * seconds:.1f} ms in {minutes:g} minutes")
    enough = max(2 * EVALUATIONS, math.ceil(MOST_EPOCHS * num_tokens / tokens_per_step))
    if enough < steps:
        notes.append(f"plan: {enough:,} steps see each token of this text {MOST_EPOCHS} times, which is enough")
        steps = enough
    warmup = min(training.schedule.warmup_steps, steps // 10)
    return {
        "minutes": None,
        "steps": steps,
        "evaluate_every": math.ceil(steps / evaluations),
        "schedule": training.schedule.model_copy(update={"warmup_steps": warmup}),
    }


def seconds_per_step(config: RunConfig, build: Callable[[RunConfig], Transformer], plan: ExecutionPlan) -> float:
    """The median time of a step with random tokens, optimizer included, on a model that is then thrown away."""
    training = config.training
    model = build(config).train()
    optimizer = build_optimizer(model, training.optimizer)
    forward = torch.compile(model) if plan.compile else model
    device = model.token_embedding.weight.device
    shape = (training.batch_size, config.model.context_length + 1)
    tokens = torch.randint(model.vocab_size, shape, generator=torch.Generator().manual_seed(0)).to(device)
    times = []
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        least = 0.0 if training.minutes is None else min(TRIAL_SECONDS, TRIAL_SHARE * 60 * training.minutes)
        while len(times) <= TRIALS or sum(times) < least:
            began = time.perf_counter()
            for _ in range(training.accumulation):
                with precision(device, plan.dtype):  # pyright: ignore[reportArgumentType]
                    loss = next_token_loss(forward(tokens[:, :-1]), tokens[:, 1:], model.mask)
                loss.backward()
                loss.item()  # waits until an accelerator is done
            optimizer.step()
            optimizer.zero_grad()
            times.append(time.perf_counter() - began)
    settled = sorted(times[1 + (len(times) - 1 - TRIALS) // 2 :])
    return settled[len(settled) // 2]


def compiled(model: Transformer, warn: Callable[[str], None]) -> Callable[[Tensor], Tensor]:
    """The model's forward, compiled; where that turns out not to work, the model itself, after one line."""
    forward: Callable[[Tensor], Tensor] = torch.compile(model)

    def run(tokens: Tensor) -> Tensor:
        nonlocal forward
        try:
            return forward(tokens)
        except Exception as error:  # whatever the compiler or its own compilers raise
            if forward is model:
                raise
            warn(f"plan: cannot compile here ({type(error).__name__}); going on without")
            forward = model
            return model(tokens)

    return run
