"""The health of a study: its record, its runs, its measurements and its report. Nothing is written."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from vitral.core.errors import VitralError
from vitral.core.files import is_left_behind, names
from vitral.core.language import N_
from vitral.doctor import Diagnosis, HealthCheck, check, collected, examine_report, finding, ok, unknown, wrong
from vitral.doctor.run import checks_of
from vitral.runs import RunConfig, enter
from vitral.studies.design import Study
from vitral.studies.jobs import jobs_of
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
        findings += collected(N_("folder"), examine(path, record))
    return Diagnosis(tuple(findings))


def _runs(folder: Path, record: Found) -> Iterator[HealthCheck]:
    kinds = [(kind, arm) for kind in (ARMS, TUNING) for arm in names(folder / kind)]
    there = [f"{kind}/{arm}/{run}" for kind, arm in kinds for run in names(folder / kind / arm) if run[0] != "."]
    for number, name in enumerate(there):
        names(folder / name)  # refuses a link
        found = [*collected(N_("run"), checks_of(folder / name, replay=number == 0))]
        bad = [one for one in found if one.mark == "wrong" or one.what == "recomputed step"]
        for one in bad:
            yield finding(one.mark, name, N_("{what}: {found}"), what=one.what, found=one.found)
        if not any(one.mark == "wrong" for one in bad):
            yield ok(name, "{n} checks, nothing wrong", n=len(found))
    missing = sorted(_designed(record) - set(there))
    if missing:
        yield unknown(
            "runs",
            "{n} not begun, the first {run}; the same vitral study command trains them",
            n=len(missing),
            run=missing[0],
        )


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
    arms = resolve(study, RunConfig.parse(record["base"], RECORD), sizes.pop())
    free = {arm.name: study.tuned(arm) for arm in study.arms}
    for job in jobs_of(folder, arms, record["seeds"]):
        if (run := runs.get(job.name)) is not None:
            require_config(run, job.run_config, free[job.arm])
            require_parent(run, job.parent)
    yield ok(ARMS, "{n} runs are those of {file}", n=len(runs), file=RECORD)


def _files(folder: Path, record: Found) -> Iterator[HealthCheck]:
    """The measurements, the report, and what an ended process has left."""
    intact, complaints = check_measures(folder)
    yield from (wrong(MEASURES, AGAIN, complaint=complaint) for complaint in complaints)
    if intact:
        yield ok(MEASURES, "{n} agree with their hashes", n=intact)
    for one in examine_report(folder / REPORT):
        yield one if one.mark == "ok" else finding(one.mark, one.what, AGAIN, complaint=one.found)
    if not names(folder / REPORT):
        yield unknown(REPORT, "not written yet")
    left = [name for name in os.listdir(folder) if is_left_behind(name)]
    if left:
        yield unknown("leftovers", "{n} of an ended process; the same vitral study command removes them", n=len(left))
