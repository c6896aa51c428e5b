"""A study's runs as points of a scaling law, and the laws fitted to its grid.

Losses are taken in nats per character, whatever the tokens. N is the number of parameters in the blocks, embeddings and
head left out (Kaplan et al. 2020, §1.3); D the tokens trained on; C the counted operations of the training.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vitral.core.errors import UsageError
from vitral.studies.probes.protocol import ByRun
from vitral.studies.results import StudyResult
from vitral.studies.scaling import Fit, envelope, fit_law

SUM, PRODUCT = "E + A/N^α + B/D^β", "E + A/(N^α D^β)"


@dataclass(frozen=True)
class Run:
    """One run as a point: its arm, the kind of its tokens, N, D, C, and the loss in nats per character."""

    arm: str
    title: str
    tokens: str
    size: float
    amount: float
    compute: float
    loss: float


@dataclass(frozen=True)
class Laws:
    """What was fitted to the grid; None where there were too few runs for it."""

    by_size: Fit | None
    by_amount: Fit | None
    by_compute: Fit | None
    added: Fit | None
    multiplied: Fit | None


def gather(result: StudyResult, measured: ByRun) -> list[Run]:
    """Every finished run that was measured, its loss in nats per character."""
    in_nats = math.log(2) if result.study.unit == "bits per character" else None
    runs = []
    for arm in result.arms:
        for seed, loss in arm.losses.items():
            found = measured.get(arm.arm.name, {}).get(seed)
            if found is None:
                continue
            scale = in_nats if in_nats is not None else 1 / found["characters_per_token"]
            tokens = arm.config["corpus"]["tokenizer"]["name"]
            place = (float(found["size"]), float(found["amount"]), float(found["compute"]))
            runs.append(Run(arm.arm.name, arm.arm.title, tokens, *place, loss * scale))
    return runs


def fit_grid(grid: Sequence[Run]) -> Laws:
    """All laws, each from the runs it is about."""
    most, largest = max(run.amount for run in grid), max(run.size for run in grid)
    front = [grid[index] for index in envelope([run.compute for run in grid], [run.loss for run in grid])]
    return Laws(
        _one("N", [(run.size, run.loss) for run in grid if run.amount == most]),
        _one("D", [(run.amount, run.loss) for run in grid if run.size == largest]),
        _one("C", [(run.compute, run.loss) for run in front]),
        _joint(grid, product=False),
        _joint(grid, product=True),
    )


def _one(name: str, points: Sequence[tuple[float, float]]) -> Fit | None:
    try:
        return fit_law({name: [x for x, _ in points]}, [loss for _, loss in points], floor=False)
    except UsageError:
        return None


def _joint(runs: Sequence[Run], *, product: bool) -> Fit | None:
    quantities = {"N": [run.size for run in runs], "D": [run.amount for run in runs]}
    losses = [run.loss for run in runs]
    for floor in (True, False):
        try:
            return fit_law(quantities, losses, floor=floor, product=product)
        except UsageError:
            continue
    return None


def product_law(runs: Sequence[Run]) -> Fit | None:
    """The product without a floor: the fewest numbers two exponents can be had with."""
    try:
        quantities = {"N": [run.size for run in runs], "D": [run.amount for run in runs]}
        return fit_law(quantities, [run.loss for run in runs], floor=False, product=True)
    except UsageError:
        return None


def at_same_places(grid: Sequence[Run], others: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """The runs of both kinds of token at the places, N and D, that both have."""
    places = {(run.size, run.amount) for run in grid} & {(run.size, run.amount) for run in others}
    own, other = ([run for run in runs if (run.size, run.amount) in places] for runs in (grid, others))
    return own, other


def joint_laws(laws: Laws) -> list[tuple[str, Fit]]:
    """The joint laws there are, each with its form."""
    return [(form, law) for form, law in ((SUM, laws.added), (PRODUCT, laws.multiplied)) if law is not None]
