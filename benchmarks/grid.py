"""`python -m benchmarks.grid`: the smallest number of steps for each setting of a baseline to reach the target.

What it finds is copied into `benchmarks/recipes.py`, so that the timed runs have their numbers of steps beforehand.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import describe_machine
from benchmarks.peers.training import part_loss, train
from benchmarks.recipes import BATCHES, RATES, TARGET, Recipe, source, strong
from vitral.data import CorpusConfig, Dataset, prepare

STEPS = (150, 200, 250, 300, 350, 400, 500, 600, 700, 800, 1000, 1200, 1400, 1700, 2000, 2500, 3000, 4000, 5000)


@dataclass(frozen=True)
class Trial:
    """A setting trained for a number of steps with every seed.

    Attributes:
        steps: optimizer steps.
        losses: test loss, one a seed.
        seconds: training time, the mean of the seeds.
    """

    steps: int
    losses: tuple[float, ...]
    seconds: float

    @property
    def reached(self) -> bool:
        """Whether every seed reached the target."""
        return max(self.losses) <= TARGET


def smallest(steps: Sequence[int], reaches: Callable[[int], bool]) -> int | None:
    """The smallest of ascending step counts that reaches the target, by bisection; None if none does.

    More steps are taken to be no worse, so about log2(len(steps)) of them are tried.

    >>> smallest([100, 200, 300, 400], lambda steps: steps >= 250)
    300
    """
    low, high = 0, len(steps)
    while low < high:
        middle = (low + high) // 2
        if reaches(steps[middle]):
            high = middle
        else:
            low = middle + 1
    return steps[low] if low < len(steps) else None


def search(recipe_of: Callable[[int], Recipe], steps: Sequence[int], seeds: int, dataset: Dataset) -> dict[str, Any]:
    """One setting: all trials, and the smallest number of steps that reached the target."""
    trials: list[Trial] = []

    def reaches(count: int) -> bool:
        trials.append(_try(recipe_of(count), seeds, dataset))
        last = trials[-1]
        losses = ", ".join(f"{loss:.4f}" for loss in last.losses)
        print(f"{recipe_of(count).text()}: {losses} in {last.seconds:.1f} s", flush=True)
        return last.reached

    fewest = smallest(steps, reaches)
    at = next((trial for trial in trials if trial.steps == fewest), None)
    setting = recipe_of(0)
    return {
        "recipe": setting.name,
        "batch": setting.batch,
        "rate": setting.rate,
        "init": setting.init,
        "steps": fewest,
        "seconds": None if at is None else at.seconds,
        "trials": [{"steps": one.steps, "test_losses": one.losses, "seconds": one.seconds} for one in trials],
    }


def _try(recipe: Recipe, seeds: int, dataset: Dataset) -> Trial:
    losses, total = [], 0.0
    for seed in range(1, seeds + 1):
        began = time.perf_counter()
        model = train(recipe, dataset, seed)
        total += time.perf_counter() - began
        losses.append(part_loss(model, dataset.splits["test"]))
        if losses[-1] > TARGET:  # one miss decides
            break
    return Trial(recipe.steps, tuple(losses), total / len(losses))


def settings(said: argparse.Namespace) -> list[Callable[[int], Recipe]]:
    """Every requested setting, as a function from a number of steps to a recipe."""
    if said.recipe == "source":
        return [source]
    return [
        lambda steps, batch=batch, rate=rate: strong(batch, rate, steps, said.init)
        for batch in said.batches
        for rate in said.rates
    ]


def main() -> None:
    """Search every setting; save the results after each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grid", description=__doc__)
    parser.add_argument("--recipe", choices=("strong", "source"), default="strong")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS, help="the step counts to choose among")
    parser.add_argument("--seeds", type=int, default=1, help="all of them must reach the target")
    parser.add_argument("--init", choices=("pytorch", "gpt2"), default="pytorch")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--out", type=Path, default=Path("benchmark-grid.json"))
    said = parser.parse_args()
    if said.threads:
        torch.set_num_threads(said.threads)
    dataset = prepare(CorpusConfig(source="shakespeare"))
    grid: dict[str, Any] = {"machine": describe_machine(torch.get_num_threads()), "target": TARGET, "settings": []}
    for recipe_of in settings(said):
        grid["settings"].append(search(recipe_of, sorted(said.steps), said.seeds, dataset))
        said.out.write_text(json.dumps(grid, indent=2) + "\n", encoding="utf-8")
    print("\nbatch   rate   steps  seconds")
    for one in sorted(grid["settings"], key=lambda one: one["seconds"] or float("inf")):
        reached = f"{one['steps']:7,} {one['seconds']:8.1f}" if one["steps"] else "  never"
        print(f"{one['batch']:5} {one['rate']:6g} {reached}")


if __name__ == "__main__":
    main()
