"""Row `minute`: the test loss on the complete Shakespeare after a minute of wall time, whatever the model's size."""

import json
import time
from collections.abc import Mapping, Sequence
from statistics import median

from benchmarks.options import Options
from benchmarks.processes import cold, finish, last_json, python, read_events, shakespeare_corpus, trained_at
from benchmarks.recipes import MINUTE
from benchmarks.results import LOSS, OURS, Goal, Measurement, Section
from benchmarks.rows.nanogpt_minute import Round

NAMES = ("minute",)
SECONDS, QUICK_SECONDS = 60.0, 12.0
START_UP = 4.0
"""Seconds of the minute that are not `--minutes`: start-up, timing a few steps; so that the last step is in time."""
LOWER = 0.1
STRONG = "strong"


def measure(names: Sequence[str], options: Options) -> list[Section]:
    """Measure the row, all contenders in turns, seed by seed.

    Raises:
        LeftOut: the text is not here.
    """
    shakespeare_corpus()
    seconds = QUICK_SECONDS if options.quick else SECONDS
    sizes = {_text(size): size for size in (MINUTE[:1] if options.quick else MINUTE)}
    trainings: dict[str, list[Round]] = {name: [] for name in (OURS, *sizes)}
    for seed in range(1, 1 + (1 if options.quick else options.seeds)):
        trainings[OURS].append(_ours(seconds, seed, options))
        for name, size in sizes.items():
            trainings[name].append(_strong(size, seconds, seed, options))
    losses = {name: median(one.loss for one in rounds) for name, rounds in trainings.items()}
    best = min(sizes, key=losses.__getitem__)
    measured = [
        Measurement(
            STRONG if name == best else name,
            tuple(one.seconds for one in rounds),
            {LOSS: round(losses[name], 4), "steps": rounds[-1].steps} | ({"setting": name} if name == best else {}),
        )
        for name, rounds in trainings.items()
    ]
    return [
        Section(
            "minute",
            f"test loss on the complete Shakespeare {seconds:g} s after the start of a cold process",
            tuple(measured),
            goals=(Goal("lower", LOWER, STRONG), Goal("seconds", seconds)),
            notes=(
                "Vitral: vitral train fast --minutes, which takes its size from the time",
                "strong: AdamW without dropout, warm-up and cosine over as many steps as fit, found by timing a few",
                "losses are medians over the seeds, each of a model in windows of its own context",
            ),
        )
    ]


def _text(size: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in size.items())


def _ours(seconds: float, seed: int, options: Options) -> Round:
    with cold(options) as (scratch, env):
        folder, minutes = scratch / "run", (seconds - START_UP) / 60
        began = time.time()
        command = python("-m", "vitral", "train", "fast", "--minutes", f"{minutes:.3f}", "--out", str(folder))
        finish([*command, "--set", f"seed={seed}", "--set", "training.evaluate_every=1000000"], env)
        ended, steps, loss = trained_at(read_events(folder))
        return Round(ended - began, loss, steps)


def _strong(size: Mapping[str, float], seconds: float, seed: int, options: Options) -> Round:
    with cold(options) as (_, env):
        began = time.time()
        script = ("-m", "benchmarks.peers.minute", json.dumps(size), str(began + seconds), str(seed))
        training = last_json(finish(python(*script), env))
        return Round(training["unix"] - began, training["test_loss"], training["steps"])
