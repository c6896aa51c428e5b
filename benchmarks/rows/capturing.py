"""Row `capture`: recording every activation and attention map of a forward pass, relative to the pass alone."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from benchmarks import ours
from benchmarks.options import Options
from benchmarks.results import Goal, Section
from benchmarks.results import measure as measure_contenders
from benchmarks.shapes import MEDIUM, Shape, shakespeare
from benchmarks.timing import clocked

NAMES = ("capture",)
TRACED, FORWARD = "Vitral, model.trace", "plain forward"
WITHIN = 1.5


def measure(names: Sequence[str], options: Options) -> list[Section]:
    """Measure the row on both models."""
    small = shakespeare().without_dropout()
    return [_section("preset shakespeare", small, options), _section("10.7 M parameters", MEDIUM, options)]


def _section(name: str, shape: Shape, options: Options) -> Section:
    model, tokens = ours.model(shape).eval(), ours.window(shape)
    kept = model.trace(tokens)
    megabytes = sum(value.nbytes for value in kept.values()) / 10**6
    contenders = {
        TRACED: clocked(lambda: model.trace(tokens), options.least_seconds),
        FORWARD: clocked(_forward(model, tokens), options.least_seconds),
    }
    return Section(
        "capture",
        f"one window of {shape.context} tokens, {name}: {len(kept)} activations, {megabytes:,.1f} MB",
        measure_contenders(contenders, options.rounds),
        unit="tokens",
        work=shape.context,
        goals=(Goal("within", WITHIN, FORWARD),),
        notes=(f"{FORWARD}: the same model and window in inference mode, keeping nothing",),
    )


def _forward(model: torch.nn.Module, tokens: Tensor) -> Callable[[], object]:
    def run() -> None:
        with torch.inference_mode():
            model(tokens)

    return run
