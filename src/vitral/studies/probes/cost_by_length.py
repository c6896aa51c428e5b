"""What one token costs as texts grow longer: measured times beside counted operations, at the same lengths.

One small model, whose attention outweighs the rest at the longest lengths, is used in six ways. With n tokens, of
which the last is the new one:

- `cached`: one more token, keys and values of those before it kept (many texts side by side, per text);
- `recomputed`: one more token without a cache, all n computed again, causal;
- `bidirectional`: the same under the mask that allows no cache;
- `at-once`: a window of n read whole, per token (the causal time above, divided by n);
- `one-by-one`: the same window, every token given, read token by token with a cache: forward passes only, mean over
  its tokens;
- `training`: forward and backward pass over a window of n, per token.

Times are of the processor, all threads of this process together, since what else the machine does does not count
into them; wall-clock times are kept beside them. All ways and lengths take turns, round after round, and of the rounds
the median counts. Exponents are slopes of least squares lines through (log n, log time) at the longest lengths; those
predicted are slopes through (log n, log operations) at the same lengths, not the 1 or 2 of a length without end.
"""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch

from vitral.model import ModelConfig, Transformer, cost, next_token_loss
from vitral.studies.probes.cost_shown import NAME, show
from vitral.studies.probes.protocol import BudgetName, Plain, Setting, StudyProbe

D_MODEL, HEADS, LAYERS, VOCAB = 64, 8, 1, 16
LENGTHS: Mapping[BudgetName, tuple[int, ...]] = {
    "quick": (128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8192),
    "standard": (128, 256, 512, 1024, 2048, 4096, 6144, 8192, 12288),
    "full": (128, 256, 512, 1024, 2048, 4096, 8192, 12288, 16384, 24576),
}
ROUNDS: Mapping[BudgetName, int] = {"quick": 3, "standard": 5, "full": 9}
FITTED = 4
"""Longest lengths that exponents are fitted on."""
CACHED_TOKENS = 1 << 20
"""Tokens in all caches side by side at the longest length: 512 MB, more than a processor's own caches hold."""
BYTES_FLOAT32, HELD = 4, 7
POINTS = 4
"""Places in a window at which reading token by token is timed: the midpoints of as many equal stretches."""
Pair = tuple[float, float]
LEAST_SECONDS = 0.005
"""A timing repeats what it times until the processor has spent so long on it."""


def model_config(length: int, mask: str = "causal") -> ModelConfig:
    """The model that is timed, for texts of up to `length` tokens."""
    sizes = {"d_model": D_MODEL, "d_ff": D_MODEL, "num_heads": HEADS, "num_layers": LAYERS}
    return ModelConfig.parse({**sizes, "context_length": length, "positions": "none", "attention": {"mask": mask}})


def counted(length: int) -> dict[str, float]:
    """Floating-point operations per token of each way, from `vitral.model.cost`.

    `cost` counts a forward pass per token as a constant for the matrices and 4 n d_model a layer for attention over n
    keys. One more token with a cache is just that. Without, it is n times that. Read token by token, a token attends
    to (n + 1) / 2 keys in the mean. A backward pass is twice a forward one.
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
    }


def measure(setting: Setting) -> Plain:
    """Times, operations and bytes by length, and the exponents of both."""
    lengths, rounds = LENGTHS[setting.budget], ROUNDS[setting.budget]
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


def slope(x: Sequence[float], y: Sequence[float]) -> dict[str, float]:
    """The slope of the least squares line through (log x, log y), with its 95 % Student interval.

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
                "training": seconds(partial(_learn, causal, window)) / length,
            }
            for way, value in taken.items():
                found[way][index] += [(float(value[0]), float(value[1]))] if turn else []
    return found


def one_more_token(model: Transformer, batch: int, longest: int) -> Callable[[int], None]:
    """A function of n that computes the n-th token of `batch` texts, the n - 1 before it being in the cache."""
    cache = model.new_cache(batch, longest + 1)  # so that every length is a part of it, the longest too
    for tensor in [*cache.keys, *cache.values]:
        tensor.fill_(0.01)  # memory that was never written to costs nothing to read
    tokens = torch.zeros(batch, 1, dtype=torch.int64)

    def step(length: int) -> None:
        cache.length = length - 1
        with torch.inference_mode():
            model(tokens, cache=cache)

    return step


def seconds(work: Callable[[], None]) -> np.ndarray:
    """Processor and wall-clock seconds of one call, as means over enough of them to take `LEAST_SECONDS`."""
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


def _learn(model: Transformer, window: torch.Tensor) -> None:
    model.zero_grad()
    next_token_loss(model(window), window, model.mask).backward()


def memory(lengths: Sequence[int]) -> Plain:
    """Bytes by length: keys and values of one text, what a training pass keeps, what a step without a cache holds."""
    names = ("cache", "cache_counted", "kept", "kept_counted", "recomputed_counted")
    found: dict[str, list[int]] = {name: [] for name in names}
    for length in lengths:
        config = model_config(length)
        model, formula = Transformer(config, VOCAB), cost(config, VOCAB)
        cache = model.new_cache(1, length)
        found["cache"].append(sum(tensor.nbytes for tensor in [*cache.keys, *cache.values]))
        found["cache_counted"].append(formula.cache_bytes)
        found["kept"].append(kept_bytes(model, torch.arange(length)[None] % VOCAB))
        found["kept_counted"].append(formula.activation_bytes)
        found["recomputed_counted"].append(held_bytes(config))
    return found


def held_bytes(config: ModelConfig) -> int:
    """Bytes a forward pass over a full context holds at once, kept for nothing later, by formula.

    The most is held while attention gives its output: 4 n (7 d_model) bytes in float32 for the stream, its norm,
    queries, keys, values, z and the output; weights are computed piece by piece, so no n × n matrix is held. That is
    for heads with keys of their own, d_ff and vocabulary no larger than d_model, and masks that need no table.
    """
    return BYTES_FLOAT32 * config.context_length * HELD * config.d_model


def kept_bytes(model: Transformer, window: torch.Tensor) -> int:
    """Bytes that a forward pass keeps for the backward pass, weights not counted, each piece of memory once."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    storages: dict[int, int] = {}
    alive: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)  # so that no address is used twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        next_token_loss(model(window), window, model.mask)
    return sum(storages.values())


COST_BY_LENGTH = StudyProbe(NAME, measure, show, seconds={"quick": 15, "standard": 60, "full": 200})
