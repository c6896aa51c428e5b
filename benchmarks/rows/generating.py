"""Rows `generate-small`, `generate-large`, `generate-together`: tokens per second for one sample, and for several."""

from collections.abc import Sequence

import torch

from benchmarks import ours
from benchmarks.limits import BANDWIDTH, reading, weights_read
from benchmarks.options import Options
from benchmarks.peers import CROPPING, PLAIN, TRANSFORMERS, X_TRANSFORMERS, available, hf
from benchmarks.results import OURS, Goal, Section
from benchmarks.results import measure as measure_contenders
from benchmarks.shapes import MEDIUM, Shape, shakespeare
from benchmarks.timing import Contender, clocked

NAMES = ("generate-small", "generate-large", "generate-together")
WITHIN, BEYOND, LARGE_TOKENS = 45, 1000, 250
TOGETHER, TOGETHER_TOKENS = 32, 100
QUICK_TOKENS = 60
"""Of a smoke run: tokens (past the context of the small model)."""

_SMALL = (Goal("faster", 25, TRANSFORMERS), Goal("faster", 10, CROPPING), Goal("within", 1.5, BANDWIDTH))
_MEDIUM = (Goal("faster", 4, TRANSFORMERS), Goal("within", 1.3, BANDWIDTH))
_MANY = (Goal("faster", 3, TRANSFORMERS),)

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
    f"{BANDWIDTH}: a buffer as large as the weights that a token reads, read once for each token; a small one stays "
    "in a cache",
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
    if "generate-together" in names:
        sections.append(_many(options))
    return sections


def _many(options: Options) -> Section:
    """Several samples at once, Vitral and transformers in turns."""
    num_tokens, rows = (QUICK_TOKENS // 10, 2) if options.quick else (TOGETHER_TOKENS, TOGETHER)
    peers, about_peers = available(options)
    contenders = {OURS: clocked(ours.generator(MEDIUM, num_tokens, rows), options.least_seconds)}
    if any(peer.name == TRANSFORMERS for peer in peers):
        contenders[TRANSFORMERS] = clocked(hf.generator(MEDIUM, num_tokens, rows), options.least_seconds)
    return Section(
        "generate-together",
        f"{rows} samples of {num_tokens} tokens at once, 10.7 M parameters",
        measure_contenders(contenders, options.rounds),
        unit="tokens",
        work=rows * num_tokens,
        goals=_MANY,
        notes=("temperature 1, from one token, untrained weights, float32", *about_peers),
    )


def _each(once: Contender, count: int) -> Contender:
    """As many times the seconds of one."""
    return lambda: count * once()


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
    contenders[BANDWIDTH] = _each(clocked(reading(weights_read(shape)), options.least_seconds), num_tokens)
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
