"""Two workers that both believe to make a study's page, where no lock keeps one of them waiting."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.reliability.conftest import STUDY, files_of
from tests.reliability.test_study_workers import Skipping
from vitral.core.errors import UsageError
from vitral.core.guarded import GuardedFolder
from vitral.lab.study_health import examine_study
from vitral.lab.study_workers import study_progress
from vitral.reports.study import write_report
from vitral.runs import lock
from vitral.runs.leases import LeaseLost, Watcher
from vitral.studies.design import Study
from vitral.studies.execution import complete, plan_in, planned_in
from vitral.studies.work import Worker
from vitral.training import RunConfig

ONE = STUDY.model_copy(update={"probes": ("by-position",)})
TWO = ONE.model_copy(update={"seeds": (3, 5)})
MEASURE = "measures/by-position/post-seed-3.json"


def instants(quick: str, merge: str, *full: str) -> pytest.MarkDecorator:
    """Files before which the first worker sleeps while the other makes the page, in each tier."""
    later = [
        pytest.param(merge, marks=pytest.mark.merge),
        *(pytest.param(name, marks=pytest.mark.full) for name in full),
    ]
    return pytest.mark.parametrize("instant", [quick, *later] if quick else later)


def worker_of(out: Path) -> Worker:
    """A worker to whom everybody else is silent for too long."""
    clock = Skipping()
    return Worker(planned_in(out), lambda event: None, watcher=Watcher(clock=clock), wait=lambda seconds: clock.skip())


def finish(out: Path) -> None:
    complete(worker_of(out), write_report, waits=True)


def planned(study: Study, config: RunConfig, out: Path) -> None:
    plan_in(study, config, out, budget="quick", seeds=study.seeds)


@pytest.fixture(scope="module")
def trained(short: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of two seeds, without a page."""
    out = tmp_path_factory.mktemp("trained") / "study"
    planned(TWO, short, out)
    worker_of(out).train()
    return out


@pytest.fixture(scope="module")
def straight(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, with the page of one worker."""
    out = Path(shutil.copytree(trained, tmp_path_factory.mktemp("straight") / "study"))
    finish(out)
    return out


@pytest.fixture(autouse=True)
def _no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks."""

    def refuse(*given: object) -> None:
        raise OSError

    monkeypatch.setattr(lock, "_taken", refuse)


def sleeping_before(name: str, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> None:
    """Let something else happen before a file of this name is written for the first time."""
    write, slept = GuardedFolder.write, list[str]()

    def sleepy(self: GuardedFolder, file: str, content: bytes) -> None:
        if file.endswith(name) and not slept:
            slept.append(file)
            meanwhile()
        write(self, file, content)

    monkeypatch.setattr(GuardedFolder, "write", sleepy)


def written(out: Path) -> dict[str, bytes]:
    """Measurements and report."""
    return {name: raw for name, raw in files_of(out).items() if name.startswith(("measures/", "report/"))}


@instants("", "study.html", MEASURE, "MANIFEST.json", "study.csv", "study.md")
def test_the_page_of_two_is_that_of_one(
    instant: str, trained: Path, straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Path(shutil.copytree(trained, tmp_path / "study"))
    sleeping_before(instant, monkeypatch, lambda: finish(out))
    with suppress(LeaseLost):  # before the page is written, the loss of the lease is noticed
        finish(out)
    assert len(written(out)) > 9
    assert written(out) == written(straight)
    assert examine_study(out).healthy
    assert study_progress(out).is_finished


@instants("", "study.html", "MANIFEST.json", MEASURE)
def test_a_page_of_fewer_seeds_is_not_taken_for_the_new_one(
    instant: str,
    short: RunConfig,
    trained: Path,
    straight: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The study is planned again, and its page made, while a worker sleeps over the page of the former plan."""
    out = tmp_path / "study"
    planned(ONE, short, out)
    shutil.copytree(trained / "arms", out / "arms", ignore=shutil.ignore_patterns("seed-5"))

    def more() -> None:
        shutil.copytree(trained / "arms", out / "arms", dirs_exist_ok=True)
        planned(TWO, short, out)
        finish(out)

    sleeping_before(instant, monkeypatch, more)
    with pytest.raises((UsageError, LeaseLost)):
        finish(out)
    finish(out)
    assert written(out).keys() == written(straight).keys()
    assert (out / "report" / "study.csv").read_bytes() == (straight / "report" / "study.csv").read_bytes()
    assert study_progress(out).is_finished
    assert examine_study(out).healthy
