"""Several workers of one study: killed again and again, or asleep past their leases, they give what one gives."""

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.reliability.conftest import Tally, scaled
from tests.reliability.test_kills import forked
from tests.reliability.test_study_kills import STUDY, numbers
from vitral.core.files import temporary_name
from vitral.lab.study_health import examine_study
from vitral.reports.study import write_report
from vitral.runs.leases import Lease, Watcher
from vitral.studies import run_study, work
from vitral.studies.execution import complete, plan_in, planned_in
from vitral.studies.work import JobFailed, Worker
from vitral.training import RunConfig

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux's process descriptors")

KILLS = scaled(3, 200)
SEEDS = tuple(range(1, 13))
MANY = STUDY.model_copy(update={"seeds": SEEDS, "probes": ()})
"""24 runs."""
FEW = STUDY.model_copy(update={"seeds": (3,), "probes": ()})


@pytest.fixture
def short(config: RunConfig) -> RunConfig:
    """Four steps, a checkpoint after each."""
    training = {**config.training.plain(), "steps": 4, "evaluate_every": 2, "accumulation": 1, "sample_every": None}
    return RunConfig.parse({**config.plain(), "training": training})


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


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_killed_again_and_again_two_workers_are_one(short: RunConfig, tmp_path: Path, tally: Tally) -> None:
    write_report(run_study(MANY, short, tmp_path / "straight", budget="quick"))
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    draw, kills, studies = random.Random(seed), 0, 0
    while kills < KILLS:
        out, diary = tmp_path / f"study-{studies}", tmp_path / f"diary-{studies}"
        studies += 1
        plan_in(MANY, short, out, budget="quick")
        straight = forked(lambda out=out, diary=diary: work_on(out, Diary(diary)))
        while True:
            child = forked(lambda out=out, diary=diary: work_on(out, Diary(diary, draw.randrange(1, 30))))
            code = ended(child)
            draw.random()  # another number for the next child
            if code != -signal.SIGKILL:
                break
            kills += 1
        assert (code, ended(straight)) == (0, 0), f"seed {seed}"
        work_on(out, Diary(diary))  # the page, if the killed worker had it
        assert numbers(out) == numbers(tmp_path / "straight"), f"seed {seed}"
        assert set(Diary(diary).ends().values()) == {1}
        assert len(Diary(diary).ends()) == 24
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


def asleep_before_sealing(out: Path, diary: Path) -> None:
    seal = Lease.seal

    def sleepy(self: Lease) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)
        seal(self)

    Lease.seal = sleepy
    work_on(out, Diary(diary))


def asleep_after_sealing(out: Path, diary: Path) -> None:
    placed = work._placed

    def sleepy(job, number) -> bool:
        os.kill(os.getpid(), signal.SIGSTOP)
        return placed(job, number)

    work._placed = sleepy
    work_on(out, Diary(diary))


def asleep_at(event: int) -> Callable[[Path, Path], None]:
    return lambda out, diary: work_on(out, Diary(diary, event, signal.SIGSTOP))


SLEEPS = {
    "at a step": asleep_at(3),
    "before publishing": asleep_before_sealing,
    "while publishing": asleep_after_sealing,
    "before training": asleep_at(1),
    "later": asleep_at(5),
    "at the end": asleep_at(8),
}


@pytest.mark.parametrize("sleep", [*SLEEPS.values()][: scaled(3, 6)], ids=[*SLEEPS][: scaled(3, 6)])
def test_who_slept_past_its_lease_publishes_nothing(
    short: RunConfig, tmp_path: Path, sleep: Callable[[Path, Path], None]
) -> None:
    write_report(run_study(FEW, short, tmp_path / "straight", budget="quick"))
    out, diaries = tmp_path / "study", (tmp_path / "sleeper", tmp_path / "other")
    plan_in(FEW, short, out, budget="quick")
    sleeper = forked(lambda: sleep(out, diaries[0]))
    try:
        assert os.WIFSTOPPED(os.waitpid(sleeper, os.WUNTRACED)[1])
        work_on(out, Diary(diaries[1]), Skipping())
        before = {path: path.stat() for path in out.rglob("*") if path.parts[-1] != ".lock"}
        assert numbers(out) == numbers(tmp_path / "straight")
    finally:
        os.kill(sleeper, signal.SIGCONT)
    assert ended(sleeper) == 0
    after = {path: path.stat() for path in out.rglob("*") if path.parts[-1] != ".lock"}
    outside = [path for path in before if "jobs" not in path.parts and path.is_file()]
    assert [
        path for path in outside if after[path] != before[path] and after[path].st_mtime != before[path].st_mtime
    ] == []
    assert numbers(out) == numbers(tmp_path / "straight")
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
    assert refused.value.exit_code == 4
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
