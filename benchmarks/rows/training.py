"""Rows `step` and `throughput`: how long a training step takes, and how many tokens a second are learned from."""

from collections.abc import Callable, Sequence

import torch

from benchmarks import ours
from benchmarks.limits import PRODUCTS, multiply, training_products
from benchmarks.options import Options
from benchmarks.peers import PLAIN, TRANSFORMERS, available
from benchmarks.results import OURS, Goal, Section
from benchmarks.results import measure as measure_contenders
from benchmarks.shapes import MEDIUM, Shape, shakespeare
from benchmarks.timing import Contender, clocked

NAMES = ("step", "throughput")
LIMIT = 1.4
FASTER = 1.5

_NOTES = (
    "a step: drawing the batch, forward, backward, AdamW; everyone draws the same windows",
    "transformers and x-transformers shift the labels themselves and so learn from one token fewer per window",
    f"{PRODUCTS}: forward and both gradients of every product, the whole square in attention; nothing else",
)


def measure(names: Sequence[str], options: Options) -> list[Section]:
    """Measure these rows."""
    sections = []
    if "step" in names:
        small = shakespeare()
        goals = (Goal("within", LIMIT, PRODUCTS),)
        for shape, text in ((small, f"dropout {small.dropout:g}"), (small.without_dropout(), "no dropout")):
            title = f"one training step, preset shakespeare, batch {shape.batch}, float32, {text}"
            sections.append(_section("step", title, shape, goals, options))
    if "throughput" in names:
        goals = (Goal("faster", FASTER, TRANSFORMERS),)
        title = f"training, 10.7 M parameters, context {MEDIUM.context}, batch {MEDIUM.batch}, float32"
        sections.append(_section("throughput", title, MEDIUM, goals, options))
        sections.append(_in_bfloat16(options))
    return sections


def _in_bfloat16(options: Options) -> Section:
    """What `--plan auto` chooses where the processor has bfloat16, beside the peers as they come and with it too."""
    dataset = ours.synthetic(MEDIUM)
    peers, about_peers = available(options)
    torch.manual_seed(0)
    contenders: dict[str, Contender] = {OURS: clocked(ours.trainer(MEDIUM, dataset, "bfloat16"), options.least_seconds)}
    for peer in peers:
        if peer.name in (PLAIN, TRANSFORMERS):
            as_it_comes = peer.trainer(MEDIUM, ours.feed(MEDIUM, dataset))
            contenders[peer.name] = clocked(as_it_comes, options.least_seconds)
            contenders[f"{peer.name}, bfloat16"] = clocked(_autocast(as_it_comes), options.least_seconds)
    return Section(
        "throughput",
        f"training, 10.7 M parameters, context {MEDIUM.context}, batch {MEDIUM.batch}, the plan auto picks: bfloat16",
        measure_contenders(contenders, options.rounds),
        unit="tokens",
        work=MEDIUM.batch * MEDIUM.context,
        goals=(Goal("faster", FASTER, TRANSFORMERS),),
        notes=(
            "weights, loss and optimizer are float32 for everyone, products bfloat16 where noted",
            *about_peers,
        ),
    )


def _autocast(step: Callable[[], object]) -> Callable[[], object]:
    """A step with its products in bfloat16, as PyTorch's autocast chooses them."""

    def run() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            step()

    return run


def _section(row: str, title: str, shape: Shape, goals: tuple[Goal, ...], options: Options) -> Section:
    """Vitral, the peers and the limit in turns."""
    dataset = ours.synthetic(shape)
    peers, about_peers = available(options)
    torch.manual_seed(0)
    contenders: dict[str, Contender] = {OURS: clocked(ours.trainer(shape, dataset), options.least_seconds)}
    for peer in peers:
        contenders[peer.name] = clocked(peer.trainer(shape, ours.feed(shape, dataset)), options.least_seconds)
    contenders[PRODUCTS] = clocked(multiply(training_products(shape)), options.least_seconds)
    notes = (
        *_NOTES,
        f"{PLAIN}: AdamW as it comes; the others with its fused kernel, as their own trainers",
        *about_peers,
    )
    return Section(
        row,
        title,
        measure_contenders(contenders, options.rounds),
        unit="tokens",
        work=shape.batch * shape.context,
        goals=goals,
        notes=notes,
    )
