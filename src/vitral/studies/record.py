"""study.json: the design, configuration, texts and seeds of a study's folder, sealed with their own hash."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vitral.core.errors import UsageError, reason
from vitral.core.files import names, read, replace_durably, sealed_json, unsealed_json
from vitral.runs.lock import LOCK
from vitral.studies.design import Study
from vitral.studies.resolution import first_difference

RECORD = "study.json"
FORMAT = 2
MOST_RECORD = 1 << 26
"""Maximum bytes of study.json; a study of a thousand arms is smaller."""
ARMS, MEASURES, REPORT = "arms", "measures", "report"
TUNING = "tuning"
"""Folder of the runs in which values are tried."""
LOGS = "slurm"
"""Folder of what the jobs of a batch system print."""

Record = dict[str, Any]


def read_record(folder: Path) -> Record | None:
    """The record of a study; None in a new folder.

    Args:
        folder: the study's folder.

    Raises:
        UsageError: the folder has something and no record, or the record is damaged; the line says how to go on.
    """
    if folder.is_file():
        raise UsageError("{where}: is a file; choose another --out", where=folder)
    for inside in (ARMS, MEASURES, REPORT, TUNING):
        names(folder / inside)  # refuses a link
    there = set(os.listdir(folder)) if folder.exists() else set[str]()
    if RECORD in there:
        return _read(folder / RECORD)
    # What a kill may leave before the record is written: its beginning, and the folder of a batch system.
    others = sorted(name for name in there - {LOCK, LOGS} if not name.startswith(f".{RECORD}."))
    if others:
        raise UsageError(
            "{where}: exists and is not a study's folder ({record} is missing, and {others!a:.60} is "
            "there); take {record} from a copy, or choose another --out",
            where=folder,
            record=RECORD,
            others=others[0],
        )
    return None


def _read(path: Path) -> Record:
    try:
        record = unsealed_json(read(path, MOST_RECORD))
        Study.parse(record["study"])  # one of a later version may have other keys; the rest is as it was written
    except (OSError, ValueError) as error:
        raise UsageError(
            "{path} is damaged ({reason}); take it from a copy, or choose another --out",
            path=path,
            reason=reason(error)[:120],
        ) from None
    return record


def write_record(folder: Path, given: Record, recorded: Mapping[str, Any] | None) -> Record:
    """Write the record of a call, after comparing it with the one that is there.

    Returns:
        The record with the seeds that the study began with.

    Args:
        folder: the study's folder.
        given: the record of this call.
        recorded: the recorded one.

    Raises:
        UsageError: the folder is another study's, or has runs of seeds that are not asked for now.
        StorageError: it cannot be written.
    """
    began = given["seeds"] if recorded is None else recorded["first_seeds"]
    given = given | {"first_seeds": [seed for seed in began if seed in given["seeds"]] or given["seeds"]}
    if recorded is not None:
        if difference := first_difference(_essence(recorded), _essence(given)):
            raise UsageError(
                "{path}: contains another study: {difference}; choose another --out", path=folder, difference=difference
            )
        # Runs of arms: trials of tuning have a seed of their own.
        begun = [folder / ARMS / arm["name"] for arm in recorded["study"]["arms"]]
        left_out = [seed for seed in recorded["seeds"] if seed not in given["seeds"]]
        kept = [seed for seed in left_out if any((arm / f"seed-{seed}" / "config.toml").exists() for arm in begun)]
        if kept:
            raise UsageError(
                "{path}: has runs of seeds not asked for here ({kept}); results cannot be left out",
                path=folder,
                kept=", ".join(map(str, kept)),
            )
    replace_durably(folder / RECORD, sealed_json(given))
    return given


def seeds_of(study: Study, given: Sequence[int] | None, recorded: Mapping[str, Any] | None) -> tuple[int, ...]:
    """The seeds of a call.

    A study that leaves its seeds to the default keeps those of its record, should the default have changed since.

    Args:
        study: as its budget allows it.
        given: with the command.
        recorded: the record of the folder, if there is one.
    """
    if given is not None:
        return tuple(given)
    return study.seeds if recorded is None or "seeds" in study.model_fields_set else tuple(recorded["seeds"])


def _essence(record: Mapping[str, Any]) -> Record:
    """The parts in which two calls of the same study agree: not its wording, its seeds, or its probes.

    Margin and contrasts are among them: they are declared before anything runs.
    """
    study = Study.parse(record["study"])
    design = study.model_dump(mode="json", include={"name", "unit", "margin", "tune", "draws_text"})
    wording = {"name", "title", "budget"}
    arms = {arm.name: arm.model_dump(mode="json", exclude=wording) for arm in study.arms}
    design |= {"base": study.arms[0].name, "arms": arms}
    return {"study": design, **{key: record.get(key) for key in ("format", "base", "budget", "texts")}}
