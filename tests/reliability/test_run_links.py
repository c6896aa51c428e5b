"""Links, hard links, pipes and devices inside a run: refused in one line, or the same result; nothing else changes."""

import os
import random
import shutil
import signal
import stat
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tests.reliability.conftest import Tally, scaled
from tests.reliability.damages import is_one_line
from tests.reliability.test_gate import stopped
from tests.reliability.test_kills import ended_within, forked
from vitral import cli
from vitral.cli.progress import tensorboard_reporter
from vitral.core.errors import VitralError
from vitral.lab.run_health import repair_run
from vitral.reports.run import write_run_report
from vitral.training import Event, RunConfig, all_of, train

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux's process descriptors")

CASES = scaled(15, 1000)
COMMANDS_EACH = scaled(1, 3)
LONGEST = 60
"""Seconds; a command that takes longer hangs."""
SECRET = b"Rosebud-1941"
STEP = "steps/step-00000009"
FILES = (
    ".lock",
    "config.toml",
    "run.json",
    "environment.json",
    "tokenizer.json",
    "corpus.json",
    "ngrams.json",
    "metrics.jsonl",
    "best",
    "last",
    "samples/step-00000004.txt",
    "report/run.html",
    "report/losses.svg",
    "report/losses.png",
    "report/losses.pdf",
    *(f"{STEP}/{name}" for name in ("model.safetensors", "optimizer.safetensors", "state.json", "MANIFEST.json")),
)
FOLDERS = ("steps", STEP, "samples", "report")
LEFT_BEHIND = (
    "steps/.tmp-99999999-step-00000012",
    "steps/.old-step-00000012",
    "steps/.old-step-00000011",
    "steps/.gone-step-00000004",
    "steps/damaged-step-00000012",
    "steps/step-00000012",
    ".config.toml.99999999.tmp",
    "report/.run.html.99999999.tmp",
    "tensorboard",
)
"""Names under which an ended process leaves something, or which a stranger may add."""
KINDS = ("link", "link to a secret", "link to nothing", "hard link", "pipe", "/dev/zero", "/dev/full")


@pytest.fixture(scope="module")
def whole(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that stopped after ten steps of twelve."""
    path = tmp_path_factory.mktemp("links") / "run"
    plain = config.plain()
    plain["training"] |= {"evaluate_every": 3, "checkpoint_every": 2, "sample_every": 4, "keep_checkpoints": 2}
    stopped(RunConfig.parse(plain), path)
    newest = sorted((path / "steps").iterdir())[-1]
    assert newest.name != Path(STEP).name
    return path


def commands(run: Path) -> dict[str, Callable[[], int]]:
    """What somebody does with a run; each returns an exit code."""

    def line(*arguments: str) -> Callable[[], int]:
        return lambda: cli.run([arguments[0], str(run), *arguments[1:]])

    def report() -> int:
        try:
            sys.stdout.write(write_run_report(run).read_text(encoding="utf-8"))
        except VitralError as error:
            sys.stderr.write(f"{error}\n")
            return error.exit_code
        return 0

    return {
        "generate": line("generate", "--prompt", "the", "--max-tokens", "9"),
        "evaluate": line("evaluate", "--no-copying"),
        "inspect": line("inspect", "--text", "the cat"),
        "doctor": line("doctor"),
        "doctor --repair": line("doctor", "--repair"),
        "resume": line("resume"),
        "report": report,
    }


def contents(folder: Path) -> dict[str, object]:
    """Every name below a folder with what it is: the target of a link, the bytes and time of a file."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            found[str(path)] = os.readlink(path)
        else:
            inside = path.read_bytes() if stat.S_ISREG(status.st_mode) else None
            found[str(path)] = (stat.S_IFMT(status.st_mode), status.st_mtime_ns, inside)
    return found


def place(run: Path, name: str, kind: str, outside: Path) -> None:
    """Put something else at `name`; what was there moves outside, where the new thing may lead to it."""
    path, moved = run / name, outside / "moved"
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


def outcome(act: Callable[[], int], said: Path) -> tuple[int | str, str, str]:
    """Do it in a child: its exit code or what went wrong, what it printed, and what it complained about."""
    out, err = said / "out", said / "err"

    def child() -> None:
        with (
            out.open("w", encoding="utf-8") as first,
            err.open("w", encoding="utf-8") as second,
            redirect_stdout(first),
            redirect_stderr(second),
        ):
            code = act()
        os._exit(code)

    number = forked(child)
    if not ended_within(number, LONGEST):
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)
        return "it hangs", "", ""
    code = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    return code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8")


def cases(draw: random.Random) -> list[tuple[str, str]]:
    """Places and what stands there, in random order; the quick tier takes the first."""
    every = [(name, kind) for name in (*FILES, *LEFT_BEHIND) for kind in KINDS]
    every += [(name, kind) for name in FOLDERS for kind in KINDS if kind != "hard link"]
    draw.shuffle(every)
    return every[:CASES]


def faults(command: str, found: tuple[int | str, str, str], right: tuple[int | str, str, str]) -> list[str]:
    """What is wrong with the outcome of a command beside that in a whole run."""
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


def comparable(found: tuple[int | str, str, str]) -> tuple[int | str, str, str]:
    """An outcome without times."""
    code, out, err = found
    return (
        code,
        "\n".join(line for line in out.splitlines() if not line.startswith("done:") and "tokens/s" not in line),
        err,
    )


def test_a_run_follows_no_link(whole: Path, tmp_path: Path, tally: Tally) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    draw, failures, count = random.Random(seed), list[str](), 0
    run, outside, said = tmp_path / "run", tmp_path / "outside", tmp_path / "said"
    said.mkdir()
    right = {}
    for command in commands(run):
        shutil.copytree(whole, run)
        right[command] = comparable(outcome(commands(run)[command], said))
        shutil.rmtree(run)
    assert {command: found[0] for command, found in right.items()} == dict.fromkeys(right, 0), right
    for name, kind in cases(draw):
        for command in draw.sample(list(right), COMMANDS_EACH):
            shutil.copytree(whole, run)
            (outside / "precious").mkdir(parents=True)
            for file in ("file", "config.toml", "model.safetensors", "step-00000004.txt", ".run.html.99999999.tmp"):
                (outside / "precious" / file).write_bytes(SECRET)
            place(run, name, kind, outside)
            before = contents(outside)
            found = comparable(outcome(commands(run)[command], said))
            wrong = faults(command, found, right[command])
            if contents(outside) != before:
                wrong.append("something outside was changed")
            if kind == "hard link" and name in FILES and found[0] != 0:
                wrong.append(f"a hard link is refused: {found}")
            failures += [f"seed {seed}: {command}: {name}: {kind}: {fault}" for fault in wrong]
            for folder in (run, outside):
                shutil.rmtree(folder)
        count += 1
    assert not failures, f"{len(failures)} faults\n" + "\n".join(failures)
    tally("links, hard links, pipes and devices in a run", count)


def test_links_in_the_typed_path_are_followed(whole: Path, tmp_path: Path) -> None:
    real, said = tmp_path / "elsewhere" / "run", tmp_path / "said"
    said.mkdir()
    shutil.copytree(whole, real)
    (tmp_path / "link").symlink_to(real.parent)
    (tmp_path / "direct").symlink_to(real)
    for run in (tmp_path / "link" / "run", tmp_path / "direct"):
        for command, act in commands(run).items():
            if command != "resume":
                assert outcome(act, said)[0] == 0, (run, command)
    assert outcome(commands(tmp_path / "direct")["resume"], said)[0] == 0
    assert (real / "steps" / "step-00000012").is_dir()
    assert repair_run(tmp_path / "direct") == ()


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
