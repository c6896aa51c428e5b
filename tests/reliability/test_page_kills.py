"""Killed while a page or a demonstration is made: whole files, old or new, and the same command ends with the same."""

import itertools
import os
import random
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.reliability.conftest import Tally, measured, scaled
from tests.reliability.test_kills import ended_within, forked
from vitral.core.errors import UsageError
from vitral.core.guarded import GuardedFolder
from vitral.core.language import in_language
from vitral.lab import survey
from vitral.lab.demonstration import plan_demonstration
from vitral.lab.examples import write_new
from vitral.reports.folder import check_report
from vitral.reports.run import write_run_report
from vitral.runs import RunFolder

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux's process descriptors")

CALLS = ("open", "write", "fsync", "rename", "replace", "link", "mkdir", "unlink")
DEMO_KILLS = scaled(2, 50)
SMALL = (
    "model.d_model=12",
    "model.num_layers=1",
    "model.num_heads=3",
    "model.context_length=11",
    "training.steps=4",
    "training.evaluate_every=2",
    "training.sample_every=1",
    "training.sample_tokens=20",
    "training.batch_size=5",
)
DIED = 9


def dies_at(call: int, work: Callable[[], object]) -> bool:
    """Do the work in a child that dies at this call of the system, as if killed; returns whether it came so far."""

    def until_death() -> None:
        numbers = itertools.count()
        for name in CALLS:
            original = getattr(os, name)

            def wrapped(*given: object, original: Callable = original, **options: object) -> object:
                if next(numbers) == call:
                    os._exit(DIED)
                return original(*given, **options)

            setattr(os, name, wrapped)
        work()

    status = os.waitstatus_to_exitcode(os.waitpid(forked(until_death), 0)[1])
    assert status in (0, DIED)
    return status == DIED


def deaths(work: Callable[[Path], object], fresh: Callable[[Path], object], tmp_path: Path) -> int:
    """Die at every call of writing (in the quick tier at some); each file is whole, and then everything is new.

    Args:
        work: writes into a folder.
        fresh: makes that folder as it is before.
        tmp_path: for the folders.

    Returns:
        The number of deaths.
    """
    fresh(tmp_path / "new")
    work(tmp_path / "new")
    new = contents(tmp_path / "new")
    step = scaled(11, 1)
    for count, call in enumerate(itertools.count(random.SystemRandom().randrange(step), step)):
        path = tmp_path / f"at-{call}"
        fresh(path)
        old = contents(path)
        if not dies_at(call, lambda path=path: work(path)):
            assert contents(path) == new
            return count
        for name, content in contents(path).items():
            if not name.endswith(".tmp"):
                assert content in (old.get(name), new[name]), (call, name)
        assert set(old) <= set(contents(path))
        with suppress(UsageError):  # a file that is never overwritten may be there already
            work(path)
        assert contents(path) == new, call
        shutil.rmtree(path)
    raise AssertionError


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder by its path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_report_on_a_text_is_old_or_new(tmp_path: Path, tally: Tally) -> None:
    texts = [tmp_path / "old.txt", tmp_path / "new.txt"]
    for text in texts:
        text.write_text("".join(f"{text.stem} {n * n % 97}, and then?\n" for n in range(700)), encoding="utf-8")
    old, new = (survey(str(text), split="tail") for text in texts)
    count = deaths(new.write, old.write, tmp_path)
    tally("deaths at a call while a page was written", count)


def test_a_page_of_explain_or_inspect_is_whole_or_not_there(tmp_path: Path, tally: Tally) -> None:
    text = "<p>" + "many words " * 10_000 + "</p>\n"
    work: Callable[[Path], object] = lambda folder: write_new(folder / "page.html", text)  # noqa: E731
    count = deaths(work, Path.mkdir, tmp_path)
    tally("deaths at a call while a page was written", count)


def test_the_report_of_a_run_is_finished_by_the_same_call(straight: RunFolder, tmp_path: Path, tally: Tally) -> None:
    made = Path(shutil.copytree(straight.path, tmp_path / "run"))
    write_run_report(made)
    whole = contents(made / "report")
    count, step = 0, scaled(17, 1)
    for call in itertools.count(random.SystemRandom().randrange(step), step):
        shutil.rmtree(made)
        shutil.copytree(straight.path, made)
        died = dies_at(call, lambda: write_run_report(made))
        left = contents(made / "report")
        assert all(content == whole[name] for name, content in left.items() if not name.endswith(".tmp")), call
        write_run_report(made)
        assert contents(made / "report") == whole
        if not died:
            break
        count += 1
    tally("deaths at a call while a page was written", count)


def demonstrate(out: Path) -> None:
    """The same command, whatever there is."""
    planned = plan_demonstration(out, SMALL)
    planned.write(planned.finish(planned.train(lambda event: None)))


def numbers(out: Path) -> dict[str, object]:
    """Everything a demonstration measured and drew, apart from times."""
    found: dict[str, object] = {str(path.relative_to(out)): path.read_bytes() for path in out.glob("**/*.svg")}
    for run in sorted(out.glob("study/arms/*/seed-*")):
        found[str(run.relative_to(out))] = measured(RunFolder.open(run))
    return found


def test_a_killed_demonstration_goes_on(tmp_path: Path, tally: Tally) -> None:
    child = forked(lambda: demonstrate(tmp_path / "straight"))
    assert ended_within(child, 600)
    assert os.waitpid(child, 0)[1] == 0
    straight = numbers(tmp_path / "straight")
    assert sum("seed" in name for name in straight) >= 6
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    draw, kills, demos = random.Random(seed), 0, 0
    while kills < DEMO_KILLS:
        out, demos, longest = tmp_path / f"demo-{demos}", demos + 1, 2.5
        while True:
            child = forked(lambda out=out: demonstrate(out))
            if not ended_within(child, draw.uniform(0.05, longest)):
                os.kill(child, signal.SIGKILL)
                kills, longest = kills + 1, longest * 1.5
            _, status = os.waitpid(child, 0)
            if os.WIFEXITED(status):
                assert os.WEXITSTATUS(status) == 0, f"seed {seed}, demonstration {demos}, after {kills} kills"
                break
        assert numbers(out) == straight, f"seed {seed}, demonstration {demos}"
        assert check_report(GuardedFolder(out)) == []
        assert [str(path) for path in out.rglob("*.tmp")] == []
    tally("kills of a demonstration", kills)


def test_a_demonstration_does_not_take_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError):
        plan_demonstration(tmp_path, SMALL)
    assert (tmp_path / "mine.txt").read_text(encoding="utf-8") == "mine"


def test_without_a_folder_a_stopped_demonstration_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert plan_demonstration().out == Path("runs/demo")
    Path("runs/demo/study").mkdir(parents=True)
    assert plan_demonstration().out == Path("runs/demo")
    assert plan_demonstration(settings=SMALL).out == Path("runs/demo-2")
    Path("runs/demo/MANIFEST.json").write_text("{}", encoding="utf-8")
    assert plan_demonstration().out == Path("runs/demo-2")


def test_each_language_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs/demo/study").mkdir(parents=True)
    with in_language("pt"):
        assert plan_demonstration().out == Path("runs/demo-pt")
        Path("runs/demo-pt/study").mkdir(parents=True)
        assert plan_demonstration().out == Path("runs/demo-pt")
        assert plan_demonstration(settings=SMALL).out == Path("runs/demo-pt-2")
    assert plan_demonstration().out == Path("runs/demo")
