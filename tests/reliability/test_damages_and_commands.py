"""Every file of a run damaged in every way, then a command: it ends soon, in little memory, with one line or none."""

import io
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tests.reliability.conftest import Tally, scaled
from tests.reliability.damages import Tree, is_one_line
from tests.reliability.test_gate import stopped
from tests.reliability.test_hostile import Payload
from tests.reliability.test_kills import ended_within
from tests.reliability.test_run_links import commands
from vitral.training import RunConfig

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux's process descriptors")

TRIALS = scaled(17, 2000)
SECONDS = 5
"""Of processor time."""
LONGEST = 60
"""Seconds; a command that takes longer hangs."""
MEGABYTES = 100
"""Above the same command in the whole run."""
STEP = "steps/step-00000010"
FILES = (
    "config.toml",
    "run.json",
    "environment.json",
    "tokenizer.json",
    "corpus.json",
    "ngrams.json",
    "metrics.jsonl",
    "best",
    "last",
    *(f"{STEP}/{name}.safetensors" for name in ("model", "optimizer")),
    *(f"{STEP}/{name}.json" for name in ("state", "history", "MANIFEST")),
)
MARK = "vitral-was-here"


def content(raw: bytes) -> Callable[[Path, Path], None]:
    """Other bytes."""

    def replace(path: Path, other: Path) -> None:
        path.write_bytes(raw)

    return replace


def sparse(path: Path, other: Path) -> None:
    """A gigabyte of zeros that takes no room."""
    os.truncate(path, 10**9)


def lines(path: Path, other: Path) -> None:
    """64 MB of line ends."""
    path.write_bytes(b"\n" * (64 << 20))


def truncated(path: Path, other: Path) -> None:
    """The first half."""
    os.truncate(path, path.stat().st_size // 2)


def pipe(path: Path, other: Path) -> None:
    """A pipe that nobody writes to."""
    path.unlink()
    os.mkfifo(path)


def endless(path: Path, other: Path) -> None:
    """A link to a device that never ends."""
    path.unlink()
    path.symlink_to("/dev/zero")


def folder(path: Path, other: Path) -> None:
    """A folder with a file in it."""
    path.unlink()
    path.mkdir()
    (path / "file").write_bytes(b"x")


def huge_numbers(path: Path, other: Path) -> None:
    """Every digit is forty digits."""
    raw = path.read_bytes()
    path.write_bytes(b"".join(bytes([byte]) * (40 if 49 <= byte <= 57 else 1) for byte in raw))


def nan(path: Path, other: Path) -> None:
    """Every 1 is NaN."""
    path.write_bytes(path.read_bytes().replace(b"1", b"NaN"))


def swapped(path: Path, other: Path) -> None:
    """The file of another run."""
    shutil.copyfile(other, path)


DAMAGES: dict[str, Callable[[Path, Path], None]] = {
    "empty": content(b""),
    "one byte": content(b"{"),
    "truncated": truncated,
    "a pipe": pipe,
    "a link to /dev/zero": endless,
    "1 GB": sparse,
    "64 MB of line ends": lines,
    "deep JSON": content(b"[" * 500_000),
    "a deep object": content(b'{"a":' * 100_000),
    "a huge number": huge_numbers,
    "5,000 digits": content(b'{"format": ' + b"9" * 5000 + b"}\n"),
    "NaN": nan,
    "not UTF-8": content(b"\xff\xfe" * 500),
    "a folder": folder,
    "garbage": content(random.Random(1).randbytes(4096)),
    "another run's": swapped,
    "a pickle": content(pickle.dumps(Payload())),
}
COMMANDS = ("generate", "evaluate", "resume", "doctor", "report")


def measured(act: Callable[[], int], said: Path) -> tuple[int | str, float, str]:
    """Do it in a child: its exit code or what went wrong, the memory it needed more (MB), and what it said.

    Memory is the growth of the child's peak: the peak is reset when it begins.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        number = os.fork()
    if not number:
        _act(act, said)
    if not ended_within(number, LONGEST):
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)
        return "it hangs", 0.0, ""
    code = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    if code < 0:
        return f"ended by {signal.Signals(-code).name}", 0.0, ""
    grown, _, words = said.read_text(encoding="utf-8").partition("\n")
    return code, float(grown), words


def _act(act: Callable[[], int], said: Path) -> None:
    """Act in this process and leave it."""
    code, err = 99, io.StringIO()
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    most = int(used) + 1 + SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (most, most + 1))
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is what it is now
    before = peak()
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(err):
            code = act()
    except BaseException:
        err.write(traceback.format_exc())
    finally:
        said.write_text(f"{peak() - before}\n{err.getvalue()}", encoding="utf-8", errors="backslashreplace")
        os._exit(code)


def peak() -> float:
    """The largest memory of this process since the last reset, in MB."""
    (line,) = [one for one in Path("/proc/self/status").read_text(encoding="ascii").splitlines() if "VmHWM" in one]
    return int(line.split()[1]) / 1024


def test_damages_and_commands(config: RunConfig, tmp_path: Path, tally: Tally) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}", file=sys.stderr)
    draw, failures = random.Random(seed), list[str]()
    run, other, said = tmp_path / "run", tmp_path / "other", tmp_path / "said"
    plain = config.plain()
    plain["training"] |= {"evaluate_every": 5, "checkpoint_every": 5, "keep_checkpoints": 2}
    for path, number in ((run, 1), (other, 2)):
        stopped(RunConfig.parse({**plain, "seed": number}), path)
    tree = Tree(run)
    assert set(FILES) < set(tree.whole)
    usual: dict[str, float] = {}
    for command in COMMANDS:
        act = commands(run)[command]
        if command != "resume":
            assert act() == 0, command  # what is imported late is imported now
            tree.restore()
        code, usual[command], words = measured(act, said)
        assert code == 0, (command, code, words)
        tree.restore()
    every = [(name, how, command) for name in FILES for how in DAMAGES for command in COMMANDS]
    draw.shuffle(every)
    chosen = every[:TRIALS]
    for name, how, command in chosen:
        DAMAGES[how](run / name, other / name)
        code, grown, words = measured(commands(run)[command], said)
        wrong = [f"printed {line!r}" for line in words.splitlines() if not is_one_line(line)]
        if code not in (0, 1, 2, 4) or "Traceback" in words:
            wrong.append(f"{code}: {words[-300:]}")
        elif code in (2, 4) and not words.strip():
            wrong.append(f"{code} without a word")
        if grown > usual[command] + MEGABYTES:
            wrong.append(f"{grown:.0f} MB, {usual[command]:.0f} MB usually")
        failures += [f"seed {seed}: {command}: {name}: {how}: {fault}" for fault in wrong]
        tree.restore()
    assert not failures, f"{len(failures)} faults\n" + "\n".join(failures)
    assert not Path("/tmp", MARK).exists()
    tally("damages of a file and a command: soon, in little memory, in one line", len(chosen))
