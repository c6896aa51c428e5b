"""Rows `shakespeare-fast` and `fast`: a cold process to a test loss of 1.78 on the complete Shakespeare.

The clock runs from the start of the process to its last training step. How many steps there are was fixed beforehand;
the loss is measured after the clock has stopped.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.options import LeftOut, Options
from benchmarks.processes import cold, finish, last_json, python, read_events, shakespeare_corpus, trained_at
from benchmarks.recipes import BATCHES, RATES, TARGET, Recipe, fixed, source, strong
from benchmarks.results import OURS, Goal, Measurement, Section
from vitral import presets

NAMES = ("shakespeare-fast", "fast")
SOURCE, STRONG = "source", "strong"
GOALS = {
    "shakespeare-fast": (Goal("faster", 8, SOURCE), Goal("faster", 2.5, STRONG)),
    "fast": (Goal("faster", 15, SOURCE), Goal("faster", 5, STRONG)),
}
ORDERS = (4, 5)
QUICK_STEPS = 2

_NOTES = (
    "seconds from the start of a process with empty caches to its last training step; one round a seed",
    "Vitral's misses count as never; a peer that misses keeps the seconds it took, less than it would need",
    "strong: the setting that reached the target most often, then soonest, of those with a fixed number of steps",
)


@dataclass(frozen=True)
class Outcome:
    """One cold process.

    Attributes:
        seconds: start of the process to the last step.
        test_loss: measured afterwards.
        facts: further facts.
    """

    seconds: float
    test_loss: float
    facts: Mapping[str, float | int | str] = field(default_factory=dict)

    @property
    def reached(self) -> bool:
        """Whether the target was reached."""
        return self.test_loss <= TARGET


Run = Callable[[int], Outcome]
"""Trains with this seed."""


def measure(names: Sequence[str], options: Options) -> list[Section]:
    """Measure these rows together, all contenders in turns, seed by seed.

    Raises:
        LeftOut: the text is not here, or none of the presets.
    """
    shakespeare_corpus()
    rows = [name for name in names if name in presets()]
    if not rows:
        raise LeftOut(f"no preset {' or '.join(names)}: there is nothing to measure")
    recipes = _recipes(options)
    runs: dict[str, Run] = {name: _vitral(name, options) for name in rows}
    runs |= {recipe.text(): _baseline(recipe, options) for recipe in recipes}
    runs |= {f"{order}-gram": _ngrams(order, options) for order in ORDERS}
    seeds = range(1, 1 + (1 if options.quick else options.seeds))
    outcomes: dict[str, list[Outcome]] = {name: [] for name in runs}
    for seed in seeds:
        for name, run in runs.items():
            outcomes[name].append(run(seed))
    peers = _peers({name: outcomes[name] for name in outcomes if name not in rows}, recipes)
    notes = (*_NOTES, *_unknown(recipes))
    return [
        Section(
            row,
            f"a cold process to test loss {TARGET} on the complete Shakespeare, preset {row}",
            (ours(outcomes[row]), *peers),
            goals=GOALS[row],
            notes=notes,
        )
        for row in rows
    ]


def ours(outcomes: Sequence[Outcome]) -> Measurement:
    """Vitral's outcomes: a seed that missed the target never got there."""
    seconds = tuple(outcome.seconds if outcome.reached else math.inf for outcome in outcomes)
    return Measurement(OURS, seconds, _facts(outcomes))


def best_of(settings: Mapping[str, Sequence[Outcome]]) -> str:
    """The setting that reached the target most often, and of those the soonest by its median."""

    def rank(name: str) -> tuple[int, float]:
        return -sum(one.reached for one in settings[name]), median(one.seconds for one in settings[name])

    return min(settings, key=rank)


def _peers(outcomes: Mapping[str, Sequence[Outcome]], recipes: Sequence[Recipe]) -> list[Measurement]:
    """Every peer's outcomes; the best strong setting and the source under the names the goals use."""
    settings = {recipe.text(): outcomes[recipe.text()] for recipe in recipes if recipe.name == STRONG}
    renamed = {recipe.text(): SOURCE for recipe in recipes if recipe.name == SOURCE}
    if settings:
        renamed[best_of(settings)] = STRONG
    measurements = []
    for name, rounds in outcomes.items():
        facts = _facts(rounds)
        if name in renamed:
            facts = {**facts, "setting": name}
        measurements.append(Measurement(renamed.get(name, name), tuple(one.seconds for one in rounds), facts))
    return measurements


def _facts(outcomes: Sequence[Outcome]) -> dict[str, float | int | str]:
    reached = sum(outcome.reached for outcome in outcomes)
    loss = round(median(outcome.test_loss for outcome in outcomes), 4)
    return {"test loss": loss, "reached": f"{reached} of {len(outcomes)}", **outcomes[-1].facts}


def _recipes(options: Options) -> list[Recipe]:
    """The baselines; in a smoke run two of them, a few steps long."""
    if options.quick:
        return [source(QUICK_STEPS), strong(BATCHES[0], RATES[0], QUICK_STEPS)]
    return fixed()


def _unknown(recipes: Sequence[Recipe]) -> list[str]:
    known = {recipe.name for recipe in recipes}
    return [
        f"{name}: left out, its number of steps is not known; python -m benchmarks.grid --recipe {name} finds it"
        for name in (SOURCE, STRONG)
        if name not in known
    ]


def _vitral(preset: str, options: Options) -> Run:
    def run(seed: int) -> Outcome:
        with cold(options) as (scratch, env):
            folder = scratch / "run"
            command = python("-m", "vitral", "train", preset, "--out", str(folder), "--set", f"seed={seed}")
            if options.quick:
                command += ["--set", f"training.steps={QUICK_STEPS}"]
            began = time.time()
            finish(command, env)
            ended, steps, loss = trained_at(read_events(folder))
            return Outcome(ended - began, loss, {"steps": steps})

    return run


def _baseline(recipe: Recipe, options: Options) -> Run:
    return _script(options, lambda seed: ("benchmarks.peers.training", recipe.to_json(), str(seed)))


def _ngrams(order: int, options: Options) -> Run:
    return _script(options, lambda seed: ("benchmarks.peers.counting", str(order)))


def _script(options: Options, arguments: Callable[[int], Sequence[str]]) -> Run:
    """A script of this folder that prints its end time, its loss and further facts."""

    def run(seed: int) -> Outcome:
        with cold(options) as (_, env):
            began = time.time()
            printed = last_json(finish(python("-m", *arguments(seed)), env))
        seconds, loss = printed.pop("unix") - began, printed.pop("test_loss")
        return Outcome(seconds, loss, {name.replace("_", " "): value for name, value in printed.items()})

    return run
