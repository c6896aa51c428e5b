"""Links, hard links, pipes, devices inside a study: refused in one line, or the same result; nothing else changes."""

import os
import random
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.reliability.conftest import Tally, measured, scaled
from tests.reliability.test_kills import ended_within, forked
from vitral.core.errors import VitralError
from vitral.lab.study_health import examine_study
from vitral.reports.study import write_report
from vitral.runs import RunFolder
from vitral.studies import Study, run_study
from vitral.training import RunConfig

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux's process descriptors")

CASES = scaled(6, 1000)
LONGEST = 120
"""Seconds; a command that takes longer hangs."""
STUDY = Study.parse(
    {
        "name": "norms",
        "title": "Norms",
        "question": "Does the norm's place matter?",
        "arms": [
            {"name": "pre", "title": "before"},
            {"name": "post", "title": "after", "changes": {"model": {"norm": "post"}}},
        ],
        "seeds": [3],
        "probes": ["gradients"],
    }
)
FILES = (
    "study.json",
    "measures/gradients/pre-seed-3.json",
    "report/study.html",
    "report/study.md",
    "report/study.csv",
    "report/MANIFEST.json",
    "report/figures/differences.svg",
    "report/figures/differences.png",
    "report/figures/differences.pdf",
)
OF_RUNS = (".lock", "arms/pre/seed-3/config.toml", "arms/pre/seed-3/metrics.jsonl", "arms/pre/seed-3/tokenizer.json")
FOLDERS = (
    "arms",
    "arms/pre",
    "arms/pre/seed-3",
    "measures",
    "measures/gradients",
    "report",
    "report/figures",
    "arms/pre/seed-3/steps",
)
KINDS = ("link", "link to another", "link to nothing", "hard link", "pipe", "device")


def work(config: RunConfig, out: Path) -> None:
    """The same command, whatever there is."""
    write_report(run_study(STUDY, config, out, budget="quick"))


def contents(folder: Path) -> dict[str, object]:
    """Every name below a folder with what it is: the target of a link, the bytes of a file."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            found[str(path)] = os.readlink(path)
        else:
            found[str(path)] = path.read_bytes() if stat.S_ISREG(mode) else stat.S_IFMT(mode)
    return found


def numbers(out: Path) -> dict[str, object]:
    """Everything the study measured and drew, apart from times."""
    found: dict[str, object] = {
        str(path.relative_to(out)): path.read_bytes()
        for pattern in ("measures/**/*.json", "report/figures/*")
        for path in out.glob(pattern)
    }
    for run in sorted(out.glob("arms/*/seed-*")):
        found[str(run.relative_to(out))] = measured(RunFolder.open(run))
    return found


@pytest.fixture(scope="module")
def whole(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study as it should be."""
    out = tmp_path_factory.mktemp("study") / "out"
    work(config, out)
    return out


def replace(out: Path, place: str, kind: str, outside: Path) -> None:
    """Put something else in a place; what was there is moved to the watched folder where the new thing leads to it."""
    path, moved = out / place, outside / "moved"
    shutil.move(path, moved)
    if kind == "link":
        path.symlink_to(moved)
    elif kind == "link to another":
        path.symlink_to(outside / ("precious" if moved.is_dir() else "precious/file"))
    elif kind == "link to nothing":
        path.symlink_to(outside / "new")
    elif kind == "hard link":
        os.link(moved, path)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")


def outcome(act: Callable[[], object], told: Path) -> str:
    """Do it in a child: "done", "refused", or what went wrong."""

    def child() -> None:
        try:
            act()
            told.write_text("done", encoding="utf-8")
        except VitralError as error:
            told.write_text("refused" if "\n" not in str(error) else f"not one line: {error}", encoding="utf-8")
        except BaseException as error:
            told.write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
            raise

    number = forked(child)
    if not ended_within(number, LONGEST):
        os.kill(number, 9)
        os.waitpid(number, 0)
        return "it hangs"
    os.waitpid(number, 0)
    return told.read_text(encoding="utf-8") if told.exists() else "it died"


def cases() -> list[tuple[str, str]]:
    """Places and what stands there, in random order; the quick tier takes the first."""
    every = [(place, kind) for place in FILES + OF_RUNS for kind in KINDS]
    every += [(place, kind) for place in FOLDERS for kind in KINDS if kind != "hard link"]
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}", file=sys.stderr)
    random.Random(seed).shuffle(every)
    return every[:CASES]


def test_a_study_follows_no_link(config: RunConfig, whole: Path, tmp_path: Path, tally: Tally) -> None:
    straight, count = numbers(whole), 0
    for place, kind in cases():
        out, outside = tmp_path / "out", tmp_path / "outside"
        shutil.copytree(whole, out)
        (outside / "precious").mkdir(parents=True)
        for name in ("file", "study.html", "config.toml", ".study.json.1.tmp", ".study.html.1.tmp"):
            (outside / "precious" / name).write_bytes(b"precious")
        replace(out, place, kind, outside)
        before, here = contents(outside), contents(out)
        examined = outcome(lambda out=out: print(examine_study(out).plain()), tmp_path / "examined")
        assert examined == "done", (place, kind, examined)
        assert contents(out) == here, (place, kind)
        found = outcome(lambda out=out: work(config, out), tmp_path / "told")
        assert contents(outside) == before, (place, kind)
        if kind == "hard link":
            assert found == "done", (place, found)
        assert found in ("done", "refused"), (place, kind, found)
        if found == "done":
            assert numbers(out) == straight, (place, kind)
        for folder in (out, outside):
            shutil.rmtree(folder)
        (tmp_path / "examined").unlink()
        (tmp_path / "told").unlink()
        count += 1
    tally("links, hard links, pipes and devices in a study", count)


def test_a_snapshot_of_hard_links_keeps_its_content(config: RunConfig, whole: Path, tmp_path: Path) -> None:
    out, snapshot = Path(shutil.copytree(whole, tmp_path / "out")), tmp_path / "snapshot"
    shutil.copytree(out, snapshot, copy_function=os.link)
    before = contents(snapshot)
    write_report(run_study(STUDY, config, out, seeds=[3, 4], budget="quick"), command="another command")
    assert contents(snapshot) == before
    assert (out / "report" / "study.html").read_bytes() != (snapshot / "report" / "study.html").read_bytes()


def test_a_study_examined_tells_what_was_changed(whole: Path, tmp_path: Path) -> None:
    assert examine_study(whole).healthy
    for place in FILES:
        out = tmp_path / "out"
        shutil.copytree(whole, out)
        raw = bytearray((out / place).read_bytes())
        raw[len(raw) // 2] ^= 1
        (out / place).write_bytes(raw)
        diagnosis = examine_study(out)
        assert not diagnosis.healthy, place
        assert any(Path(place).stem in one.what + one.found for one in diagnosis.findings if one.mark == "wrong"), place
        assert not any("\n" in one.found for one in diagnosis.findings)
        shutil.rmtree(out)
