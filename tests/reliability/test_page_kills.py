"""Killed while a page, a study or a demonstration is made: whole files, and the same command ends with the same."""

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.lab.test_demonstration import SMALL
from tests.reliability.children import ON_LINUX, deaths, ended, forked, killed_until_it_ends
from tests.reliability.conftest import Tally, files_of, make_study, study_numbers, trials
from vitral.core.errors import UsageError
from vitral.lab import survey
from vitral.lab.demonstration import plan_demonstration
from vitral.lab.examples import write_new
from vitral.lab.study_health import examine_study
from vitral.reports.folder import check_report
from vitral.reports.run import write_run_report
from vitral.runs import RunFolder
from vitral.training import RunConfig

pytestmark = ON_LINUX

Making = Callable[[Path], object]


def of_a_text(name: str, tmp_path: Path) -> Making:
    """Writes the report on a text that is like its name."""
    text = tmp_path / f"{name}.txt"
    text.write_text("".join(f"{name} {n * n % 97}, and then?\n" for n in range(700)), encoding="utf-8")
    return survey(str(text), split="tail").write


@trials(53, 13, 1)
@pytest.mark.parametrize("what", ["the report on a text", "a page", "the report of a run"])
def test_a_page_is_old_or_new(what: str, trials: int, straight: RunFolder, tmp_path: Path, tally: Tally) -> None:
    """Dying at every so-manyth call, each file is whole; afterwards the same call makes everything new."""
    page = "<p>" + "many words " * 10_000 + "</p>\n"
    fresh, work = {
        "the report on a text": lambda: (of_a_text("old", tmp_path), of_a_text("new", tmp_path)),
        "a page": lambda: (Path.mkdir, lambda folder: write_new(folder / "page.html", page)),
        "the report of a run": lambda: (partial(shutil.copytree, straight.path), write_run_report),
    }[what]()
    path, states = tmp_path / "dying", list[dict[str, bytes]]()
    for make in (fresh, work):
        make(path)
        states.append(files_of(path))
    shutil.rmtree(path)
    old, new = states
    count = 0
    for path, died in deaths(fresh, work, tmp_path, 1 if what == "a page" else trials):
        left = files_of(path)
        assert set(old) <= set(left)
        for name, content in left.items():
            assert name.endswith(".tmp") or content in (old.get(name), new[name]), name
        if died:
            with suppress(UsageError):  # a file that is never overwritten may be there already
                work(path)
        assert files_of(path) == new
        count += died
    tally("deaths at a call while a page was written", count)


def demonstrate(config: RunConfig, out: Path) -> None:
    """The same command, whatever there is."""
    planned = plan_demonstration(out, SMALL)
    planned.write(planned.finish(planned.train(lambda event: None)))


@pytest.mark.parametrize(
    ("what", "trials"),
    [
        pytest.param("study", 100, marks=pytest.mark.full),
        pytest.param("demonstration", 50, marks=pytest.mark.full),
    ],
)
def test_killed_at_random_instants(
    what: str, trials: int, config: RunConfig, draw: random.Random, tmp_path: Path, tally: Tally
) -> None:
    make, longest = {"study": (make_study, 0.35), "demonstration": (demonstrate, 2.5)}[what]
    assert ended(forked(lambda: make(config, tmp_path / "straight"))) == 0
    straight, kills, out = study_numbers(tmp_path / "straight"), 0, tmp_path / "out"
    assert sum("seed" in name for name in straight) >= 4
    while kills < trials:
        kills += killed_until_it_ends(lambda: make(config, out), draw, longest, 1.3)
        assert study_numbers(out) == straight
        assert examine_study(out).healthy if what == "study" else check_report(out) == []
        assert [str(path) for path in out.rglob("*.tmp")] == []
        shutil.rmtree(out)
    tally(f"kills of a {what}", kills)
