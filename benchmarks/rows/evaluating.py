"""Row `evaluate`: a full pass over the test split."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from benchmarks import ours
from benchmarks.options import Options
from benchmarks.peers import PLAIN
from benchmarks.peers.plain import PlainGPT
from benchmarks.peers.training import part_loss
from benchmarks.processes import shakespeare_corpus
from benchmarks.results import OURS, Section
from benchmarks.results import measure as measure_contenders
from benchmarks.shapes import shakespeare
from benchmarks.timing import clocked
from vitral.data import CorpusConfig, Split, prepare
from vitral.evaluation import evaluate_split

NAMES = ("evaluate",)
QUICK_STRETCHES = 1


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
    contenders = {
        OURS: clocked(lambda: evaluate_split(model, part, letters), options.least_seconds),
        PLAIN: clocked(lambda: part_loss(plain, part, batch=shape.batch), options.least_seconds),
    }
    targets = int((part.segments[:, 1] - part.segments[:, 0] - 1).sum())
    return [
        Section(
            "evaluate",
            f"the loss on the test split, {targets:,} targets, preset shakespeare",
            measure_contenders(contenders, options.rounds),
            unit="tokens",
            work=targets,
            notes=(f"{PLAIN}: the same windows, {shape.batch} at a time, summed as they come",),
        )
    ]
