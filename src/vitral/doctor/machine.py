"""The health of this machine, and what makes training faster on it. Nothing is written."""

import math
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch

from vitral.core.errors import UsageError, reason
from vitral.core.language import N_
from vitral.core.machine import cores, memory_limit
from vitral.core.process import MOST_THREADS, using_threads
from vitral.core.streams import torch_stream
from vitral.core.versions import versions
from vitral.doctor.health import Diagnosis, HealthCheck
from vitral.model import ModelConfig, Transformer
from vitral.model.native import native, native_step
from vitral.model.selfcheck import check_device
from vitral.training.configuration import DEFAULT_PRESET, configure, presets
from vitral.training.run import build_model
from vitral.training.trials import SLOW, ExecutionPlan, StepTime, TooSlow, time_steps

PROBE = {"context_length": 16, "d_model": 64, "num_layers": 2, "num_heads": 2}
MOST_DIFFERENCE = 1e-4
"""Between logits of a small model, computed in two ways."""
ROUNDS, ROUND_SECONDS = 3, 0.25
"""Each choice is timed this often, in turn with the other, for these seconds; the fastest time counts, since other
programs are busy now and then."""
DIFFERENCE = 0.05
"""A choice that changes the time of a training step by less than this share makes no difference."""

Timer = Callable[[float], StepTime]
"""Times some steps; raises TooSlow if the first takes longer than a limit in seconds."""


def examine_machine() -> Diagnosis:
    """Processor, memory, disk and compiler of this machine, what makes training faster, and whether it is correct."""
    return Diagnosis(tuple(_checks()))


def _checks() -> Iterator[HealthCheck]:
    memory, free, most = memory_limit(), shutil.disk_usage(Path.cwd()).free, min(cores(), MOST_THREADS)
    processor = {"cores": os.cpu_count() or 1, "instructions": torch.backends.cpu.get_cpu_capability()}
    yield HealthCheck("ok", N_("versions"), versions())
    yield HealthCheck("ok", N_("processor"), N_("{cores:d} cores, {instructions}").format(**processor))
    if memory:
        yield HealthCheck("ok", N_("memory"), N_("{size:,.1f} GB").format(size=memory / 1e9))
    there = N_("{size:,.1f} GB free").format(size=free / 1e9)
    yield HealthCheck("ok" if free > 1e9 else "wrong", N_("disk here"), there)
    times = times_as_long(step_timer(most, "float32"), step_timer(1, "float32"))
    yield judge_speed(N_("{n} threads").format(n=most), times, N_("1 thread"))
    threads = most if times < 1 else 1
    times = times_as_long(step_timer(threads, "bfloat16"), step_timer(threads, "float32"))
    yield judge_speed("bfloat16", times, "float32")
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++", "cl"))), None)
    yield HealthCheck("unknown", N_("compiler"), compiler or N_("none; training.compile has no effect"))
    yield from _correctness()


@torch.inference_mode()
def _correctness() -> Iterator[HealthCheck]:
    """Whether a small model has the same logits in C, in float64 and on accelerators."""
    model = Transformer(ModelConfig.parse(PROBE), 61, seed=1).eval()
    tokens = torch.randint(61, (2, 16), generator=torch_stream(0, "doctor"))
    logits, step = model(tokens), native_step(model)
    if isinstance(step, str):
        yield HealthCheck("slower" if native().is_stale else "unknown", N_("generation in C"), step)
    else:
        difference = float((step(tokens, model.new_cache(2)) - logits[:, -1]).abs().max())
        found = N_("{instructions}; logits of a small model differ from PyTorch by {difference:.1e}")
        found = found.format(instructions=native().found, difference=difference)
        yield HealthCheck("ok" if difference < MOST_DIFFERENCE else "wrong", N_("generation in C"), found)
    difference = float((logits.double() - model.double()(tokens)).abs().max())
    found = N_("logits of a small model differ from float64 by {difference:.1e}").format(difference=difference)
    yield HealthCheck("ok" if difference < MOST_DIFFERENCE else "wrong", "float32", found)
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    for name in (name for name, is_there in there.items() if is_there):
        try:
            difference = check_device(model.float(), torch.device(name))
            found = N_("logits differ from the CPU by {difference:.1e}").format(difference=difference)
            yield HealthCheck("ok", name, found)
        except UsageError as error:
            yield HealthCheck("wrong", name, reason(error))
    if not any(there.values()):
        yield HealthCheck("ok", N_("accelerator"), N_("none; everything runs on the CPU"))


def step_timer(threads: int, dtype: str) -> Timer:
    """The timer of steps of the preset `fast` with these threads in this precision, on the CPU."""
    config = configure(DEFAULT_PRESET, overrides=[{"training": {"device": "cpu"}}])
    build = partial(build_model, vocab_size=presets()[DEFAULT_PRESET].vocabulary)
    given = {"least": ROUND_SECONDS, "most": ROUND_SECONDS, "trials": 2}

    def timed(limit: float) -> StepTime:
        with using_threads(threads):
            return time_steps(config, build, ExecutionPlan(dtype, compile=False), limit=limit, **given)

    return timed


def times_as_long(chosen: Timer, other: Timer) -> float:
    """The fastest step of a choice as a multiple of the other's; infinite if its first step was slow in every round."""
    best = least = math.inf
    for _ in range(ROUNDS):
        beside = other(math.inf)
        least = min(least, beside.steady)
        with suppress(TooSlow):
            best = min(best, chosen(SLOW * beside.first).steady)
    return best / least


def judge_speed(choice: str, times: float, plain: str) -> HealthCheck:
    """Whether a choice makes training faster than the plain one."""
    mark = "slower" if times >= 1 + DIFFERENCE else "same" if times > 1 - DIFFERENCE else "ok"
    found = N_("a training step takes {times:.2f} times as long as with {plain}")
    if times == math.inf:
        found = N_("a training step takes more than {times:.2f} times as long as with {plain}")
    return HealthCheck(mark, choice, found.format(times=SLOW if times == math.inf else times, plain=plain))
