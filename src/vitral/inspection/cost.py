"""Cost of one token by the length of the text: measured times beside counted operations, at the same lengths.

One small model, whose attention outweighs the rest at the longest lengths, is used in seven ways. With n tokens, of
which the last is the new one:

- `cached`: one more token, with the keys and values of the others in a cache (many texts side by side, per text);
- `recomputed`: one more token without a cache, all n computed again, causal;
- `bidirectional`: the same under the mask that allows no cache;
- `at-once`: a window of n in one forward pass, per token (the causal time above, divided by n);
- `one-by-one`: the same window, every token given, one token at a time with a cache: forward passes only, mean over
  its tokens;
- `training`: forward and backward pass over a window of n, per token;
- `training-both`: the same under the mask that lets every token see all others, with as many targets.

Times are processor times, summed over all threads of this process, because other programs do not count into them. All
ways and lengths take turns, round after round, and the median of the rounds counts. Exponents are slopes of least
squares lines through (log n, log time) at the longest lengths. Predicted exponents are slopes through (log n, log
operations) at the same lengths, not the 1 or 2 of the limit of infinite n.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from vitral.attention.masks import Mask
from vitral.core.language import N_
from vitral.model import ModelConfig, Transformer, cost, next_token_loss

Plain = dict[str, Any]
WAYS = {
    "cached": N_("one more token, cached"),
    "recomputed": N_("one more token, recomputed"),
    "bidirectional": N_("one more token, bidirectional"),
    "at-once": N_("window read at once"),
    "one-by-one": N_("window read token by token"),
    "training": N_("training on a window"),
    "training-both": N_("training on a window, bidirectional"),
}
"""Titles of the ways that are timed."""
D_MODEL, HEADS, LAYERS, VOCAB = 64, 8, 1, 16
FITTED = 4
"""Number of longest lengths to which exponents are fitted."""
CACHED_TOKENS = 1 << 20
"""Tokens in all caches side by side at the longest length: 512 MB, more than the processor's own caches."""
POINTS = 4
"""Positions at which reading a window token by token is timed: the midpoints of as many equal segments of it."""
LEAST_SECONDS = 0.005
"""A timing repeats its work until it has taken so much processor time."""


def model_config(length: int, mask: str = "causal") -> ModelConfig:
    """The model that is timed, for texts of up to `length` tokens."""
    sizes = {"d_model": D_MODEL, "d_ff": D_MODEL, "num_heads": HEADS, "num_layers": LAYERS}
    return ModelConfig.parse({**sizes, "context_length": length, "positions": "none", "attention": {"mask": mask}})


def counted(length: int) -> dict[str, int | float]:
    """Floating-point operations per token of each way, from `vitral.model.cost`.

    `cost` counts a forward pass per token as a constant for the matrices and 4 n d_model a layer for attention over n
    keys. One more token with a cache costs just that; without a cache, n times that. Read one token at a time, a token
    attends to (n + 1) / 2 keys on average. A backward pass costs twice a forward pass.
    """
    forward = cost(model_config(length), VOCAB).forward_flops
    square = 4 * length * D_MODEL * LAYERS
    return {
        "cached": forward,
        "recomputed": length * forward,
        "bidirectional": length * forward,
        "at-once": forward,
        "one-by-one": forward - square + square * (length + 1) / (2 * length),
        "training": 3 * forward,
        "training-both": 3 * forward,
    }


def cost_by_length(lengths: Sequence[int], *, rounds: int) -> Plain:
    """Times, operations and bytes by length, and the exponents of times and operations.

    Args:
        lengths: increasing, at least `FITTED`.
        rounds: timings of every way at every length.

    Returns:
        `lengths`, `rounds`, `batch` (texts side by side in `cached`), `threads`, `fitted` (the longest lengths),
        `model` (its sizes); by way a list over lengths: `processor`, seconds per token, and `flops`, operations per
        token; by way `exponents`: `processor`, see `slope`, and `predicted`.
    """
    batch = max(1, CACHED_TOKENS // lengths[-1])
    times = timings(lengths, rounds, batch)
    processor = {way: [statistics.median(many) for many in row] for way, row in times.items()}
    flops = {way: [counted(length)[way] for length in lengths] for way in times}
    last = slice(-FITTED, None)
    return {
        "lengths": list(lengths),
        "rounds": rounds,
        "batch": batch,
        "threads": torch.get_num_threads(),
        "fitted": list(lengths[last]),
        "model": {"d_model": D_MODEL, "heads": HEADS, "layers": LAYERS},
        "processor": processor,
        "flops": flops,
        "exponents": {
            way: {
                "processor": slope(lengths[last], processor[way][last]),
                "predicted": slope(lengths[last], flops[way][last])["slope"],
            }
            for way in times
        },
    }


def slope(x: Sequence[int | float], y: Sequence[int | float]) -> dict[str, float]:
    """The slope of the least squares line through (log x, log y), with its 95% Student interval.

    >>> round(slope([1, 2, 4, 8], [3, 12, 48, 192])["slope"], 6)
    2.0
    """
    from scipy import stats

    line: Any = stats.linregress(np.log(x), np.log(y))
    half = float(stats.t.ppf(0.975, len(x) - 2) * line.stderr)
    return {"slope": float(line.slope), "low": float(line.slope) - half, "high": float(line.slope) + half}


def timings(lengths: Sequence[int], rounds: int, batch: int) -> dict[str, list[list[float]]]:
    """Processor seconds per token: way -> a list for each length -> the time of each round."""
    causal = Transformer(model_config(lengths[-1]), VOCAB).eval()
    both = Transformer(model_config(lengths[-1], "bidirectional"), VOCAB).eval()
    step = one_more_token(causal, batch, lengths[-1])
    times: dict[str, list[list[float]]] = {way: [[] for _ in lengths] for way in counted(lengths[0])}
    for turn in range(rounds + 1):
        for index, length in enumerate(lengths if turn else lengths[:1]):  # the first round only warms up
            window = torch.arange(length)[None] % VOCAB
            midpoints = [max(1, round((point + 0.5) * length / POINTS)) for point in range(POINTS)]
            whole = seconds(partial(_read, causal, window))
            taken = {
                "cached": seconds(partial(step, length)) / batch,
                "recomputed": whole,
                "bidirectional": seconds(partial(_read, both, window)),
                "at-once": whole / length,
                "one-by-one": statistics.fmean(seconds(partial(step, point)) for point in midpoints) / batch,
                "training": seconds(partial(_learn, causal, window, causal.mask)) / length,
                "training-both": seconds(partial(_learn, both, window, causal.mask)) / length,
            }
            for way, value in taken.items():
                times[way][index] += [value] if turn else []
    return times


def one_more_token(model: Transformer, batch: int, longest: int) -> Callable[[int], None]:
    """A function of n that computes the n-th token of `batch` texts with the n - 1 tokens before it in the cache."""
    cache = model.new_cache(batch, longest + 1)  # every length is a part of it, the longest too
    for tensor in [*cache.keys, *cache.values]:
        tensor.fill_(0.01)  # reading memory that was never written to costs nothing
    tokens = torch.zeros(batch, 1, dtype=torch.int64)

    def step(length: int) -> None:
        cache.length = length - 1
        with torch.inference_mode():
            model(tokens, cache=cache)

    return step


def seconds(work: Callable[[], None]) -> float:
    """Processor seconds of one call: the mean over enough calls to take `LEAST_SECONDS`."""
    began, calls = time.process_time(), 0
    while True:
        work()
        calls += 1
        taken = time.process_time() - began
        if taken >= LEAST_SECONDS:
            return taken / calls


def _read(model: Transformer, window: torch.Tensor) -> None:
    with torch.inference_mode():
        model(window)


def _learn(model: Transformer, window: torch.Tensor, targets: Mask | None) -> None:
    """The mask says which tokens are targets: of a model that sees them, too, only the time is of interest."""
    model.zero_grad()
    next_token_loss(model(window), window, targets).backward()
