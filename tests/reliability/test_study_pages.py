"""Two workers that both believe to make a study's page, where no lock keeps one of them waiting."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.reliability.conftest import scaled
from tests.reliability.test_study_kills import STUDY
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

ONE = STUDY.model_copy(update={"seeds": (3,), "probes": ("by-position",)})
TWO = ONE.model_copy(update={"seeds": (3, 5)})
INSTANTS = ["study.html", "measures/by-position/post-seed-3.json", "MANIFEST.json", "study.csv", "study.md"]
"""Files before which the first worker sleeps while the other makes the page."""


def worker_of(out: Path) -> Worker:
    """A worker to whom everybody else is silent for too long."""
    clock = Skipping()
    return Worker(planned_in(out), lambda event: None, watcher=Watcher(clock=clock), wait=lambda seconds: clock.skip())


def finish(out: Path) -> None:
    complete(worker_of(out), write_report, waits=True)


def planned(study: Study, config: RunConfig, out: Path) -> None:
    plan_in(study, config, out, budget="quick", seeds=study.seeds)


@pytest.fixture(scope="module")
def short(config: RunConfig) -> RunConfig:
    """Four steps."""
    training = {**config.training.plain(), "steps": 4, "evaluate_every": 2, "accumulation": 1, "sample_every": None}
    return RunConfig.parse({**config.plain(), "training": training})


@pytest.fixture(scope="module")
def trained(short: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of two seeds, without a page."""
    out = tmp_path_factory.mktemp("trained") / "study"
    planned(TWO, short, out)
    worker_of(out).train()
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
    files = [path for inside in ("measures", "report") for path in (out / inside).rglob("*") if path.is_file()]
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


@pytest.mark.parametrize("instant", INSTANTS[: scaled(2, 5)])
def test_the_page_of_two_is_that_of_one(
    instant: str, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight, out = (shutil.copytree(trained, tmp_path / name) for name in ("straight", "study"))
    finish(straight)
    sleeping_before(instant, monkeypatch, lambda: finish(out))
    with suppress(LeaseLost):  # before the page is written, the loss of the lease is noticed
        finish(out)
    assert len(written(out)) > 9
    assert written(out) == written(straight)
    assert examine_study(out).healthy
    assert study_progress(out).is_finished


@pytest.mark.parametrize("instant", INSTANTS[: scaled(1, 3)])
def test_a_page_of_fewer_seeds_is_not_taken_for_the_new_one(
    instant: str, short: RunConfig, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The study is planned again, and its page made, while a worker sleeps over the page of the former plan."""
    straight, out = tmp_path / "straight", tmp_path / "study"
    shutil.copytree(trained, straight)
    finish(straight)
    planned(ONE, short, out)
    shutil.copytree(trained / "arms", out / "arms", ignore=shutil.ignore_patterns("seed-5"))

    def more() -> None:
        shutil.copytree(trained / "arms", out / "arms", dirs_exist_ok=True)
        planned(TWO, short, out)
        finish(out)
        assert study_progress(out).is_finished

    sleeping_before(instant, monkeypatch, more)
    with pytest.raises((UsageError, LeaseLost)):
        finish(out)
    finish(out)
    assert written(out).keys() == written(straight).keys()
    assert (out / "report" / "study.csv").read_bytes() == (straight / "report" / "study.csv").read_bytes()
    assert study_progress(out).is_finished
    assert examine_study(out).healthy
