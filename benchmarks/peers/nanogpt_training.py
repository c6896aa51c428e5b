"""nanoGPT's own `train.py` in a process of its own, with the CPU settings of its README, given a time instead of steps.

Everything that favours it is allowed: its text is prepared and its steps are timed before the clock starts, and the
model that it saves is the last one, at the end of its schedule. Nothing is written into the checkout.
"""

import os
import pickle
import re
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch

from benchmarks.options import LeftOut
from benchmarks.peers.nanogpt import NanoGPT
from benchmarks.peers.training import part_loss
from benchmarks.processes import finish, python
from vitral.data import SPLITS, Dataset, Split

CONFIG = "config/train_shakespeare_char.py"
CPU_SETTINGS: Mapping[str, object] = {
    "device": "cpu",
    "compile": False,
    "eval_iters": 20,
    "log_interval": 1,
    "block_size": 64,
    "batch_size": 12,
    "n_layer": 4,
    "n_head": 4,
    "n_embd": 128,
    "dropout": 0.0,
}
"""The options in its README, except `max_iters` and `lr_decay_iters`, which are 2,000 there."""
EVALUATIONS = 8
"""Evaluations after the first, as in its README: every 250 of 2,000 steps."""
SETTLED = 5
"""Steps of a trial before its steps are timed."""


@dataclass(frozen=True)
class Characters:
    """A text as nanoGPT's `prepare.py` writes it: one id a character, in the order of the code points.

    Attributes:
        alphabet: every character of the text, sorted.
        splits: `train`, `validation`, `test` -> ids, with the segments of Vitral's split.
    """

    alphabet: str
    splits: Mapping[str, Split]

    def write(self, folder: Path) -> None:
        """Write what its `train.py` reads: train.bin, val.bin, meta.pkl."""
        folder.mkdir(parents=True)
        self.splits["train"].tokens.tofile(folder / "train.bin")
        self.splits["validation"].tokens.tofile(folder / "val.bin")
        ids = {character: number for number, character in enumerate(self.alphabet)}
        meta = {"vocab_size": len(ids), "itos": dict(enumerate(self.alphabet)), "stoi": ids}
        (folder / "meta.pkl").write_bytes(pickle.dumps(meta))


def characters_of(dataset: Dataset) -> Characters:
    """The characters of a run's splits, whatever the run's tokenizer."""
    texts = {
        name: [dataset.tokenizer.decode(split.tokens[begin:end]) for begin, end in split.segments.tolist()]
        for name, split in dataset.splits.items()
    }
    alphabet = "".join(sorted(set().union(*(set(text) for parts in texts.values() for text in parts))))
    points = np.array([ord(character) for character in alphabet], dtype=np.uint32)
    splits = {}
    for name in SPLITS:
        ids = [np.searchsorted(points, np.frombuffer(text.encode("utf-32-le"), np.uint32)) for text in texts[name]]
        ends = np.cumsum([0, *(len(part) for part in ids)])
        splits[name] = Split(np.concatenate(ids).astype(np.uint16), np.stack([ends[:-1], ends[1:]], axis=1))
    return Characters(alphabet, splits)


@dataclass(frozen=True)
class Pace:
    """How fast `train.py` is here.

    Attributes:
        fixed: seconds of a process besides its steps and evaluations.
        evaluation: seconds of one evaluation.
        step: seconds of one step.
    """

    fixed: float
    evaluation: float
    step: float

    def steps_in(self, seconds: float) -> int:
        """As many steps as fit, with the evaluations; a multiple of their number, so that the last model is saved.

        >>> Pace(fixed=4.0, evaluation=1.0, step=0.01).steps_in(60)
        4696
        """
        left = seconds - self.fixed - (EVALUATIONS + 1) * self.evaluation
        return EVALUATIONS * max(1, int(left / self.step) // EVALUATIONS)


def pace_of(printed: str, wall: float) -> Pace:
    r"""The pace from the lines that `train.py` prints, one a step, and the seconds of its process.

    Its first step has the first evaluation in its time.

    >>> lines = [f"iter {n}: loss 4.1, time {1000 if n == 0 else 10:.2f}ms, mfu 0%" for n in range(9)]
    >>> pace_of("\n".join(lines), 5.08)
    Pace(fixed=4.0, evaluation=0.99, step=0.01)

    Raises:
        LeftOut: there are too few such lines.
    """
    times = [float(taken) / 1000 for taken in re.findall(r"^iter \d+: .*time ([\d.]+)ms", printed, re.MULTILINE)]
    if len(times) <= SETTLED:
        raise LeftOut("nanoGPT: train.py does not print the time of its steps")
    step = mean(times[SETTLED:])
    return Pace(round(wall - sum(times), 6), round(max(0.0, times[0] - step), 6), round(step, 9))


@dataclass(frozen=True)
class Trained:
    """One training.

    Attributes:
        seconds: wall time of the process, from start to end.
        steps: optimizer steps of the saved model.
        printed: its output.
        out: the folder of its checkpoint.
    """

    seconds: float
    steps: int
    printed: str
    out: Path


def train(
    checkout: Path, data: Path, out: Path, steps: int, env: Mapping[str, str], evaluations: int = EVALUATIONS
) -> Trained:
    """Run `train.py` for a number of steps.

    Args:
        checkout: nanoGPT's folder.
        data: the folder that `Characters.write` wrote.
        out: the folder for its checkpoint.
        steps: its `max_iters` and `lr_decay_iters`.
        env: the environment of the process.
        evaluations: after the first; with 0 no model is saved.

    Raises:
        LeftOut: it failed; with its last lines.
    """
    settings = {
        **CPU_SETTINGS,
        "max_iters": steps,
        "lr_decay_iters": steps,
        "eval_interval": steps // evaluations if evaluations else steps + 1,
        "always_save_checkpoint": True,
        "dataset": data.resolve(),
        "out_dir": out.resolve(),
    }
    options = [f"--{name}={value}" for name, value in settings.items()]
    # The checkout belongs to the user: no compiled files beside its sources.
    environment = {**env, "PYTHONDONTWRITEBYTECODE": "1"}
    began = time.perf_counter()
    printed = finish(python("train.py", CONFIG, *options), environment, cwd=checkout)
    return Trained(time.perf_counter() - began, steps, printed, out)


def loss_of(source: NanoGPT, out: Path, part: Split) -> float:
    """The loss of the saved model in nats per character: Vitral's definition, in windows of its own context."""
    checkpoint: dict[str, Any] = torch.load(out / "ckpt.pt", map_location="cpu", weights_only=True)
    with redirect_stdout(StringIO()):  # it prints its size
        model = source.module.GPT(source.module.GPTConfig(**checkpoint["model_args"]))
    model.load_state_dict(checkpoint["model"])
    model.context = checkpoint["model_args"]["block_size"]
    return part_loss(model.eval(), part)


def require_checkout(folder: Path | None) -> Path:
    """The checkout.

    Raises:
        LeftOut: there is none, or it has no `train.py`.
    """
    if folder is None:
        raise LeftOut("it needs a checkout of nanoGPT: git clone https://github.com/karpathy/nanoGPT, --nanogpt FOLDER")
    missing = [name for name in ("train.py", "model.py", "configurator.py", CONFIG) if not (folder / name).is_file()]
    if missing:
        raise LeftOut(f"{folder}: no checkout of nanoGPT, there is no {missing[0]} in it")
    return Path(os.path.abspath(folder))
