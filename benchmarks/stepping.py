"""`python -m benchmarks.stepping THREADS`: training steps of the preset `fast`, as many as each line of the input says.

Prints their seconds, one line each; an empty line once it is ready.
"""

import sys
import tempfile
import time
from pathlib import Path

import torch

from vitral import configure
from vitral.data import prepare
from vitral.runs import RunFolder
from vitral.training import silent
from vitral.training.loop import Trainer, one_step
from vitral.training.run import build_model

WARMUP = 5


def main() -> None:
    """Make steps, print seconds."""
    torch.set_num_threads(int(sys.argv[1]))
    config = configure("fast", corpus="sample")
    dataset = prepare(config.corpus)
    model = build_model(config, dataset.tokenizer.vocab_size)
    trainer = Trainer(config, dataset, model, RunFolder(Path(tempfile.gettempdir())), silent)

    def take(steps: int) -> float:
        began = time.perf_counter()
        for _ in range(steps):
            one_step(trainer)
            trainer.state.step += 1
        return time.perf_counter() - began

    take(WARMUP)
    print(flush=True)
    for line in sys.stdin:
        print(take(int(line)), flush=True)


if __name__ == "__main__":
    main()
