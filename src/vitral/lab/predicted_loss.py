"""The loss of a training by the laws of a finished scaling study, from what the study keeps in its folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.core.config import differences
from vitral.core.errors import UsageError
from vitral.core.files import read
from vitral.core.language import N_, number
from vitral.core.seals import json_object
from vitral.figures.text import big
from vitral.reports.folder import read_listed
from vitral.reports.forecast import LossForecast, PredictedLoss
from vitral.reports.study import RESULTS
from vitral.runs import RunConfig
from vitral.runs.config import comparable
from vitral.studies.measures import MOST_BYTES, data_of
from vitral.studies.record import MEASURES, REPORT
from vitral.studies.scaling_grid import (
    PREDICTED,
    TOO_WIDE,
    Law,
    Point,
    block_parameters,
    grid_of,
    joint_laws,
    lack_of_fit,
    loss_per_character,
    place_of,
    token_name,
)

PROBE = "scaling-fit"
SIZES = (
    *("model.d_model", "model.d_ff", "model.num_layers", "model.num_heads", "model.num_kv_heads", "seed"),
    *(f"training.{key}" for key in ("steps", "evaluate_every", "log_every", "schedule.warmup_steps", "sharding")),
    *(f"training.{key}" for key in ("dtype", "evaluation_tokens", "accumulation", "reduction", "threads", "plan")),
)
"""What makes N and D, and what does not change a loss on purpose; any other difference is told."""
MOST_NAMED = 4


@dataclass(frozen=True)
class _Study:
    """A finished scaling study.

    Attributes:
        folder: of the study.
        base: configuration of its base arm, as plain data.
        points: its runs.
    """

    folder: Path
    base: Mapping[str, Any]
    points: tuple[Point, ...]


def predicted_loss(folder: Path, config: RunConfig, vocab_size: int) -> tuple[LossForecast, list[str]]:
    """The loss of a training by the laws that a study fitted to its grid, and what is to be known of it.

    Args:
        folder: of the study.
        config: of the training.
        vocab_size: tokens in its vocabulary.

    Raises:
        UsageError: the folder has no finished scaling study, or one of other tokens, or of too few runs for a law.
    """
    study, tokens = _read(folder), token_name(config.plain()["corpus"]["tokenizer"])
    grid = grid_of(study.points, tokens)
    if not grid:
        there = sorted({point.tokens for point in study.points})
        raise UsageError(
            "{folder}: no run of this study has the tokens of this training, {tokens}; it has {there}",
            folder=folder,
            tokens=tokens,
            there=", ".join(there) or "–",
        )
    laws = joint_laws(grid)
    if not laws:
        raise UsageError(
            "{folder}: {runs} runs with {tokens} are too few for a law of size and amount",
            folder=folder,
            runs=len(grid),
            tokens=tokens,
        )
    place = {
        "N": float(block_parameters(config.model, vocab_size)),
        "D": float(config.training.steps * config.tokens_per_step),
    }
    told = [law.fit.predict(place) for law in laws]
    values = {name: [point.place[name] for point in grid] for name in "ND"}
    found = LossForecast(
        study=str(folder),
        size=place["N"],
        amount=place["D"],
        sizes=(min(values["N"]), max(values["N"])),
        amounts=(min(values["D"]), max(values["D"])),
        laws=tuple(
            PredictedLoss(law.formula, one.value, one.low, one.high) for law, one in zip(laws, told, strict=True)
        ),
    )
    return found, _notes(found, study, config, grid, laws)


def _notes(
    found: LossForecast, study: _Study, config: RunConfig, grid: Sequence[Point], laws: Sequence[Law]
) -> list[str]:
    """What the prediction rests on, and what speaks against it."""
    sentence = N_(
        "Loss: by laws fitted to {runs} runs of {study}, with N = {least} to {largest} parameters in the blocks and "
        "D = {fewest} to {most} tokens; this training has N = {size} and D = {amount}."
    )
    ends = {"least": found.sizes[0], "largest": found.sizes[1], "fewest": found.amounts[0], "most": found.amounts[1]}
    told = {name: big(value) for name, value in {**ends, "size": found.size, "amount": found.amount}.items()}
    notes = [sentence.format(runs=len(grid), study=found.study, **told)]
    if not found.is_within:
        sentence = N_(
            "That is an extrapolation, to {size} times the study's largest N and {amount} times its most tokens: the "
            "interval is right only if the law still holds there."
        )
        size, amount = (number(one, ".2g") for one in (found.size / found.sizes[1], found.amount / found.amounts[1]))
        notes.append(sentence.format(size=size, amount=amount))
    for law, one in zip(laws, found.laws, strict=True):
        lack = lack_of_fit(law)
        if (one.high - one.low) / one.loss > TOO_WIDE:
            sentence = N_("By {law} the interval is wider than {percent:.0%} of the loss: it says little.")
            notes.append(sentence.format(law=law.formula, percent=TOO_WIDE))
        elif lack is not None and lack.ratio > lack.critical:
            sentence = N_(
                "{law} leaves more than the scatter between the study's seeds, so that its interval is too narrow."
            )
            notes.append(sentence.format(law=law.formula))
    notes += _tested(study, grid, laws)
    others = _different(study.base, config)
    if others:
        sentence = N_("The study's runs differ from this training in {keys}, of which the laws know nothing.")
        named = ", ".join(others[:MOST_NAMED]) + (", …" if len(others) > MOST_NAMED else "")
        notes.append(sentence.format(keys=named))
    notes.append(N_("The loss is that of the study's text; another text has another one."))
    return notes


def _tested(study: _Study, grid: Sequence[Point], laws: Sequence[Law]) -> list[str]:
    """How the laws did where the study trained runs beyond its grid."""
    beyond = [one for one in study.points if one.arm.startswith(PREDICTED) and one.tokens == grid[0].tokens]
    notes = list[str]()
    for law in laws if beyond else ():
        told = [(law.fit.predict(one.place), one.loss) for one in beyond]
        inside = sum(one.low <= loss <= one.high for one, loss in told)
        sentence = N_(
            "Runs that the study trained beyond its grid: {inside} of {runs} in the interval of {law}; the largest "
            "error is {percent:.1%} of the loss."
        )
        worst = max(abs(loss / one.value - 1) for one, loss in told)
        notes.append(sentence.format(runs=len(beyond), inside=inside, law=law.formula, percent=worst))
    return notes


def _different(base: Mapping[str, Any], config: RunConfig) -> list[str]:
    """The keys, besides those of size and amount, in which a training differs from a study's base."""
    theirs = comparable(RunConfig.parse(base))
    keys = [key for key, _one, _other in differences(theirs, comparable(config)) if key not in SIZES]
    return [key for key in keys if not key.startswith("corpus.tokenizer")]


def _read(folder: Path) -> _Study:
    """The runs of a finished scaling study.

    Raises:
        UsageError: there is none, or what it keeps was changed.
    """
    try:
        found = json_object(read_listed(folder / REPORT, RESULTS))
        points = tuple(
            point for arm in found["arms"] for run in arm["runs"] if (point := _point(folder, found["unit"], arm, run))
        )
        base = found["arms"][0]["configuration"]
    except FileNotFoundError as error:
        raise UsageError(
            "{folder}: is not the folder of a finished study ({name} is missing)", folder=folder, name=error.filename
        ) from None
    except (OSError, ValueError, KeyError, TypeError, LookupError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError("{folder}: cannot be read as a finished study: {why}", folder=folder, why=why[:200]) from None
    if not points:
        raise UsageError(
            "{folder}: is not a scaling study: no run was measured by {probe}; vitral study scaling is one",
            folder=folder,
            probe=PROBE,
        )
    return _Study(folder, base, points)


def _point(folder: Path, unit: str, arm: Mapping[str, Any], run: Mapping[str, Any]) -> Point | None:
    """One run; None where it has no loss, or was not measured."""
    name, seed = arm["name"], run["seed"]
    try:
        raw = read(folder / MEASURES / PROBE / f"{name}-seed-{seed}.json", MOST_BYTES)
    except FileNotFoundError:
        return None
    measured = data_of(raw, json_object(raw).get("of"))
    if run["compared_loss"] is None or "size" not in measured:
        return None
    loss, tokens = loss_per_character(run["compared_loss"], unit, measured), arm["configuration"]["corpus"]["tokenizer"]
    return Point(name, arm["title"], token_name(tokens), place_of(measured), loss, seed)
