"""Cost of one token by the length of the text: measured times and bytes beside counted ones, at the same lengths.

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

Times are processor times, summed over all threads of this process, because other programs do not count into them;
wall-clock times are kept beside them. All ways and lengths take turns, round after round, and the median of the rounds
counts. Exponents are slopes of least squares lines through (log n, log time) at the longest lengths. Predicted
exponents are slopes through (log n, log operations) at the same lengths, not the 1 or 2 of the limit of infinite n.
"""

import math
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
BYTES = {
    "cache": N_("keys and values of one text, measured"),
    "cache_counted": N_("keys and values of one text, counted"),
    "kept": N_("kept for a backward pass, measured"),
    "kept_counted": N_("kept for a backward pass, counted"),
    "recomputed_counted": N_("peak of a step without a cache, counted"),
}
"""Titles of the bytes that `memory` returns."""
D_MODEL, HEADS, LAYERS, VOCAB = 64, 8, 1, 16
FITTED = 4
"""Number of longest lengths to which exponents are fitted."""
CACHED_TOKENS = 1 << 20
"""Tokens in all caches side by side at the longest length: 512 MB, more than the processor's own caches."""
BYTES_FLOAT32, HELD = 4, 7
POINTS = 4
"""Positions at which reading a window token by token is timed: the midpoints of as many equal segments of it."""
Pair = tuple[float, float]
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
        `model` (its sizes); by way a list over lengths: `processor` and `wall`, seconds per token, and `flops`,
        operations per token; by way `exponents`: `processor` and `wall`, see `slope`, and `predicted`; `memory`, see
        `memory`.
    """
    batch = max(1, CACHED_TOKENS // lengths[-1])
    times = timings(lengths, rounds, batch)
    processor, wall = (
        {way: [statistics.median(pair[clock] for pair in many) for many in row] for way, row in times.items()}
        for clock in (0, 1)
    )
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
        "wall": wall,
        "flops": flops,
        "exponents": {
            way: {
                "processor": slope(lengths[last], processor[way][last]),
                "wall": slope(lengths[last], wall[way][last]),
                "predicted": slope(lengths[last], flops[way][last])["slope"],
            }
            for way in times
        },
        "memory": memory(lengths),
    }


def slope(x: Sequence[int | float], y: Sequence[int | float]) -> dict[str, float]:
    """The slope of the least squares line through (log x, log y), with its 95% Student interval.

    >>> round(slope([1, 2, 4, 8], [3, 12, 48, 192])["slope"], 6)
    2.0
    """
    from scipy import stats

    across, up = (np.log(np.asarray(values, dtype=np.float64)) for values in (x, y))
    across, up = across - across.mean(), up - up.mean()
    found = float(across @ up / (across @ across))
    error = math.sqrt(float(((up - found * across) ** 2).sum()) / (len(x) - 2) / float(across @ across))
    half = float(stats.t.ppf(0.975, len(x) - 2)) * error
    return {"slope": found, "low": found - half, "high": found + half}


def rates(measured: Plain) -> dict[str, Plain]:
    """Operations a second of processor time by way, from the result of `cost_by_length`.

    Returns:
        By way: `first` and `last`, operations a second at the shortest and the longest fitted length; `busy`, the
        largest ratio of wall-clock and processor time at a fitted length, above 1 where the machine does other work.
    """
    fitted, found = len(measured["fitted"]), {}
    for way, flops in measured["flops"].items():
        own, wall = measured["processor"][way][-fitted:], measured["wall"][way][-fitted:]
        pace = [operations / seconds for operations, seconds in zip(flops[-fitted:], own, strict=True)]
        busy = max(one / other for one, other in zip(wall, own, strict=True))
        found[way] = {"first": pace[0], "last": pace[-1], "busy": busy}
    return found


def timings(lengths: Sequence[int], rounds: int, batch: int) -> dict[str, list[list[Pair]]]:
    """Seconds per token: way -> a list for each length -> processor and wall-clock time of each round."""
    causal = Transformer(model_config(lengths[-1]), VOCAB).eval()
    both = Transformer(model_config(lengths[-1], "bidirectional"), VOCAB).eval()
    step = one_more_token(causal, batch, lengths[-1])
    found: dict[str, list[list[Pair]]] = {way: [[] for _ in lengths] for way in counted(lengths[0])}
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
                "one-by-one": np.mean([seconds(partial(step, point)) for point in midpoints], axis=0) / batch,
                "training": seconds(partial(_learn, causal, window, causal.mask)) / length,
                "training-both": seconds(partial(_learn, both, window, causal.mask)) / length,
            }
            for way, value in taken.items():
                found[way][index] += [(float(value[0]), float(value[1]))] if turn else []
    return found


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


def seconds(work: Callable[[], None]) -> np.ndarray:
    """Processor and wall-clock seconds of one call: means over enough calls to take `LEAST_SECONDS`."""
    began, calls = np.array([time.process_time(), time.perf_counter()]), 0
    while True:
        work()
        calls += 1
        taken = np.array([time.process_time(), time.perf_counter()]) - began
        if taken[0] >= LEAST_SECONDS:
            return taken / calls


def _read(model: Transformer, window: torch.Tensor) -> None:
    with torch.inference_mode():
        model(window)


def _learn(model: Transformer, window: torch.Tensor, targets: Mask | None) -> None:
    """The mask says which tokens are targets: of a model that sees them, too, only the time is of interest."""
    model.zero_grad()
    next_token_loss(model(window), window, targets).backward()


def memory(lengths: Sequence[int]) -> Plain:
    """Bytes by length, each a list over lengths.

    Returns:
        `cache`, keys and values of one text; `kept`, activations that a training pass keeps; both with their counted
        values, `cache_counted` and `kept_counted`; and `recomputed_counted`, see `held_bytes`.
    """
    found: dict[str, list[int]] = {name: [] for name in BYTES}
    for length in lengths:
        config = model_config(length)
        model, formula = Transformer(config, VOCAB), cost(config, VOCAB)
        cache = model.new_cache(1, length)
        measured = (sum(tensor.nbytes for tensor in [*cache.keys, *cache.values]), formula.cache_bytes)
        kept = (kept_bytes(model, torch.arange(length)[None] % VOCAB), formula.activation_bytes)
        for sizes, size in zip(found.values(), (*measured, *kept, held_bytes(config)), strict=True):
            sizes.append(size)
    return found


def held_bytes(config: ModelConfig) -> int:
    """Peak bytes of activations in a forward pass over a full context without gradients, by formula.

    The peak is at the output of attention: 4 n (7 d_model) bytes in float32 for the residual stream, its norm, queries,
    keys, values, z and the output; attention weights are computed piece by piece, so there is no n × n matrix. This
    holds for heads with keys of their own, d_ff and vocabulary no larger than d_model, and masks that need no table.
    """
    return BYTES_FLOAT32 * config.context_length * HELD * config.d_model


def kept_bytes(model: Transformer, window: torch.Tensor) -> int:
    """Bytes that a forward pass saves for the backward pass, without weights, each piece of memory counted once."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    storages: dict[int, int] = {}
    alive: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)  # no address is used twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        next_token_loss(model(window), window, model.mask)
    return sum(storages.values())
