"""A study that is killed, whenever, and begun again has the numbers and the figures of one that was not."""

import csv
import os
import random
import signal
from pathlib import Path

import pytest

from tests.reliability.conftest import Tally, measured, scaled
from tests.reliability.test_kills import ended_within, forked
from vitral.lab.study_health import examine_study
from vitral.reports.study import write_report
from vitral.runs import RunFolder
from vitral.studies import Study, run_study
from vitral.training import RunConfig

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux's process descriptors")

KILLS = scaled(6, 300)
LONGEST = 0.35
"""Seconds after which a session is killed at the latest; a whole study takes several times as long."""
STUDY = Study.parse(
    {
        "name": "norms",
        "title": "Norms",
        "question": "Does the norm's place matter?",
        "arms": [
            {"name": "pre", "title": "before"},
            {"name": "post", "title": "after", "changes": {"model": {"norm": "post"}}},
        ],
        "seeds": [3, 5],
        "probes": ["gradients", "by-position"],
    }
)


def work(config: RunConfig, out: Path) -> None:
    """The same command, whatever there is."""
    write_report(run_study(STUDY, config, out, budget="quick"))


def numbers(out: Path) -> dict[str, object]:
    """Everything a study measured, apart from times."""
    found: dict[str, object] = {
        str(path.relative_to(out)): path.read_bytes()
        for pattern in ("measures/**/*.json", "report/figures/*")
        for path in sorted(out.glob(pattern))
    }
    for run in sorted(out.glob("arms/*/seed-*")):
        found[str(run.relative_to(out))] = measured(RunFolder.open(run))
    table = (out / "report" / "study.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(table.splitlines()))
    found["table"] = [{key: value for key, value in row.items() if key != "seconds"} for row in rows]
    return found


def test_killed_at_random_instants(config: RunConfig, tmp_path: Path, tally: Tally) -> None:
    work(config, tmp_path / "straight")
    straight = numbers(tmp_path / "straight")
    # Two probes of two arms and two seeds, and the base of both seeds beside the n-grams.
    assert sum("measures" in name for name in straight) == 10
    assert sum("figures" in name for name in straight) >= 8
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    draw, kills, studies = random.Random(seed), 0, 0
    while kills < KILLS:
        out, studies, longest = tmp_path / f"study-{studies}", studies + 1, LONGEST
        while True:
            child = forked(lambda out=out: work(config, out))
            if not ended_within(child, draw.uniform(0.01, longest)):
                os.kill(child, signal.SIGKILL)
                kills, longest = kills + 1, longest * 1.1
            _, status = os.waitpid(child, 0)
            if os.WIFEXITED(status):
                assert os.WEXITSTATUS(status) == 0, f"seed {seed}, study {studies}, after {kills} kills"
                break
        assert numbers(out) == straight, f"seed {seed}, study {studies}"
        assert [str(path) for path in out.rglob("*.tmp")] == []
        assert examine_study(out).healthy
    tally("kills of a study", kills)
