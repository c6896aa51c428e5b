"""Row `evaluate`: a full pass over the test split."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from benchmarks import ours
from benchmarks.limits import PRODUCTS, forward_products, multiply
from benchmarks.options import Options
from benchmarks.peers import PLAIN
from benchmarks.peers.plain import PlainGPT
from benchmarks.peers.training import part_loss
from benchmarks.processes import shakespeare_corpus
from benchmarks.results import OURS, Goal, Section
from benchmarks.results import measure as measure_contenders
from benchmarks.shapes import Shape, shakespeare
from benchmarks.timing import clocked
from vitral.data import CorpusConfig, Split, prepare
from vitral.evaluation import evaluate_split

NAMES = ("evaluate",)
QUICK_STRETCHES = 1
BATCH_TOKENS = 4096
"""Of the batches whose products are the limit: as many as Vitral evaluates at once on a processor."""
WITHIN = 1.5


def measure(names: Sequence[str], options: Options) -> list[Section]:
    """Measure the row.

    Raises:
        LeftOut: the complete Shakespeare is not here.
    """
    dataset = prepare(CorpusConfig(source="shakespeare"), corpus=shakespeare_corpus())
    part, letters = dataset.splits["test"], dataset.tokenizer
    if options.quick:
        part = Split(part.tokens, part.segments[:QUICK_STRETCHES])
    shape = replace(shakespeare(), vocab=letters.vocab_size).without_dropout()
    torch.manual_seed(0)
    model, plain = ours.model(shape).eval(), PlainGPT(shape)
    targets = int((part.segments[:, 1] - part.segments[:, 0] - 1).sum())
    contenders = {
        OURS: clocked(lambda: evaluate_split(model, part, letters), options.least_seconds),
        PLAIN: clocked(lambda: part_loss(plain, part, batch=shape.batch), options.least_seconds),
        PRODUCTS: clocked(products_of(shape, targets), options.least_seconds),
    }
    return [
        Section(
            "evaluate",
            f"the loss on the test split, {targets:,} targets, preset shakespeare",
            measure_contenders(contenders, options.rounds),
            unit="tokens",
            work=targets,
            goals=(Goal("within", WITHIN, PRODUCTS),),
            notes=(
                f"{PLAIN}: the same windows, {shape.batch} at a time, summed as they come",
                f"{PRODUCTS}: those of the forward pass over as many tokens, in full windows; no loss, no softmax",
            ),
        )
    ]


def products_of(shape: Shape, tokens: int) -> Callable[[], None]:
    """An action that computes the products of forward passes over this many tokens, in full windows."""
    windows, at_once = -(-tokens // shape.context), max(1, BATCH_TOKENS // shape.context)
    full = multiply(forward_products(replace(shape, batch=at_once)))
    last = multiply(forward_products(replace(shape, batch=windows % at_once))) if windows % at_once else None

    def run() -> None:
        for _ in range(windows // at_once):
            full()
        if last is not None:
            last()

    return run
