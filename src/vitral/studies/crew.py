"""Who does what in a planned study, as plain data read from its folder. Nothing is loaded that computes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.core.files import sha256
from vitral.core.guarded import GuardedFolder
from vitral.core.language import N_
from vitral.runs.leases import DONE, RELEASED, Room
from vitral.studies.plan import PAGE, planned_jobs, read_plan
from vitral.studies.record import JOBS, MOST_RECORD, RECORD
from vitral.studies.work import MOST_TRIES

WAITING, READY, WORKING, STOPPED, FINISHED, FAILED = (
    N_("waiting"),
    N_("ready"),
    N_("working"),
    N_("stopped"),
    N_("finished"),
    N_("failed"),
)
"""A job: needs others; may be claimed; is claimed; its worker has ended; has a run; crashed too often."""


@dataclass(frozen=True)
class JobState:
    """One job and who is at it.

    Attributes:
        job: its name, the run folder relative to the study's; "page" for measurements and the page.
        arm: of the run; empty for the page.
        seed: of the run; None for the page.
        state: one of six words.
        step: the last one that its worker told.
        steps: of the run; None for the page.
        worker: who claimed it last, as host and process; None if nobody did.
        claims: how often it was claimed.
        reason: of its last crash; None if it did not crash.
    """

    job: str
    arm: str
    seed: int | None
    state: str
    step: int | None
    steps: int | None
    worker: str | None
    claims: int
    reason: str | None


def read_crew(folder: Path) -> tuple[Mapping[str, Any], list[JobState]]:
    """The plan in a study's folder, and the state of each job, the page last.

    Raises:
        UsageError: there is no plan, or a file of it was changed.
    """
    plan, jobs, files = read_plan(folder), planned_jobs(folder), GuardedFolder(folder)
    finished = {job["job"] for job in jobs if files.kind(f"{job['job']}/config.toml") is not None}
    states = [_state(files, job, finished) for job in jobs]
    return plan, [*states, _page(files, states)]


def _state(files: GuardedFolder, job: Mapping[str, Any], finished: set[str]) -> JobState:
    room = Room(files.within(f"{JOBS}/{job['job']}"))
    newest, failures = room.newest(), room.failures()
    told = {} if newest is None else room.told(newest.publishes or newest.number)
    step = told.get("step")
    if job["job"] in finished:
        state, step = FINISHED, None
    elif len(failures) >= MOST_TRIES:
        state = FAILED
    else:
        state = _of_claim(room, needs_others=not finished.issuperset(job["needs"]))
    return JobState(
        job["job"],
        job["arm"],
        job["seed"],
        state,
        step if isinstance(step, int) else None,
        job["steps"],
        _worker(room),
        len([number for number in room.numbers("claim") if room.claim(number).publishes is None]),
        failures[-1] if failures else None,
    )


def _page(files: GuardedFolder, states: Sequence[JobState]) -> JobState:
    room = Room(files.within(PAGE))
    newest = room.newest()
    end = None if newest is None else room.end(newest.number)
    is_made = end is not None and end.get("state") == DONE and end.get("reason") == _record(files)
    left = any(one.state != FINISHED for one in states)
    state = FINISHED if is_made else _of_claim(room, needs_others=left)
    return JobState("page", "", None, state, None, None, _worker(room), len(room.numbers("claim")), None)


def _record(files: GuardedFolder) -> str:
    return sha256(files.read(RECORD, MOST_RECORD))


def _of_claim(room: Room, *, needs_others: bool) -> str:
    """The state of a job that is not finished."""
    newest = room.newest()
    if newest is None:
        return WAITING if needs_others else READY
    end = room.end(newest.number)
    if end is None and (newest.owner is None or not newest.owner.has_ended()):
        return WORKING
    return READY if end is not None and end.get("state") not in (RELEASED, DONE) else STOPPED


def _worker(room: Room) -> str | None:
    newest = room.newest()
    return None if newest is None or newest.owner is None else f"{newest.owner.host} {newest.owner.process}"
