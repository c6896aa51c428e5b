"""The execution plan: threads, precision, compilation, and the number of steps for a time limit.

A run is a pure function of its configuration. The plan is therefore measured once before the first step and becomes
part of the configuration, shared by resumes and by all arms of a study.
"""

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vitral.core.devices import precision, resolve_device
from vitral.core.errors import UsageError
from vitral.core.machine import cores
from vitral.core.process import MOST_THREADS, using_threads
from vitral.model import Transformer, next_token_loss
from vitral.runs.config import RunConfig, TrainingConfig
from vitral.training.optimizers import build_optimizer

TRIALS = 4
"""Minimum number of timed steps per plan, after one warm-up step; one is enough to choose threads."""
TRIAL_SECONDS, TRIAL_SHARE = 2.0, 0.03
"""With a time limit, steps are timed for this long or this share of the limit: an idle processor is faster in its first
second."""
THREAD_SECONDS, THREAD_SHARE = 0.25, 0.25
"""Steps with one thread and with all are timed for this long each, or this share of the time for trials."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables from which PyTorch takes its number of threads."""
WORTH_COMPILING = 600.0
"""Seconds of training above which compiling is likely to pay off."""
MOST_EPOCHS = 8
"""Maximum number of passes over the text with a time limit; more passes would only memorize it."""
EVALUATIONS = 5
"""Maximum number of evaluations, evenly spaced, with a time limit."""
EVALUATING = 0.1
"""Maximum share of the time limit for evaluations before the last; the last runs after the limit."""
FORWARD = 1 / 3
"""Time of a forward pass as a share of a training step."""


@dataclass(frozen=True)
class ExecutionPlan:
    """Precision and compilation of training steps.

    Attributes:
        dtype: dtype of the arithmetic.
        compile: whether the model is compiled.
    """

    dtype: str
    compile: bool

    def __str__(self) -> str:
        """A short description for notes."""
        return f"{self.dtype}, {'compiled' if self.compile else 'not compiled'}"


Measure = Callable[[ExecutionPlan], float]
"""Seconds of a training step by a plan."""


@dataclass(frozen=True)
class ResolvedPlan:
    """A configuration with its execution plan resolved.

    Attributes:
        config: the configuration.
        notes: measurements and decisions, one line each.
    """

    config: RunConfig
    notes: tuple[str, ...]


def resolve_plan(
    config: RunConfig, build: Callable[[RunConfig], Transformer], num_tokens: int, num_held_out: int = 0
) -> ResolvedPlan:
    """Resolve `training.threads`, `training.plan = "auto"` and `training.minutes` by timing training steps.

    The other two are timed with the resolved number of threads.

    Args:
        config: configuration of the run.
        build: builds its model on its device.
        num_tokens: tokens of the training split.
        num_held_out: tokens scored by one evaluation.

    Raises:
        UsageError: the time limit allows only a handful of steps, or the environment asks for too many threads.
    """
    training = config.training
    is_written = training.plan != "auto" and training.minutes is None
    if is_written and training.threads is not None:
        return ResolvedPlan(config, ())
    notes: list[str] = []
    left = 0.0 if training.minutes is None else min(TRIAL_SECONDS, TRIAL_SHARE * 60 * training.minutes)
    threads = training.threads or given_threads(training)
    if threads is None:
        threads, spent = _faster_threads(config, build, THREAD_SHARE * left, notes)
        left -= spent
    changes: dict[str, Any] = {"threads": threads}
    if not is_written:
        measure = partial(seconds_per_step, config, build, least=left)
        with using_threads(threads):
            plan, seconds = _first_plan(training, measure, notes)
            if training.plan == "auto":
                plan, seconds = _fastest(training, measure, {plan: seconds}, notes)
        changes |= {"plan": "as-written", "dtype": plan.dtype, "compile": plan.compile}
        if training.minutes is not None:
            changes |= _steps_in(config, seconds, num_tokens, num_held_out, notes)
    return ResolvedPlan(config.model_copy(update={"training": training.model_copy(update=changes)}), tuple(notes))


def given_threads(training: TrainingConfig) -> int | None:
    """The number of threads that is not measured: of an accelerator's run, or that the environment asks for.

    Raises:
        UsageError: it is larger than a configuration allows.
    """
    named = next((name for name in THREAD_VARIABLES if os.environ.get(name, "").strip()), None)
    if named is None and resolve_device(training.device).type == "cpu":
        return None
    threads = torch.get_num_threads()
    if threads > MOST_THREADS:
        raise UsageError(f"{named or 'PyTorch'}: {threads} threads; at most {MOST_THREADS} are possible")
    return threads


def _faster_threads(
    config: RunConfig, build: Callable[[RunConfig], Transformer], share: float, notes: list[str]
) -> tuple[int, float]:
    """One thread or one for each core, whichever is faster, and the seconds of the time for trials used for that."""
    most = min(cores(), MOST_THREADS)
    if most == 1:
        return 1, 0.0
    least = THREAD_SECONDS if config.training.minutes is None else min(THREAD_SECONDS, share)
    plan, timed = ExecutionPlan(config.training.dtype, compile=False), dict[int, float]()
    for threads in (1, most):
        with using_threads(threads):
            timed[threads] = seconds_per_step(config, build, plan, least=least, trials=1)
    threads = min(timed, key=lambda each: timed[each])
    listed = ", ".join(f"{_counted(each)} {1000 * took:.1f} ms" for each, took in timed.items())
    notes.append(f"plan: {_counted(threads)} (a step: {listed})")
    return threads, 0.0 if config.training.minutes is None else len(timed) * least


def _counted(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


def _first_plan(training: TrainingConfig, measure: Measure, notes: list[str]) -> tuple[ExecutionPlan, float]:
    """The configured plan and its time per step; without compilation if that fails."""
    plan = ExecutionPlan(training.dtype, training.compile)
    try:
        return plan, measure(plan)
    except Exception as error:  # the compiler and its backends raise many types
        if not plan.compile:
            raise
        notes.append(f"plan: cannot compile here ({type(error).__name__}); continuing without it")
    plan = ExecutionPlan(training.dtype, compile=False)
    return plan, measure(plan)


def _fastest(
    training: TrainingConfig, measure: Measure, timed: dict[ExecutionPlan, float], notes: list[str]
) -> tuple[ExecutionPlan, float]:
    """The fastest plan among those worth timing."""
    for dtype in ("float32", "bfloat16"):
        other = ExecutionPlan(dtype, compile=False)
        if other not in timed and training.dtype != "float64":
            timed[other] = measure(other)
    plan = min(timed, key=lambda each: timed[each])
    expected = timed[plan] * training.steps if training.minutes is None else 60 * training.minutes
    if expected >= WORTH_COMPILING and not plan.compile:
        compiled = ExecutionPlan(plan.dtype, compile=True)
        try:
            timed[compiled] = measure(compiled)
        except Exception as error:  # the compiler and its backends raise many types
            notes.append(f"plan: cannot compile here ({type(error).__name__}); continuing without it")
        plan = min(timed, key=lambda each: timed[each])
    listed = ", ".join(f"{each} {1000 * took:.1f} ms" for each, took in timed.items())
    notes.append(f"plan: {plan} (a step: {listed})")
    return plan, timed[plan]


def _steps_in(
    config: RunConfig, seconds: float, num_tokens: int, num_held_out: int, notes: list[str]
) -> dict[str, Any]:
    """The keys that follow from a time limit: steps, evaluations, and a warm-up of at most a tenth of the steps."""
    training, allowed = config.training, 60 * (config.training.minutes or 0)
    minutes, tokens_per_step = allowed / 60, config.tokens_per_step
    an_evaluation = FORWARD * seconds * num_held_out / tokens_per_step
    evaluations = min(EVALUATIONS, 1 + int(EVALUATING * allowed / an_evaluation)) if an_evaluation else EVALUATIONS
    steps = math.floor((allowed - (evaluations - 1) * an_evaluation) / seconds)
    if steps < 2 * EVALUATIONS:
        raise UsageError(
            f"training.minutes: {minutes:g} allow only {steps} steps of {seconds:.2f} s; allow more time or "
            "use a smaller model"
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


def seconds_per_step(
    config: RunConfig,
    build: Callable[[RunConfig], Transformer],
    plan: ExecutionPlan,
    *,
    least: float = 0.0,
    trials: int = TRIALS,
) -> float:
    """The median time of a training step with random tokens, measured on a temporary model.

    Args:
        config: configuration of the run.
        build: builds its model on its device.
        plan: precision and compilation.
        least: minimum seconds of measuring.
        trials: minimum number of timed steps, after one warm-up step.
    """
    training = config.training
    model = build(config).train()
    optimizer = build_optimizer(model, training.optimizer)
    forward = torch.compile(model) if plan.compile else model
    device = model.token_embedding.weight.device
    shape = (training.batch_size, config.model.context_length + 1)
    tokens = torch.randint(model.vocab_size, shape, generator=torch.Generator().manual_seed(0)).to(device)
    times = []
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        while len(times) <= trials or sum(times) < least:
            began = time.perf_counter()
            for _ in range(training.accumulation):
                with precision(device, plan.dtype):  # pyright: ignore[reportArgumentType]
                    loss = next_token_loss(forward(tokens[:, :-1]), tokens[:, 1:], model.mask)
                loss.backward()
                loss.item()  # waits for the accelerator
            optimizer.step()
            optimizer.zero_grad()
            times.append(time.perf_counter() - began)
    steady = sorted(times[1 + (len(times) - 1 - trials) // 2 :])
    return steady[len(steady) // 2]


def compiled(model: Transformer, warn: Callable[[str], None]) -> Callable[[Tensor], Tensor]:
    """The compiled forward pass; if compiling fails, the model itself, with a warning."""
    forward: Callable[[Tensor], Tensor] = torch.compile(model)

    def run(tokens: Tensor) -> Tensor:
        nonlocal forward
        try:
            return forward(tokens)
        except Exception as error:  # the compiler and its backends raise many types
            if forward is model:
                raise
            warn(f"plan: cannot compile here ({type(error).__name__}); continuing without it")
            forward = model
            return model(tokens)

    return run
