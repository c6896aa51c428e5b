"""Rows `nanogpt-minute` and `nanogpt-3-minutes`: the test loss after that time, against nanoGPT on a CPU."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.options import LeftOut, Options
from benchmarks.peers import NANOGPT, nanogpt
from benchmarks.peers.nanogpt_training import Characters, characters_of, loss_of, pace_of, require_checkout, train
from benchmarks.processes import cold, finish, python
from benchmarks.results import LOSS, OURS, Goal, Measurement, Section
from vitral import load
from vitral.core.errors import UsageError
from vitral.data import CorpusConfig, load_corpus

QUICK_SECONDS = 12.0
TRIAL_STEPS, QUICK_TRIAL_STEPS = 200, 12
LATE = 1.1
"""Seconds are held against the time given times this."""
NATS_PER_BIT = 0.6931471805599453

_NOTES = (
    "both: wall time of a whole process, from start to end, started without OMP_NUM_THREADS; losses in nats per "
    "character of the same test split, each model in windows of its own context",
    "Vitral: vitral train TEXT --minutes N, with reading and tokenizing the text, choosing the model and the page of "
    "the run; empty caches; its best checkpoint",
    "nanoGPT: python train.py config/train_shakespeare_char.py with the CPU settings of its README, max_iters and "
    "lr_decay_iters chosen so that the process takes the whole time; its text is prepared and its steps are timed "
    "before the clock starts; its last model",
)


@dataclass(frozen=True)
class Race:
    """A row.

    Attributes:
        seconds: wall time of each contender.
        texts: the texts; those of the options come after them.
        lower: nats by which Vitral's loss should be lower.
        chosen: options of `vitral train`.
    """

    seconds: float
    texts: tuple[str, ...]
    lower: float
    chosen: tuple[str, ...] = ()


RACES = {
    "nanogpt-minute": Race(60.0, ("tinyshakespeare", "machado"), 0.25),
    "nanogpt-3-minutes": Race(180.0, ("tinyshakespeare",), 0.30, ("--set", "corpus.split=nanogpt")),
}
NAMES = tuple(RACES)


@dataclass(frozen=True)
class Round:
    """One training of one contender.

    Attributes:
        seconds: wall time of its process, or of its start and training.
        loss: test loss, nats per character.
        steps: optimizer steps.
    """

    seconds: float
    loss: float
    steps: int


def measure(names: Sequence[str], options: Options) -> list[Section]:
    """Measure the rows, one section a text, both contenders in turns.

    Raises:
        LeftOut: no checkout of nanoGPT was named, or none of the texts is here.
    """
    checkout = require_checkout(options.nanogpt)
    sections, missing = list[Section](), list[str]()
    for name in names:
        race = replace(RACES[name], seconds=QUICK_SECONDS) if options.quick else RACES[name]
        texts, lines = _present([*race.texts, *options.texts])
        missing += lines
        sections += [
            _section(name, race, text, checkout, options, lines) for text in (texts[:1] if options.quick else texts)
        ]
    if not sections:
        raise LeftOut("; ".join(missing))
    return sections


def _present(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The texts that are here, paths made absolute, and a line about each other one."""
    present, missing = [], []
    for name in names:
        text = os.path.abspath(name) if os.path.exists(name) else name
        try:
            load_corpus(CorpusConfig(source=text))
            present.append(text)
        except UsageError as error:
            missing.append(f"{name} is left out: {error}")
    return present, missing


def _section(name: str, race: Race, text: str, checkout: Path, options: Options, missing: Sequence[str]) -> Section:
    ours: list[Round] = []
    theirs: list[Round] = []
    for seed in range(1, 1 + (1 if options.quick else options.seeds)):
        with cold(options, own_threads=True) as (scratch, env):
            ours.append(train_in(race.seconds, seed, text, race.chosen, scratch / "run", env))
            # nanoGPT gets the split of that run, so that both are measured on the same characters.
            characters = characters_of(load(scratch / "run").dataset())
            theirs.append(train_nanogpt(characters, race.seconds, checkout, scratch, env, options))
    return section(name, race, Path(text).stem, ours, theirs, missing)


def section(
    name: str, race: Race, text: str, ours: Sequence[Round], theirs: Sequence[Round], missing: Sequence[str] = ()
) -> Section:
    """The table of one text."""
    lower = [their.loss - our.loss for our, their in zip(ours, theirs, strict=True)]
    rounds = f"{text}: nats below nanoGPT, round by round: {', '.join(f'{each:.3f}' for each in lower)}"
    return Section(
        name,
        f"{text}: test loss after {race.seconds:g} s of wall time, start to end of a cold process",
        (_measurement(OURS, ours), _measurement(NANOGPT, theirs)),
        goals=(Goal("lower", race.lower, NANOGPT), Goal("seconds", round(race.seconds * LATE, 1))),
        notes=(*_NOTES, rounds, *missing),
    )


def _measurement(name: str, rounds: Sequence[Round]) -> Measurement:
    facts = {LOSS: round(median(one.loss for one in rounds), 4), "steps": rounds[-1].steps}
    return Measurement(name, tuple(one.seconds for one in rounds), facts)


def train_in(
    seconds: float, seed: int, start: str, chosen: Sequence[str], folder: Path, env: Mapping[str, str]
) -> Round:
    """Train by `vitral train` for a time, with these options besides, and measure afterwards."""
    how = ("--minutes", f"{seconds / 60:g}", "--seed", str(seed), "--out", str(folder), *chosen)
    command = python("-m", "vitral", "train", start, *how)
    began = time.perf_counter()
    finish(command, env)
    took = time.perf_counter() - began
    evaluation: dict[str, Any] = json.loads(finish(python("-m", "vitral", "evaluate", str(folder), *EVALUATION), env))
    return Round(took, evaluation["parts"]["test"]["bits_per_character"] * NATS_PER_BIT, evaluation["step"])


EVALUATION = ("--format", "json", "--no-copying")


def train_nanogpt(
    characters: Characters, seconds: float, checkout: Path, scratch: Path, env: Mapping[str, str], options: Options
) -> Round:
    """Train nanoGPT for a time, and measure as Vitral measures."""
    data = scratch / "characters"
    characters.write(data)
    trial_steps = QUICK_TRIAL_STEPS if options.quick else TRIAL_STEPS
    trial = train(checkout, data, scratch / "trial", trial_steps, env, evaluations=0)
    steps = pace_of(trial.printed, trial.seconds).steps_in(seconds)
    trained = train(checkout, data, scratch / "nanogpt", steps, env)
    loss = loss_of(nanogpt.load(checkout), trained.out, characters.splits["test"])
    return Round(trained.seconds, loss, steps)
