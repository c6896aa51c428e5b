"""Row `gpu`: training GPT-2's shapes on a GPU, compiled and in bfloat16, beside a plain GPT compiled as well."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

import torch

from benchmarks import ours
from benchmarks.options import LeftOut, Options
from benchmarks.peers import PLAIN, plain
from benchmarks.results import OURS, Goal, Measurement, Section
from benchmarks.results import measure as measure_contenders
from benchmarks.shapes import GPT2, TINY, Shape
from benchmarks.timing import clocked
from vitral.model.counts import cost
from vitral.training.forecast import accelerators

NAMES = ("gpu",)
SHARE = 0.5
"""Of the card's peak, which training reaches at least."""
OF_THE_PEAK = "percent of the card's peak"


def measure(names: Sequence[str], options: Options) -> list[Section]:
    """Measure the row; a smoke run needs no GPU, and compiles nothing without one.

    Raises:
        LeftOut: there is no GPU.
    """
    has_gpu = torch.cuda.is_available()
    if not (has_gpu or options.quick):
        raise LeftOut("there is no GPU")
    shape = TINY if options.quick else GPT2
    device = torch.device("cuda" if has_gpu else "cpu")
    card = torch.cuda.get_device_name() if has_gpu else "the processor"
    dataset = ours.synthetic(shape)
    torch.manual_seed(0)
    here = {"device": device, "compiled": has_gpu}
    steps = {
        OURS: ours.trainer(shape, dataset, "bfloat16", **here),
        PLAIN: plain.trainer(shape, ours.feed(shape, dataset), "bfloat16", **here),
    }
    contenders = {name: clocked(_finished(step, device), options.least_seconds) for name, step in steps.items()}
    measured = measure_contenders(contenders, options.rounds)
    peak, flops = peak_flops(card), training_flops(shape)
    work = shape.batch * shape.context
    return [
        Section(
            "gpu",
            f"training on {card}, GPT-2's shapes, context {shape.context}, batch {shape.batch}, compiled, bfloat16",
            measured if peak is None else tuple(with_share(one, work * flops / peak) for one in measured),
            unit="tokens",
            work=work,
            goals=() if peak is None else (Goal("rate", SHARE * peak / flops),),
            notes=(
                "a step: drawing the batch, forward, backward, AdamW; weights and optimizer in float32",
                "the head is not tied: 163 million parameters, with the products of GPT-2's 124 million",
                "the peak is unknown: this card is not in accelerators.toml"
                if peak is None
                else f"the goal is {SHARE:.0%} of {peak / 1e12:,.0f} TFLOP/s; attention counts as whole squares",
            ),
        )
    ]


def peak_flops(card: str) -> float | None:
    """The bfloat16 operations a second of a card by the name its driver gives; None for an unknown one.

    >>> peak_flops("NVIDIA H100 80GB HBM3"), peak_flops("NVIDIA GeForce RTX 4090"), peak_flops("a toaster")
    (989400000000000.0, 165200000000000.0, None)
    """
    words = set(card.lower().replace("-", " ").split())
    return next((known.flops for kind, known in accelerators().items() if words.issuperset(kind.split("-"))), None)


def training_flops(shape: Shape) -> int:
    """Operations of a training step per token: forward and twice as many backward."""
    counted = cost(shape.model_config(), shape.vocab)
    return counted.forward_flops + counted.backward_flops


def with_share(one: Measurement, least_seconds: float) -> Measurement:
    """A measurement with its share of the peak, at which a step would take `least_seconds`.

    >>> with_share(Measurement("Vitral", (0.2, 0.4, 0.5)), 0.2).facts
    {"percent of the card's peak": 50.0}
    """
    return replace(one, facts={**one.facts, OF_THE_PEAK: round(100 * least_seconds / median(one.seconds), 1)})


def _finished(step: Callable[[], object], device: torch.device) -> Callable[[], object]:
    """A step that lasts until the GPU has finished it."""

    def run() -> None:
        step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return run
