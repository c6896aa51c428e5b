"""The health of a study: its record, its runs, its measurements and its report. Nothing is written."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vitral.core.errors import VitralError, reason
from vitral.core.files import is_left_behind, names
from vitral.core.language import N_
from vitral.doctor.health import Diagnosis, HealthCheck, check, examine_report
from vitral.doctor.run import examine_run
from vitral.runs import RunConfig, enter
from vitral.studies.design import Study
from vitral.studies.measures import check_measures
from vitral.studies.record import ARMS, MEASURES, RECORD, REPORT, TUNING, Found, read_record
from vitral.studies.resolution import resolve
from vitral.studies.results import require_config, require_parent, run_name

AGAIN = N_("{complaint}; the same vitral study command makes it again")


def is_study(path: Path) -> bool:
    """Whether a folder is, or was, that of a study."""
    is_run = os.path.exists(path / "config.toml")  # unlike Path.exists, for any text
    return os.path.exists(path / RECORD) or (not is_run and os.path.isdir(path / ARMS))


def examine_study(path: Path) -> Diagnosis:
    """Whether a study is whole: its record, every run, the hashes of its measurements and of its report.

    The first run has one logged step computed again; the others only have their files verified.
    """
    record = Found()

    def agrees() -> str:
        record.update(read_record(path) or {})
        return N_("{study}: agrees with its hash").format(study=record["study"]["name"])

    findings = [check(RECORD, agrees)]
    for examine in (_runs, _agreement, _files):
        try:
            findings += examine(path, record)
        except (VitralError, OSError) as error:
            findings.append(HealthCheck("wrong", N_("folder"), reason(error)))
    return Diagnosis(tuple(findings))


def _runs(folder: Path, record: Found) -> Iterator[HealthCheck]:
    kinds = [(kind, arm) for kind in (ARMS, TUNING) for arm in names(folder / kind)]
    there = [f"{kind}/{arm}/{run}" for kind, arm in kinds for run in names(folder / kind / arm) if run[0] != "."]
    for number, name in enumerate(there):
        names(folder / name)  # refuses a link
        try:
            found = examine_run(folder / name, replay=number == 0).findings
        except VitralError as error:
            found = (HealthCheck("wrong", N_("run"), reason(error)),)
        bad = [one for one in found if one.mark == "wrong" or one.what == "recomputed step"]
        for one in bad:
            yield HealthCheck(one.mark, name, N_("{what}: {found}").format(what=one.what, found=one.found))
        if not any(one.mark == "wrong" for one in bad):
            yield HealthCheck("ok", name, N_("{n} checks, nothing wrong").format(n=len(found)))
    missing = sorted(_designed(record) - set(there))
    if missing:
        found = N_("{n} not begun, the first {run}; the same vitral study command trains them")
        yield HealthCheck("unknown", N_("runs"), found.format(n=len(missing), run=missing[0]))


def _designed(record: Found) -> set[str]:
    """The runs the record asks for; none if it is damaged."""
    if not record:
        return set()
    return {run_name(arm["name"], seed) for arm in record["study"]["arms"] for seed in record["seeds"]}


def _agreement(folder: Path, record: Found) -> Iterator[HealthCheck]:
    """Whether every run is one of the record: the record of another study has a hash of its own too."""
    study, runs = Study.parse(record["study"]) if record else None, {}
    for name in _designed(record):
        with suppress(VitralError):  # told already
            runs[name] = enter(folder / name, lambda line: None)
    sizes = {run.tokenizer.vocab_size for run in runs.values()}
    if study is None or len(sizes) != 1 or any(arm.run and not Path(arm.run).is_dir() for arm in study.arms):
        return  # no run, texts with different tokenizers, which only the command prepares, or no run to begin from
    for resolved in resolve(study, RunConfig.parse(record["base"], RECORD), sizes.pop()):
        arm = resolved.arm
        for seed in record["seeds"]:
            if (run := runs.get(run_name(arm.name, seed))) is not None:
                require_config(run, resolved.seeded(seed), study.tuned(arm))
                inside = None if arm.init_from is None else folder / run_name(arm.init_from, seed)
                require_parent(run, inside or (arm.run and Path(arm.run)) or None)
    yield HealthCheck("ok", ARMS, N_("{n} runs are those of {file}").format(n=len(runs), file=RECORD))


def _files(folder: Path, record: Found) -> Iterator[HealthCheck]:
    """The measurements, the report, and what an ended process has left."""
    intact, complaints = check_measures(folder)
    yield from (HealthCheck("wrong", MEASURES, AGAIN.format(complaint=complaint)) for complaint in complaints)
    if intact:
        yield HealthCheck("ok", MEASURES, N_("{n} agree with their hashes").format(n=intact))
    for one in examine_report(folder / REPORT):
        yield one if one.mark == "ok" else replace(one, found=AGAIN.format(complaint=one.found))
    if not names(folder / REPORT):
        yield HealthCheck("unknown", REPORT, N_("not written yet"))
    left = [name for name in os.listdir(folder) if is_left_behind(name)]
    if left:
        found = N_("{n} of an ended process; the same vitral study command removes them").format(n=len(left))
        yield HealthCheck("unknown", N_("leftovers"), found)
