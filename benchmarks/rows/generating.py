"""Rows `generate-small` and `generate-large`: tokens per second for one sample."""

from collections.abc import Sequence

import torch

from benchmarks import ours
from benchmarks.limits import BANDWIDTH, LARGE, reading, weights_read
from benchmarks.options import Options
from benchmarks.peers import CROPPING, PLAIN, TRANSFORMERS, X_TRANSFORMERS, available
from benchmarks.results import OURS, Goal, Section
from benchmarks.results import measure as measure_contenders
from benchmarks.shapes import MEDIUM, Shape, shakespeare
from benchmarks.timing import Contender, clocked

NAMES = ("generate-small", "generate-large")
WITHIN, BEYOND, LARGE_TOKENS = 45, 1000, 250
QUICK_TOKENS, QUICK_LARGE = 60, 2**20
"""Of a smoke run: tokens (past the context of the small model), and numbers of the tensor bandwidth is read from."""

_SMALL = (Goal("faster", 10, TRANSFORMERS), Goal("faster", 10, CROPPING))
_MEDIUM = (Goal("faster", 3, TRANSFORMERS), Goal("within", 2, BANDWIDTH))

_NOTES = (
    "one sample at temperature 1 from one token, untrained weights, float32",
    f"{CROPPING}: no cache, the last context_length tokens read anew for every token, as nanoGPT does",
)
_PAST = (
    f"{TRANSFORMERS}: GPT-2 cannot go past its positions, so here it has positions enough for all tokens",
    f"{X_TRANSFORMERS}: left out, past the context it can only crop",
    "Vitral restarts its window from the last half, with its cache",
)
_BANDWIDTH = (
    f"{BANDWIDTH}: bytes of the weights a token reads, over the read bandwidth of memory measured in the same round on "
    "half a gibibyte; weights that stay in a cache may beat it",
)


def measure(names: Sequence[str], options: Options) -> list[Section]:
    """Measure these rows."""
    sections = []
    if "generate-small" in names:
        shape = shakespeare().without_dropout()
        sections.append(_section("generate-small", "preset shakespeare", shape, WITHIN, _SMALL, options))
        beyond = QUICK_TOKENS if options.quick else BEYOND
        sections.append(_section("generate-small", "preset shakespeare", shape, beyond, _SMALL, options))
    if "generate-large" in names:
        tokens = QUICK_TOKENS if options.quick else LARGE_TOKENS
        sections.append(_section("generate-large", "10.7 M parameters", MEDIUM, tokens, _MEDIUM, options))
    return sections


def _section(row: str, model: str, shape: Shape, num_tokens: int, goals: tuple[Goal, ...], options: Options) -> Section:
    """Vitral, the peers and the limit in turns."""
    past = num_tokens >= shape.context
    peers, about_peers = available(options)
    torch.manual_seed(0)
    contenders: dict[str, Contender] = {OURS: clocked(ours.generator(shape, num_tokens), options.least_seconds)}
    for peer in peers:
        if not (past and peer.name == X_TRANSFORMERS):
            name = CROPPING if peer.name == PLAIN else peer.name
            contenders[name] = clocked(peer.generator(shape, num_tokens), options.least_seconds)
    large = QUICK_LARGE if options.quick else LARGE
    contenders[BANDWIDTH] = reading(num_tokens * weights_read(shape), large=large)
    where = f"past the context of {shape.context}" if past else f"in a context of {shape.context}"
    return Section(
        row,
        f"{num_tokens:,} tokens {where}, {model}",
        measure_contenders(contenders, options.rounds),
        unit="tokens",
        work=num_tokens,
        goals=goals,
        notes=(*_NOTES, *(_PAST if past else ()), *_BANDWIDTH, *about_peers),
    )
