"""A study's runs as points of a scaling law, and the laws fitted to its grid.

Losses are taken in nats per character, whatever the tokens. N is the number of parameters in the blocks, embeddings and
head left out (Kaplan et al. 2020, §1.3); D the tokens trained on; C the counted operations of the training.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from vitral.core.errors import UsageError
from vitral.studies.probes.protocol import ByRun
from vitral.studies.results import StudyResult
from vitral.studies.scaling import Fit, envelope, fit_law

SUM, PRODUCT = "E + A/N^α + B/D^β", "E + A/(N^α D^β)"


@dataclass(frozen=True)
class Run:
    """One run as a point: its arm, what its tokens are called, N, D, C, and the loss in nats per character."""

    arm: str
    title: str
    tokens: str
    size: float
    amount: float
    compute: float
    loss: float


@dataclass(frozen=True)
class Single:
    """A law of one quantity, and the points it was fitted to.

    Attributes:
        label: as it is written, such as L(N).
        name: of the quantity: N, D or C.
        fit: of (x_c/x)^α.
        points: in the order of the fit's residuals.
    """

    label: str
    name: str
    fit: Fit
    points: tuple[Run, ...]


@dataclass(frozen=True)
class Laws:
    """What was fitted to the grid; what had too few runs is missing, or None."""

    singles: tuple[Single, ...]
    added: Fit | None
    multiplied: Fit | None


_TOKENS = {"char": "characters", "byte": "bytes", "bpe": "byte pairs"}


def token_name(table: Mapping[str, Any]) -> str:
    """What a tokenizer's tokens are called; other tables have other names.

    >>> token_name({"name": "bpe", "vocab_size": 512})
    'byte pairs (512)'
    """
    rest = {key: value for key, value in sorted(table.items()) if key not in ("name", "vocab_size")}
    details = [f"{table['vocab_size']:,}"] if "vocab_size" in table else []
    details += [f"{key} {json.dumps(value)}" for key, value in rest.items()]
    name = _TOKENS.get(table["name"]) or str(table["name"])
    return f"{name} ({', '.join(details)})" if details else name


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
            tokens = token_name(arm.config["corpus"]["tokenizer"])
            place = (float(found["size"]), float(found["amount"]), float(found["compute"]))
            runs.append(Run(arm.arm.name, arm.arm.title, tokens, *place, loss * scale))
    return runs


def fit_grid(grid: Sequence[Run]) -> Laws:
    """All laws, each from the runs it is about: L(C) from places rather than runs, see `front`."""
    most, largest = max(run.amount for run in grid), max(run.size for run in grid)
    singles = [
        single("N", [run for run in grid if run.amount == most]),
        single("D", [run for run in grid if run.size == largest]),
        single("C", front(grid)),
    ]
    made = tuple(law for law in singles if law is not None)
    return Laws(made, joint_law(grid, product=False), joint_law(grid, product=True))


def averaged(runs: Sequence[Run]) -> list[Run]:
    """One point for each arm, its loss the mean over seeds."""
    arms: dict[str, list[Run]] = {}
    for run in runs:
        arms.setdefault(run.arm, []).append(run)
    return [replace(each[0], loss=fmean(run.loss for run in each)) for each in arms.values()]


def front(grid: Sequence[Run]) -> list[Run]:
    """The places that none of as little compute beats, by their means: of single runs the lucky ones would be taken."""
    places = averaged(grid)
    return [places[index] for index in envelope([run.compute for run in places], [run.loss for run in places])]


def single(name: str, points: Sequence[Run]) -> Single | None:
    """(x_c/x)^α through these points; None where they are too few."""
    values = [{"N": run.size, "D": run.amount, "C": run.compute}[name] for run in points]
    try:
        fit = fit_law({name: values}, [run.loss for run in points], floor=False)
    except UsageError:
        return None
    return Single(f"L({name})", name, fit, tuple(points))


def joint_law(runs: Sequence[Run], *, product: bool) -> Fit | None:
    """A law of N and D, with a floor if the runs allow one; None where they are too few for it."""
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
