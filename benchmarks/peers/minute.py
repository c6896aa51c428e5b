"""A baseline that has a time to train in: `python -m benchmarks.peers.minute JSON UNTIL SEED`, a process of its own.

JSON: width, layers, context, batch, rate. UNTIL: Unix time. A few steps are timed, then as many are made as fit, with
the strong recipe (AdamW, no dropout, a cosine over exactly these steps). Prints one line of JSON: when it was done,
steps, test loss.
"""

import json
import sys
import time
from collections.abc import Mapping

import torch

from benchmarks.ours import feed
from benchmarks.peers.plain import PlainGPT
from benchmarks.peers.training import optimizer_of, part_loss, take_steps
from benchmarks.recipes import strong
from benchmarks.shapes import Shape
from vitral.data import CorpusConfig, prepare

TIMED = 12
MARGIN = 0.5
HEAD_WIDTH = 32


def main() -> None:
    """Train, measure, print."""
    size: Mapping[str, float] = json.loads(sys.argv[1])
    until, seed = float(sys.argv[2]), int(sys.argv[3])
    dataset = prepare(CorpusConfig(source="shakespeare"))
    width, layers, context, batch = (int(size[name]) for name in ("width", "layers", "context", "batch"))
    shape = Shape(dataset.tokenizer.vocab_size, context, width, layers, width // HEAD_WIDTH, batch)
    torch.manual_seed(seed)
    trial, recipe = PlainGPT(shape), strong(batch, size["rate"], TIMED)
    take_steps(trial, optimizer_of(trial, recipe), recipe, feed(shape, dataset, seed))
    at = time.perf_counter()
    take_steps(trial, optimizer_of(trial, recipe), recipe, feed(shape, dataset, seed))
    a_step = (time.perf_counter() - at) / TIMED
    steps = max(1, int((until - MARGIN - time.time()) / a_step))
    torch.manual_seed(seed)
    model, recipe = PlainGPT(shape), strong(batch, size["rate"], steps)
    take_steps(model, optimizer_of(model, recipe), recipe, feed(shape, dataset, seed))
    ended = time.time()
    loss = part_loss(model, dataset.splits["test"])
    print(json.dumps({"unix": ended, "steps": steps, "test_loss": loss}))


if __name__ == "__main__":
    main()
