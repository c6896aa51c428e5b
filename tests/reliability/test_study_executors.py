"""A study by every executor, killed again and again, gives what one process gives that nobody disturbs."""

import contextlib
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from tests.reliability.children import ON_LINUX, killed_until_it_ends
from tests.reliability.conftest import STUDY, Tally, changed, study_numbers, trials
from vitral.doctor.folders import examine_study
from vitral.report.study import write_report
from vitral.studies import executors, run_study
from vitral.training import RunConfig

pytestmark = ON_LINUX

MANY = STUDY.model_copy(update={"seeds": (3, 4), "probes": ()})
"""Four runs."""


@pytest.fixture(scope="module")
def slow(config: RunConfig) -> RunConfig:
    """Long enough to be killed in the middle."""
    return changed(
        config, steps=300, evaluate_every=100, checkpoint_every=20, accumulation=1, sample_every=None, threads=1
    )


@pytest.fixture(scope="module")
def straight(slow: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The numbers of one process."""
    out = tmp_path_factory.mktemp("straight") / "study"
    ended(slow, None, out)
    return study_numbers(out)


def ended(config: RunConfig, executor: Any, out: Path) -> None:
    """The study to its end."""
    write_report(run_study(MANY, config, out, budget="quick", executor=executor))


def training(out: Path) -> Iterator[int]:
    """The processes that train a run now and have saved a checkpoint of it."""
    for lock in out.glob("arms/*/.seed-*/.lock"):
        with contextlib.suppress(OSError, ValueError):
            process = json.loads(lock.read_text())["pid"]
            if process != os.getpid() and [*lock.parent.glob("steps/step-*")]:
                yield process


@contextmanager
def shot_at(out: Path, kills: int) -> Iterator[list[int]]:
    """So many processes that train are killed in the block; the list has them."""
    killed, over = list[int](), threading.Event()

    def shoot() -> None:
        while len(killed) < kills and not over.wait(0.02):
            for process in training(out):
                if process not in killed and len(killed) < kills:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
                        killed.append(process)

    thread = threading.Thread(target=shoot)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def require_same(out: Path, straight: dict[str, object]) -> None:
    assert study_numbers(out) == straight
    assert not [*out.glob("arms/*/.*")]
    assert examine_study(out).healthy


def require_kills(
    trials: int, most: int, tmp_path: Path, straight: dict[str, object], study: Callable[[Path], object]
) -> None:
    """Processes that train are killed so often, at most `most` of a study; each study ends with the same numbers."""
    while trials > 0:
        out = tmp_path / f"study-{trials}"
        with shot_at(out, min(trials, most)) as killed:
            study(out)
        assert killed
        trials -= len(killed)
        require_same(out, straight)


@trials(0, 0, 40)
def test_killed_in_one_process_a_study_goes_on(
    trials: int, slow: RunConfig, straight: dict[str, object], draw: random.Random, tmp_path: Path, tally: Tally
) -> None:
    kills = studies = 0
    while kills < trials:
        out = tmp_path / f"study-{studies}"
        studies += 1
        kills += killed_until_it_ends(partial(ended, slow, None, out), draw, 3.0)
        require_same(out, straight)
    tally("kills of a study in one process", kills)


@trials(0, 1, 40)
def test_killed_workers_of_a_pool_are_replaced(
    trials: int,
    slow: RunConfig,
    straight: dict[str, object],
    tmp_path: Path,
    tally: Tally,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executors, "cores", lambda: 2)
    require_kills(trials, executors.MOST_TRIES - 1, tmp_path, straight, partial(ended, slow, 2))
    tally("kills of workers of a pool", trials)


@pytest.mark.merge
def test_workers_end_with_the_process_that_began_them(slow: RunConfig, tmp_path: Path) -> None:
    """And the same call goes on."""
    script = tmp_path / "script.py"
    script.write_text(
        "import json, sys\nfrom pathlib import Path\n"
        "from vitral.studies import Study, executors, run_study\nfrom vitral.training import RunConfig\n"
        "executors.cores = lambda: 2\n"
        "if __name__ == '__main__':\n"
        "    study, config = json.loads(Path(sys.argv[1]).read_text())\n"
        "    run_study(Study.parse(study), RunConfig.parse(config), Path(sys.argv[2]), budget='quick', executor=2)\n"
    )
    (tmp_path / "asked.json").write_text(json.dumps([MANY.plain(), changed(slow, steps=20_000).plain()]))
    out = tmp_path / "study"
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        with subprocess.Popen([sys.executable, script, tmp_path / "asked.json", out]) as parent:
            while len(workers := {*training(out)}) < 2:
                assert parent.poll() is None
                time.sleep(0.05)
            parent.send_signal(number)
            parent.wait()
        deadline = time.monotonic() + 20
        while any(Path(f"/proc/{worker}").exists() for worker in workers):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert not [*out.glob("arms/*/seed-*")]
    assert len([*out.glob("arms/*/.seed-*")]) == 2


@pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="needs dask's distributed")
@trials(0, 1, 40)
@pytest.mark.filterwarnings("ignore")
def test_killed_workers_of_dask_are_replaced(
    trials: int, slow: RunConfig, straight: dict[str, object], tmp_path: Path, tally: Tally
) -> None:
    from dask import config as dask_config
    from distributed import LocalCluster

    cluster_of = cast(Any, LocalCluster)
    # A worker that starts again imports PyTorch, which takes longer than the usual 15 s on a busy machine.
    settings: dict[str, Any] = {
        "distributed.deploy.lost-worker-timeout": "10 minutes",
        "distributed.scheduler.allowed-failures": 9,
    }

    def study(out: Path) -> None:
        with cluster_of(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
            ended(slow, f"dask:{cluster.scheduler_address}", out)

    with dask_config.set(settings):
        require_kills(trials, 2, tmp_path, straight, study)
    tally("kills of workers of dask", trials)


@pytest.mark.skipif(importlib.util.find_spec("submitit") is None, reason="needs submitit")
@trials(0, 0, 40)
@pytest.mark.filterwarnings("ignore")
def test_killed_jobs_of_submitit_are_submitted_again(
    trials: int, slow: RunConfig, straight: dict[str, object], tmp_path: Path, tally: Tally
) -> None:
    local = partial(ended, slow, "slurm:cluster=local")
    require_kills(trials, executors.MOST_TRIES - 1, tmp_path, straight, local)
    tally("kills of jobs of submitit", trials)
