"""Links, pipes, devices in a run or a study: refused in one line, or the same result; nothing else changes."""

import os
import random
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.reliability.children import ON_LINUX, outcome
from tests.reliability.conftest import STUDY, Tally, changed, make_study, study_numbers, trials
from tests.reliability.damages import is_one_line
from tests.reliability.test_gate import stopped
from vitral import cli
from vitral.cli.progress import tensorboard_reporter
from vitral.core.errors import VitralError
from vitral.core.files import sha256
from vitral.reports.run import write_run_report
from vitral.reports.study import write_report
from vitral.studies import run_study
from vitral.training import Event, RunConfig, all_of, train

pytestmark = ON_LINUX

SECRET = b"Rosebud-1941"
STEP = "steps/step-00000009"
KINDS = ("link", "link to a secret", "link to nothing", "hard link", "pipe", "/dev/zero", "/dev/full")
LEFT_BEHIND = (
    "steps/.tmp-99999999-step-00000012",
    "steps/.old-step-00000012",
    "steps/.gone-step-00000004",
    "steps/damaged-step-00000012",
    "steps/step-00000012",
    ".config.toml.99999999.tmp",
    "report/.run.html.99999999.tmp",
    "tensorboard",
)
"""Names under which an ended process leaves something in a run, or which a stranger may add."""

Acts = dict[str, Callable[[], int]]


class Scene(NamedTuple):
    """A folder, the places in it, and what somebody does with it."""

    whole: Path
    places: tuple[str, ...]
    acts: Callable[[Path], Acts]


def line(*words: str | Path) -> Callable[[], int]:
    return lambda: cli.run([str(word) for word in words])


def library(act: Callable[[], str]) -> Callable[[], int]:
    """A call of the library, told as the command line tells it."""

    def call() -> int:
        try:
            print(act())
        except VitralError as error:
            print(error, file=sys.stderr)
            return error.exit_code
        return 0

    return call


def run_acts(run: Path) -> Acts:
    return {
        "generate": line("generate", run, "--prompt", "the", "--max-tokens", "9"),
        "evaluate": line("evaluate", run, "--no-copying"),
        "inspect": line("inspect", run, "--text", "the cat"),
        "doctor": line("doctor", run),
        "doctor --repair": line("doctor", run, "--repair"),
        "resume": line("resume", run),
        "report": library(lambda: write_run_report(run).read_text(encoding="utf-8")),
    }


@pytest.fixture(scope="module")
def scenes(config: RunConfig, whole_study: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Scene]:
    """A run that stopped after ten steps of twelve, and a study."""
    run = tmp_path_factory.mktemp("links") / "run"
    stopped(changed(config, evaluate_every=3, checkpoint_every=2, keep_checkpoints=2), run)

    def again(out: Path) -> str:
        make_study(config, out)
        return sha256(repr(sorted(study_numbers(out).items())).encode())

    def study_acts(out: Path) -> Acts:
        return {"doctor": line("doctor", out), "study": library(lambda: again(out))}

    places = tuple(str(path.relative_to(run)) for path in run.rglob("*") if not path.match("steps/*9/history.json"))
    of_study = ("arms/pre/seed-3/tokenizer.json", "arms", "measures", "report", "study.json", ".lock")
    of_study += tuple(str(path.relative_to(whole_study)) for path in whole_study.glob("report/**/*"))
    return {
        "run": Scene(run, (*places, *LEFT_BEHIND), run_acts),
        "study": Scene(whole_study, of_study, study_acts),
    }


def contents(folder: Path) -> dict[str, object]:
    """Every name below a folder with what it is: the target of a link, the bytes and time of a file."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            found[str(path)] = os.readlink(path)
        elif path.name != ".lock":
            inside = path.read_bytes() if stat.S_ISREG(status.st_mode) else None
            found[str(path)] = (stat.S_IFMT(status.st_mode), status.st_mtime_ns, inside)
    return found


def put(folder: Path, name: str, kind: str, outside: Path) -> None:
    """Put something else at `name`; what was there moves outside, where the new thing may lead to it."""
    path, moved = folder / name, outside / "moved"
    if path.exists():
        shutil.move(path, moved)
    elif kind == "hard link":
        moved.write_bytes(SECRET)
    else:
        moved.mkdir()
        for file in ("model.safetensors", "MANIFEST.json"):
            (moved / file).write_bytes(SECRET)
    if kind == "link":
        path.symlink_to(moved)
    elif kind == "link to a secret":
        path.symlink_to(outside / ("precious" if moved.is_dir() else "precious/file"))
    elif kind == "link to nothing":
        path.symlink_to(outside / "new")
    elif kind == "hard link":
        os.link(moved, path)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(kind)


def faults(command: str, found: tuple[int, str, str], right: tuple[int, str, str]) -> list[str]:
    """What is wrong with the outcome of a command beside that in a whole folder."""
    code, out, err = found
    wrong = [f"printed {line!r}" for line in err.splitlines() if not is_one_line(line)]
    if code not in (0, 1, 2, 4) or "Traceback" in err:
        wrong.append(f"{code}: {err[-300:]}")
    elif code in (2, 4) and not err.strip():
        wrong.append(f"{code} without a word")
    if code == 0 and not err.strip() and "note:" not in out and out != right[1] and "doctor" not in command:
        wrong.append(f"silent: {out[-200:]!r}")
    if SECRET.decode() in out + err:
        wrong.append("it tells the secret")
    return wrong


def untimed(found: tuple[int, str, str]) -> tuple[int, str, str]:
    """An outcome without times."""
    code, out, err = found
    lines = [line for line in out.splitlines() if not line.startswith("done:") and "tokens/s" not in line]
    return code, "\n".join(lines), err


@trials(2, 5, 400)
@pytest.mark.parametrize("what", ["run", "study"])
def test_no_link_is_followed(
    what: str, trials: int, scenes: dict[str, Scene], draw: random.Random, tmp_path: Path, tally: Tally
) -> None:
    scene, inside, outside = scenes[what], tmp_path / what, tmp_path / "outside"
    right = dict[str, tuple[int, str, str]]()

    def fresh() -> Acts:
        for folder in (inside, outside):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(scene.whole, inside)
        return scene.acts(inside)

    every = [(name, kind) for name in scene.places for kind in KINDS]
    every = [(name, kind) for name, kind in every if kind != "hard link" or not (scene.whole / name).is_dir()]
    drawn = draw.sample(every, min(trials, len(every)))
    for name, kind in drawn:
        command = draw.choice([*fresh()])
        if command not in right:
            right[command] = untimed(outcome(fresh()[command], tmp_path))
            assert right[command][0] == 0
        act = fresh()[command]
        (outside / "precious").mkdir(parents=True)
        for file in ("file", "config.toml", "study.html", ".study.json.1.tmp", ".run.html.99999999.tmp"):
            (outside / "precious" / file).write_bytes(SECRET)
        put(inside, name, kind, outside)
        before, here = contents(outside), contents(inside)
        found = untimed(outcome(act, tmp_path))
        assert faults(command, found, right[command]) == [], (command, name, kind)
        assert contents(outside) == before, (command, name, kind)
        assert command != "doctor" or contents(inside) == here, (name, kind)
        if kind == "hard link" and name not in LEFT_BEHIND:
            assert found[0] == 0, (command, name, found)
    tally(f"links, hard links, pipes and devices in a {what}", len(drawn))


def test_links_in_the_typed_path_are_followed(scenes: dict[str, Scene], tmp_path: Path) -> None:
    real = Path(shutil.copytree(scenes["run"].whole, tmp_path / "elsewhere" / "run"))
    (tmp_path / "link").symlink_to(real.parent)
    (tmp_path / "direct").symlink_to(real)
    for run, command in ((tmp_path / "link" / "run", "generate"), (tmp_path / "direct", "resume")):
        assert outcome(run_acts(run)[command], tmp_path)[0] == 0
    assert (real / "steps" / "step-00000012").is_dir()


@pytest.mark.merge
def test_a_snapshot_of_hard_links_keeps_its_content(config: RunConfig, whole_study: Path, tmp_path: Path) -> None:
    out, snapshot = Path(shutil.copytree(whole_study, tmp_path / "out")), tmp_path / "snapshot"
    shutil.copytree(out, snapshot, copy_function=os.link)
    before = contents(snapshot)
    write_report(run_study(STUDY, config, out, seeds=[3, 4], budget="quick"), command="another command")
    assert contents(snapshot) == before
    assert (out / "report" / "study.html").read_bytes() != (snapshot / "report" / "study.html").read_bytes()


@pytest.mark.merge
def test_tensorboard_writes_into_no_link(config: RunConfig, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    outside, run = tmp_path / "outside", tmp_path / "run"
    outside.mkdir()

    def mischief(event: Event) -> None:
        if event["event"] == "start":
            (run / "tensorboard").symlink_to(outside)

    train(config, run, callback=all_of(mischief, tensorboard_reporter(run)))
    assert not list(outside.iterdir())
    assert (run / "steps" / "step-00000012").is_dir()
