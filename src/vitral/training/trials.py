"""Timed training steps of a temporary model, with random tokens."""

import math
import time
from collections.abc import Callable
from functools import partial

import torch

from vitral.core.devices import ordered_sums, precision
from vitral.model import Transformer, cost
from vitral.runs.config import RunConfig, TrainingConfig
from vitral.training.objectives import loss_function
from vitral.training.optimizers import optimizer_of

TRIALS = 4
"""Minimum number of timed steps, after one warm-up step."""
SMALL, FEWEST = 3e8, 64
"""Floating-point operations of the passes of a first step, and tokens that it may have however many they are."""


def time_steps(
    config: RunConfig,
    build: Callable[[RunConfig], Transformer],
    *,
    least: float = 0.0,
    most: float = float("inf"),
    trials: int = TRIALS,
) -> float:
    """Median seconds of a training step, timed with random tokens on a temporary model.

    A small step tells how long a whole batch will take. Where that is too long, the timed steps have fewer or shorter
    windows, and the passes of a whole step take as much longer as they have more operations.

    Args:
        config: configuration of the run, with its precision and compilation.
        build: builds its model on its device.
        least: minimum seconds of measuring; a timed step that would take longer is a part of one.
        most: no further step is started after these seconds, if one has been timed after the first.
        trials: minimum number of timed steps after the first.
    """
    model, training = build(config).train(), config.training
    step, shaped = _steps(model, training), partial(_shape, config, model.vocab_size)
    times, whole, device = list[float](), list[float](), model.token_embedding.weight.device
    with torch.random.fork_rng([device] if device.type == "cuda" else []), ordered_sums(device):
        *shape, work = shaped(math.inf if training.compile else SMALL)  # the compiler would compile each shape
        step(*shape)
        passes, _ = step(*shape)
        *shape, timed = shaped(max(work, work * min(most, least or math.inf) / passes))
        factor = training.accumulation * shaped(math.inf)[2] / timed
        while len(times) <= trials or sum(times) < least:
            if len(times) > 1 and sum(times) >= most:
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
