"""The execution plan: threads, precision, compilation, model size, and the number of steps for a time limit.

A run is a pure function of its configuration. The plan is therefore measured once before the first step and becomes
part of the configuration, shared by resumes and by all arms of a study.
"""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

import torch

from vitral.core.config import merge
from vitral.core.devices import ordered_sums, precision, resolve_device
from vitral.core.errors import UsageError
from vitral.core.language import N_, Message
from vitral.core.machine import cores
from vitral.core.process import MOST_THREADS, using_threads
from vitral.model import Transformer, cost, count_parameters
from vitral.model.config import DropoutConfig
from vitral.runs.config import RunConfig, TrainingConfig
from vitral.training.deadline import in_minutes, steps_in
from vitral.training.objectives import loss_function, no_compiler
from vitral.training.optimizers import optimizer_of
from vitral.training.regularisation import TABLE, most_passes, regularisation

TRIAL_SHARE, TRIAL_SECONDS = 0.05, 6.0
"""Share of a time limit for timing steps, and its maximum in seconds."""
A_TRIAL = 0.2
"""Share of the time for trials: for each number of threads, and for each precision."""
UNLIMITED = 0.25
"""Seconds of timing each plan without a time limit."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables from which PyTorch takes its number of threads."""
WORTH_COMPILING = 1800.0
"""Seconds of training above which compiling is likely to pay off: a fitted size is compiled up to three times."""
Timed = tuple[RunConfig, float]
"""A configuration, and the seconds of a step by it."""
ONE_FASTER = N_("plan: 1 thread (a step: 1 thread {one:.1f} ms, {threads} threads {several:.1f} ms)")
SEVERAL_FASTER = N_("plan: {threads} threads (a step: 1 thread {one:.1f} ms, {threads} threads {several:.1f} ms)")
FASTEST = N_("plan: {plan} (a step: {times})")
"""What the trials of steps have measured: for a run's record and the doctor, not for a log."""
SAVED = 0.95
"""A precision is taken for the share of the time that it takes; one that saves less may only seem faster."""
FIT = "fit"
"""The value of training.plan with which the model's size is chosen too."""


class ResolvedPlan(NamedTuple):
    """A configuration with its execution plan resolved.

    Attributes:
        config: the configuration.
        notes: measurements and decisions, one line each.
    """

    config: RunConfig
    notes: tuple[str, ...]

    @property
    def decisions(self) -> tuple[str, ...]:
        """The decisions, without the measurements."""
        measured = {ONE_FASTER, SEVERAL_FASTER, FASTEST}
        return tuple(one for one in self.notes if getattr(one, "sentence", one) not in measured)


@dataclass
class _Trials:
    """Timed steps, and the lines about them."""

    build: Callable[[RunConfig], Transformer]
    seconds: float | None
    notes: list[str] = field(default_factory=list)

    def time(self, config: RunConfig, share: float, *, trials: int = 2) -> float:
        """Seconds of a step, timed for a share of the time for trials."""
        given = UNLIMITED if self.seconds is None else share * self.seconds
        return time_steps(config, self.build, given, trials=trials)


def resolve_plan(
    config: RunConfig,
    build: Callable[[RunConfig], Transformer],
    num_tokens: int,
    held_out: Sequence[int] = (),
    *,
    seconds_left: float | None = None,
) -> ResolvedPlan:
    """Resolve `training.threads`, `plan`, `regularisation` and `minutes` by timing training steps.

    Threads are chosen first; precision, size, dropout and steps are timed with them.

    Args:
        config: configuration of the run.
        build: builds its model on its device.
        num_tokens: tokens of the training split.
        held_out: tokens of the splits that an evaluation scores.
        seconds_left: seconds that are left of `training.minutes` for trials and training; None: all.

    Raises:
        UsageError: all the minutes would allow only a handful of steps, or a size is to fit no time limit.
    """
    training = config.training
    if training.minutes is None and FIT in (training.plan, training.regularisation):
        raise UsageError(
            '"fit" chooses training.plan and training.regularisation for a time; give training.minutes too'
        )
    sizes = sizes_for(config, num_tokens) if training.plan == FIT else [config]
    limit = None if training.minutes is None else min(TRIAL_SECONDS, TRIAL_SHARE * 60 * training.minutes)
    trials = _Trials(build, limit)
    threads = training.threads or _suitable_threads(trials, sizes[0])
    config = config.with_training(threads=threads)
    if training.plan == "as-written" and training.minutes is None:
        return ResolvedPlan(config, tuple(trials.notes))
    changes: dict[str, Any] = {"threads": threads, "plan": "as-written"}
    with using_threads(threads):
        allowed = 60 * (training.minutes or 0) if seconds_left is None else seconds_left
        is_fit = training.plan == FIT
        config, seconds = _fitting_size(trials, sizes, allowed) if is_fit else _chosen_precision(trials, config)
        if training.minutes is not None:
            if training.regularisation == FIT:
                changes["regularisation"] = None
                config, seconds = _regularised(trials, config, seconds, allowed, num_tokens)
            changes |= steps_in(config, seconds, allowed, num_tokens, held_out, trials.notes)
    return ResolvedPlan(config.with_training(**changes), tuple(trials.notes))


def _suitable_threads(trials: _Trials, config: RunConfig) -> int:
    """One or one for each core, whichever is faster; PyTorch's with an accelerator, or if the environment sets it."""
    is_named = any(os.environ.get(name, "").strip() for name in THREAD_VARIABLES)
    if is_named or resolve_device(config.training.device).type != "cpu":
        return min(torch.get_num_threads(), MOST_THREADS)
    most = min(cores(), MOST_THREADS)
    if most == 1:
        return 1
    config = _plainest(config)
    seconds = list[float]()
    for threads in (1, most):
        with using_threads(threads):
            seconds.append(1000 * trials.time(config, A_TRIAL, trials=1))
    one, several = seconds
    sentence, fastest = (SEVERAL_FASTER, most) if several < one else (ONE_FASTER, 1)
    trials.notes.append(sentence.format(threads=most, one=one, several=several))
    return fastest


def _plainest(config: RunConfig) -> RunConfig:
    """The configuration without compilation, in the precision of its weights."""
    dtype = "float64" if config.training.dtype == "float64" else "float32"
    return config.with_training(dtype=dtype, compile=False)


def _arithmetic(config: RunConfig) -> Message:
    """Precision and compilation."""
    sentence = N_("{dtype}, compiled") if config.training.compile else N_("{dtype}, not compiled")
    return sentence.format(dtype=config.training.dtype)


def _chosen_precision(trials: _Trials, config: RunConfig) -> Timed:
    """The configuration to train with, and its seconds per step; a written one without compilation if that fails."""
    if config.training.plan != "as-written":
        return _fastest(trials, config)
    try:
        return config, trials.time(config, 2 * A_TRIAL)
    except Exception as error:  # the compiler and its backends raise many types
        if not config.training.compile:
            raise
        trials.notes.append(no_compiler(error))
        return _chosen_precision(trials, config.with_training(compile=False))


def _fastest(trials: _Trials, config: RunConfig) -> Timed:
    """The fastest of float32, bfloat16, and the faster one compiled, where that is likely to pay off."""
    training, timed, times = config.training, list[Timed](), ""

    def enter(one: RunConfig) -> Timed:
        timed.append((one, trials.time(one, A_TRIAL)))
        return min(timed, key=lambda each: each[1] * (SAVED if each is timed[0] else 1))

    plainest = _plainest(config)
    best = enter(plainest)
    if training.dtype != "float64":
        best = enter(plainest.with_training(dtype="bfloat16"))
    expected = best[1] * training.steps if training.minutes is None else 60 * training.minutes
    if expected >= WORTH_COMPILING and training.sharding == "replicated":
        try:
            best = enter(best[0].with_training(compile=True))
        except Exception as error:  # the compiler and its backends raise many types
            trials.notes.append(no_compiler(error))
    for one, seconds in timed:
        sentence = N_("{before}, {plan} {milliseconds:.1f} ms") if times else N_("{plan} {milliseconds:.1f} ms")
        times = sentence.format(before=times, plan=_arithmetic(one), milliseconds=1000 * seconds)
    trials.notes.append(FASTEST.format(plan=_arithmetic(best[0]), times=times))
    return best


def _fitting_size(trials: _Trials, sizes: Sequence[RunConfig], allowed: float) -> Timed:
    """The largest of some sizes with enough steps in the time, in its precision, and its seconds per step.

    Operations foretell too long a step of a larger size, since a processor does those of a small one more slowly; so
    the size that they propose is timed, and then the next one if it may fit. Each size is timed in each precision:
    bfloat16 may cost a small one what it saves in a large one.
    """
    work = [cost(config.model, 1).forward_flops for config in sizes]
    timed: dict[int, tuple[Timed, list[str]]] = {}

    def seconds(index: int) -> float:
        if index not in timed:
            own = replace(trials, notes=[])
            timed[index] = _fastest(own, sizes[index]), own.notes
        return timed[index][0][1]

    def has_enough(index: int, a_step: float) -> bool:
        return index == 0 or allowed / a_step >= LADDER[index].least_steps

    index = max(n for n in range(len(sizes)) if has_enough(n, seconds(0) * work[n] / work[0]))
    while not has_enough(index, seconds(index)):
        index -= 1
    for larger in range(index + 1, len(sizes)):
        foretold = seconds(index) * work[larger] / work[index]
        if larger in timed or not has_enough(larger, foretold) or not has_enough(larger, seconds(larger)):
            break
        index = larger
    chosen, notes = timed[index]
    trials.notes += notes
    return chosen


def _regularised(trials: _Trials, config: RunConfig, seconds: float, allowed: float, num_tokens: int) -> Timed:
    """The configuration with the dropout for as many passes as the time allows, and its seconds per step."""
    times = allowed / seconds * config.tokens_per_step / num_tokens
    chosen = regularisation(times, config.model, num_tokens).of(config, decays=config.training.plan == FIT)
    return (config, seconds) if chosen == config else (chosen, trials.time(chosen, A_TRIAL, trials=1))


class Size(NamedTuple):
    """A model size.

    Attributes:
        least_steps: number of steps from which this size reaches a lower loss than the smaller ones in the same time.
        model: its keys of [model].
    """

    least_steps: int
    model: Mapping[str, Any]


LADDER_TRAINING = {
    "optimizer": {
        "name": "muon",
        "learning_rate": 0.04,
        "momentum": 0.85,
        "rest": {"name": "adamw", "learning_rate": 0.02, "weight_decay": 0.0},
    },
    "schedule": {"name": "linear", "warmup_steps": 20},
}
"""The keys of [training] of every size."""
LADDER = (
    Size(0, {"d_model": 64, "num_layers": 2, "num_heads": 4, "d_ff": 256}),
    Size(450, {"d_model": 96, "num_layers": 2, "num_heads": 4, "d_ff": 256}),
    Size(650, {"d_model": 128, "num_layers": 2, "num_heads": 4, "d_ff": 512}),
    Size(1500, {"d_model": 128, "num_layers": 4, "num_heads": 4, "d_ff": 512}),
    Size(2500, {"d_model": 192, "num_layers": 4, "num_heads": 6, "d_ff": 768}),
    Size(3000, {"d_model": 256, "num_layers": 6, "num_heads": 8, "d_ff": 1024}),
)
"""Sizes from small to large; up to 128 × 4 the borders are measured, the others are extrapolated (docs/internals)."""

MOST_PER_TOKEN = 4.0
"""Parameters per token of the training text above which a size ends no better than a smaller one: it learns the text by
heart, or with more dropout takes longer to the same loss (measured: docs/internals/experiments.md)."""


LAPTOP = 5.5e10
"""Floating-point operations of training in a second on two cores (docs/first-steps.md)."""


def worth(config: RunConfig, num_tokens: int) -> Message:
    """What a text is worth: the time in which the largest model that suits it makes all passes that help.

    A function of the text, and of no measured time.
    """
    model = (sizes_for(config, num_tokens)[-1] if config.training.plan == FIT else config).model
    model = model.model_copy(update={"dropout": DropoutConfig(**TABLE[-1].dropout)})
    operations = 3 * cost(model, 1).forward_flops * num_tokens * most_passes(model, num_tokens)
    sentence = N_("plan: this text is worth about {time} on a laptop; after that a model only learns it by heart")
    return sentence.format(time=in_minutes(max(0.1, float(f"{operations / LAPTOP / 60:.1g}"))))


def sizes_for(config: RunConfig, num_tokens: int) -> list[RunConfig]:
    """The configurations with the sizes of the ladder that suit a training text of so many tokens, small to large.

    The smallest size suits every text.
    """
    plain = config.plain()
    layers = ({"model": size.model, "training": LADDER_TRAINING} for size in LADDER)
    smallest, *larger = (RunConfig.parse(merge(plain, layer), "plan") for layer in layers)
    return [
        smallest,
        *takewhile(lambda one: count_parameters(one.model, 1) <= MOST_PER_TOKEN * num_tokens, larger),
    ]


# ---------------------------------------------------------------- trials

TRIALS = 4
"""Minimum number of timed steps, after one warm-up step."""
SMALL, FEWEST = 3e8, 64
"""Floating-point operations of the passes of a first step, and tokens that it may have however many they are."""


def time_steps(
    config: RunConfig,
    build: Callable[[RunConfig], Transformer],
    seconds: float | None = None,
    *,
    trials: int = TRIALS,
) -> float:
    """Median seconds of a training step, timed with random tokens on a temporary model.

    A small step tells how long a whole batch will take. Where that is too long, the timed steps have fewer or shorter
    windows, and the passes of a whole step take as much longer as they have more operations.

    Args:
        config: configuration of the run, with its precision and compilation.
        build: builds its model on its device.
        seconds: for measuring: a timed step that would take longer is a part of one, and no further step is started
            after them, if one has been timed after the first; None: as many as a few whole steps take.
        trials: minimum number of timed steps after the first, if they are done in time.
    """
    model, training = build(config).train(), config.training
    step, shaped = _steps(model, training), partial(_shape, config, model.vocab_size)
    times, whole, device = list[float](), list[float](), model.token_embedding.weight.device
    with torch.random.fork_rng([device] if device.type == "cuda" else []), ordered_sums(device):
        *shape, work = shaped(math.inf if training.compile else SMALL)  # the compiler would compile each shape
        step(*shape)
        passes, _ = step(*shape)
        *shape, timed = shaped(math.inf if seconds is None else max(work, work * seconds / passes))
        factor = training.accumulation * shaped(math.inf)[2] / timed
        while len(times) <= trials or (seconds is not None and sum(times) < seconds):
            if len(times) > 1 and seconds is not None and sum(times) >= seconds:
                break
            passes, rest = step(*shape)
            times.append(passes + rest)
            whole.append(factor * passes + rest)
    # An idle processor is faster in its first second, so the earlier half does not count.
    steady = sorted(whole[1 + max(0, (len(times) - 1 - trials) // 2) :])
    return steady[len(steady) // 2]


def _shape(config: RunConfig, vocab_size: int, operations: float) -> tuple[int, int, int]:
    """Windows and tokens of each of a batch whose passes have at most so many operations, and their number."""
    rows, length = config.training.batch_size, config.model.context_length

    def work() -> int:
        model = config.model.model_copy(update={"context_length": length})
        return 3 * rows * length * cost(model, vocab_size).forward_flops

    while rows * length > FEWEST and work() > operations:
        rows, length = (rows // 2, length) if rows > 1 else (1, length // 2)
    return rows, length, work()


def _steps(model: Transformer, training: TrainingConfig) -> Callable[[int, int], tuple[float, float]]:
    """A function that makes a step on so many windows of a length, in seconds of the passes and of the optimizer."""
    optimizer, loss_of = optimizer_of(model, training), loss_function(model, masking=None)
    loss_of = torch.compile(loss_of) if training.compile else loss_of
    device = model.token_embedding.weight.device

    source, labels = model.config.source_length or 0, model.config.num_labels

    def step(rows: int, length: int) -> tuple[float, float]:
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randint(model.vocab_size, (rows, source + length + 1), generator=generator).to(device)
        targets = torch.zeros(rows, dtype=torch.int64, device=device) if labels else tokens[:, source + 1 :]
        began = time.perf_counter()
        with precision(device, training.dtype):
            loss = loss_of(tokens[:, :-1], targets, False)
        loss.backward()
        loss.item()  # waits for the accelerator
        passed = time.perf_counter()
        optimizer.step()
        optimizer.zero_grad()
        return passed - began, time.perf_counter() - passed

    return step
