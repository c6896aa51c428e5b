"""Timed training steps of a temporary model, with random tokens."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vitral.core.devices import ordered_sums, precision
from vitral.core.language import N_
from vitral.model import Transformer
from vitral.runs.config import RunConfig
from vitral.training.objectives import loss_function
from vitral.training.optimizers import optimizer_of

TRIALS = 4
"""Minimum number of timed steps, after one warm-up step."""
TIMED, EVALUATED = 2, 4096
"""Timed steps of a pace after the first; tokens in a batch of an evaluation on the CPU."""


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
        return (N_("{dtype}, compiled") if self.compile else N_("{dtype}, not compiled")).format(dtype=self.dtype)


@dataclass(frozen=True)
class StepTime:
    """The time of a training step.

    Attributes:
        first: seconds of the first step, which also sets up kernels and memory.
        steady: median seconds of the steps after it.
    """

    first: float
    steady: float


class TooSlow(Exception):
    """A step took longer than its limit, and was stopped."""

    def __init__(self, seconds: float) -> None:
        """Remember the seconds after which it was stopped."""
        self.seconds = seconds
        super().__init__(f"stopped after {seconds:.3f} s")


def time_steps(
    config: RunConfig,
    build: Callable[[RunConfig], Transformer],
    plan: ExecutionPlan,
    *,
    least: float = 0.0,
    most: float = float("inf"),
    trials: int = TRIALS,
    limit: float = float("inf"),
) -> StepTime:
    """Time training steps with random tokens on a temporary model.

    Args:
        config: configuration of the run.
        build: builds its model on its device.
        plan: precision and compilation.
        least: minimum seconds of measuring.
        most: no further step is started after these seconds, if one has been timed after the first.
        trials: minimum number of timed steps after the first.
        limit: seconds after which the first step is stopped, between two layers.

    Raises:
        TooSlow: the first step reached the limit.
    """
    training = config.training
    model = build(config).train()
    optimizer = optimizer_of(model, training.model_copy(update={"dtype": plan.dtype}))
    watch = _Watch(model, limit)
    loss_of = loss_function(model, masking=None)
    loss_of = torch.compile(loss_of) if plan.compile else loss_of
    device = model.token_embedding.weight.device
    shape = (training.batch_size, config.model.context_length + 1)
    tokens = torch.randint(model.vocab_size, shape, generator=torch.Generator().manual_seed(0)).to(device)
    times: list[float] = []
    with torch.random.fork_rng([device] if device.type == "cuda" else []), ordered_sums(device):
        while len(times) <= trials or sum(times) < least:
            if len(times) > 1 and sum(times) >= most:
                break
            began = watch.start()
            for _ in range(training.accumulation):
                with precision(device, plan.dtype):  # pyright: ignore[reportArgumentType]
                    loss = loss_of(tokens[:, :-1], tokens[:, 1:])
                loss.backward()
                loss.item()  # waits for the accelerator
            optimizer.step()
            optimizer.zero_grad()
            times.append(time.perf_counter() - began)
            watch.stop()
    # An idle processor is faster in its first second, so the earlier half does not count.
    steady = sorted(times[1 + max(0, (len(times) - 1 - trials) // 2) :])
    return StepTime(times[0], steady[len(steady) // 2])


@dataclass(frozen=True)
class Pace:
    """How fast a model is trained and evaluated.

    Attributes:
        step: seconds of a training step.
        token: seconds of evaluating one token.
    """

    step: float
    token: float


def time_pace(config: RunConfig, build: Callable[[RunConfig], Transformer]) -> Pace:
    """Time a few training steps and the evaluation of one batch, as if nothing else ran on this machine.

    The least of a few times counts. With one thread it is the processor time, in which waiting for other programs is
    left out.

    Args:
        config: configuration of the run.
        build: builds its model on its device.
    """
    training, length = config.training, config.model.context_length
    model = build(config).train()
    optimizer, loss_of = optimizer_of(model, training), loss_function(model, masking=None)
    on_cpu = model.token_embedding.weight.device.type == "cpu"
    clock = time.thread_time if on_cpu and torch.get_num_threads() == 1 else time.perf_counter
    size = (max(training.batch_size, EVALUATED // length), length + 1)
    tokens = torch.randint(model.vocab_size, size, generator=torch.Generator().manual_seed(0))
    tokens = tokens.to(model.token_embedding.weight.device)
    steps, passes, dtype = list[float](), list[float](), training.dtype
    with torch.random.fork_rng([] if on_cpu else [tokens.device]), ordered_sums(tokens.device):
        for _ in range(1 + TIMED):
            began, batch = clock(), tokens[: training.batch_size]
            for _ in range(training.accumulation):
                with precision(tokens.device, dtype):
                    loss = loss_of(batch[:, :-1], batch[:, 1:])
                loss.backward()
                loss.item()  # waits for the accelerator
            optimizer.step()
            optimizer.zero_grad()
            steps.append(clock() - began)
        model.eval()
        batch = tokens[: max(1, EVALUATED // length)]
        for _ in range(TIMED):
            began = clock()
            with torch.inference_mode():
                loss_of(batch[:, :-1], batch[:, 1:]).item()
            passes.append(clock() - began)
    return Pace(min(steps[1:]), min(passes) / (batch.shape[0] * length))


class _Watch:
    """Stops a step that takes longer than a limit, at the next border between two layers, forwards or backwards."""

    def __init__(self, model: Transformer, limit: float) -> None:
        self._limit, self._began = limit, 0.0
        self._handles = []
        if limit < float("inf"):
            self._handles = [module.register_forward_hook(self._forward) for module in model.modules()]

    def start(self) -> float:
        self._began = time.perf_counter()
        return self._began

    def stop(self) -> None:
        """Watch no longer."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _forward(self, module: torch.nn.Module, given: object, output: object) -> None:
        self._check()
        if isinstance(output, Tensor) and output.requires_grad:
            output.register_hook(lambda gradient: self._check())

    def _check(self) -> None:
        seconds = time.perf_counter() - self._began
        if seconds > self._limit:
            raise TooSlow(seconds)
