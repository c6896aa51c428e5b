"""Several workers of one study: killed again and again, or asleep past their leases, they give what one gives."""

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.reliability.children import ON_LINUX, ended, forked
from tests.reliability.conftest import STUDY, Tally, study_numbers, trials
from vitral.core.files import temporary_name
from vitral.lab.study_health import examine_study
from vitral.reports.study import write_report
from vitral.runs.leases import Lease, Watcher
from vitral.studies import run_study, work
from vitral.studies.execution import complete, plan_in, planned_in
from vitral.studies.work import JobFailed, Worker
from vitral.training import RunConfig

pytestmark = ON_LINUX

MANY = STUDY.model_copy(update={"seeds": tuple(range(1, 7)), "probes": ()})
"""Twelve runs."""
FEW = STUDY.model_copy(update={"probes": ()})


class Diary:
    """A reporter that writes what is trained into a file, and dies, or falls asleep, at an event."""

    def __init__(self, path: Path, at: int = 0, number: int = signal.SIGKILL) -> None:
        """Send this process a signal at the event of this number, counted from 1."""
        self.path, self.at, self.number, self.seen = path, at, number, 0

    def __call__(self, event) -> None:
        """Note the event."""
        self.seen += 1
        if self.seen == self.at:
            os.kill(os.getpid(), self.number)
        if event["event"] in ("end", "note", "run"):
            with self.path.open("a") as file:
                file.write(json.dumps({**event, "by": os.getpid()}) + "\n")

    def ends(self) -> Counter[tuple[str, int]]:
        """How often each run was trained to its end."""
        events = [json.loads(line) for line in self.path.read_text().splitlines()]
        return Counter((event["arm"], event["seed"]) for event in events if event.get("finished"))


def work_on(out: Path, diary: Diary, clock: "Skipping | None" = None) -> None:
    """What `vitral study work` does in one process; a worker with a clock of its own does not wait."""
    worker = Worker(planned_in(out), diary)
    if clock is not None:
        worker.watcher, worker.wait = Watcher(clock=clock), lambda seconds: clock.skip()
    complete(worker, write_report, waits=False)


@trials(0, 2, 200)
def test_killed_again_and_again_two_workers_are_one(
    trials: int, short: RunConfig, draw: random.Random, tmp_path: Path, tally: Tally
) -> None:
    write_report(run_study(MANY, short, tmp_path / "straight", budget="quick"))
    kills = studies = 0
    while kills < trials:
        out, diary = tmp_path / f"study-{studies}", tmp_path / f"diary-{studies}"
        studies += 1
        plan_in(MANY, short, out, budget="quick")
        straight = forked(lambda out=out, diary=diary: work_on(out, Diary(diary)))
        code = -signal.SIGKILL
        while code == -signal.SIGKILL:
            at = draw.randrange(1, 30)
            code = ended(forked(lambda out=out, diary=diary, at=at: work_on(out, Diary(diary, at))))
            kills += code == -signal.SIGKILL
        assert (code, ended(straight)) == (0, 0)
        work_on(out, Diary(diary))  # the page, if the killed worker had it
        assert study_numbers(out) == study_numbers(tmp_path / "straight")
        ends = Diary(diary).ends()
        assert (len(ends), set(ends.values())) == (12, {1})
        assert [str(path) for path in out.rglob("*.tmp")] == []
        assert not list(out.glob("jobs/*/*/*/run-*"))
        assert examine_study(out).healthy
    tally("kills of a worker of a study", kills)


def test_what_a_killed_claim_of_the_page_left_is_removed(short: RunConfig, tmp_path: Path) -> None:
    out = tmp_path / "study"
    run_study(FEW, short, out, budget="quick")
    room = out / "jobs" / "page"
    child = forked(lambda: (room / temporary_name("claim-000009.json")).write_bytes(b"{"))
    assert ended(child) == 0
    assert len(list(room.glob(".*.tmp"))) == 1
    run_study(FEW, short, out, budget="quick")
    assert list(out.rglob("*.tmp")) == []


class Skipping:
    """A clock of a watcher that waits without waiting."""

    def __init__(self) -> None:
        """Begin at any time."""
        self.now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now

    def skip(self) -> None:
        """More than the silence of a lease that is lost."""
        self.now += 1000


Sleep = Callable[[Path, Path], None]


def asleep_before(owner: Any, name: str) -> Sleep:
    """A worker that falls asleep before a call."""

    def sleep(out: Path, diary: Path) -> None:
        call = getattr(owner, name)

        def sleepy(*given: Any) -> Any:
            os.kill(os.getpid(), signal.SIGSTOP)
            return call(*given)

        setattr(owner, name, sleepy)
        work_on(out, Diary(diary))

    return sleep


def asleep_at(event: int) -> Sleep:
    return lambda out, diary: work_on(out, Diary(diary, event, signal.SIGSTOP))


SLEEPS = [
    pytest.param(asleep_before(work, "_placed"), id="while publishing"),
    pytest.param(asleep_before(Lease, "seal"), id="before publishing", marks=pytest.mark.merge),
    pytest.param(asleep_at(3), id="at a step", marks=pytest.mark.merge),
    *(pytest.param(asleep_at(event), id=f"at event {event}", marks=pytest.mark.full) for event in (1, 5, 8)),
]


@pytest.fixture(scope="module")
def straight(short: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The numbers of one worker."""
    out = tmp_path_factory.mktemp("straight") / "study"
    write_report(run_study(FEW, short, out, budget="quick"))
    return study_numbers(out)


@pytest.mark.parametrize("sleep", SLEEPS)
def test_who_slept_past_its_lease_publishes_nothing(
    short: RunConfig, straight: dict[str, object], tmp_path: Path, sleep: Sleep
) -> None:
    out, diaries = tmp_path / "study", (tmp_path / "sleeper", tmp_path / "other")

    def published() -> dict[Path, float]:
        files = [path for path in out.rglob("*") if path.is_file() and "jobs" not in path.parts]
        return {path: path.stat().st_mtime for path in files if path.name != ".lock"}

    plan_in(FEW, short, out, budget="quick")
    sleeper = forked(lambda: sleep(out, diaries[0]))
    try:
        assert os.WIFSTOPPED(os.waitpid(sleeper, os.WUNTRACED)[1])
        work_on(out, Diary(diaries[1]), Skipping())
        before = published()
        assert study_numbers(out) == straight
    finally:
        os.kill(sleeper, signal.SIGCONT)
    assert ended(sleeper) == 0
    assert published() == before
    assert study_numbers(out) == straight
    assert not list(out.glob("jobs/*/*/*/run-*"))
    assert set(Diary(diaries[1]).ends().values()) == {1}
    assert examine_study(out).healthy


def test_a_crash_is_tried_again_and_then_named(short: RunConfig, tmp_path: Path, monkeypatch) -> None:
    tries: list[Path] = []

    def broken(config, path, **options) -> None:
        tries.append(path)
        raise RuntimeError("no luck")

    out, whole = tmp_path / "study", work.train
    monkeypatch.setattr(work, "train", broken)
    with pytest.raises(JobFailed, match="no luck") as refused:
        run_study(FEW, short, out, budget="quick")
    assert refused.value.exit_code == 70
    assert len(tries) == 2 * work.MOST_TRIES
    with pytest.raises(JobFailed):
        complete(Worker(planned_in(out), lambda event: None), lambda result: result, waits=True)
    assert len(tries) == 2 * work.MOST_TRIES
    monkeypatch.setattr(work, "train", whole)
    result = run_study(FEW, short, out, budget="quick")
    assert result.arms == replace(result, folder=out).arms


def test_an_error_of_the_callback_is_no_crash_of_the_job(short: RunConfig, tmp_path: Path) -> None:
    def fail(event) -> None:
        if event["event"] == "step":
            raise ArithmeticError("mine")

    with pytest.raises(ArithmeticError, match="mine"):
        run_study(FEW, short, tmp_path / "study", budget="quick", callback=fail)
    assert run_study(FEW, short, tmp_path / "study", budget="quick").arms[0].losses
