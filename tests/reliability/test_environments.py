"""The command line where the streams, folders, limits or settings around it are bad: one line, a known exit code.

A training whose output is lost, at whatever moment, ends with the bytes of one that was watched.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest
import tomli_w

from tests.reliability.conftest import Tally, changed, without_state
from tests.training.conftest import at, interrupt
from vitral.runs import RunFolder
from vitral.training import RunConfig, train

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full, and sh")

STEPS = 20
SHELL = 'exec "$@"'
"""The program in a shell, which sets limits before it starts."""
FULL = f"{SHELL} >/dev/full"
LOGIN = f'{SHELL} <"$TTY" >"$TTY" 2>&1'
"""On a terminal that the session owns, as a login does: when it closes, the system sends SIGHUP."""
NOWHERE = "/dev/null/nowhere"
"""A folder that nobody can make, root neither."""
PLAIN_C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
SMALL = "--set training.steps=4 --set training.evaluate_every=2"


class Case(NamedTuple):
    """A command in an environment.

    Attributes:
        command: words; TOML, RUN, STOPPED (a run to resume) and OUT stand for paths, TEXT for a text.
        shell: how a shell starts it.
        cut: the reader of standard output leaves after this text.
        terminal: standard output and error are a terminal, which is gone after `cut`.
        settings: environment variables; None removes one.
        codes: exit codes that are right.
        silent: whether nothing is said on standard error.
    """

    command: str
    shell: str = SHELL
    cut: str | None = None
    terminal: bool = False
    settings: Mapping[str, str | None] = MappingProxyType({})
    codes: tuple[int, ...] = (0,)
    silent: bool = False


TRAIN, RESUME = "train TOML --out OUT", "resume STOPPED"
STUDY = f"study no-attention --base TOML --seeds 1 --out OUT {SMALL}"
INSPECT, EXPLAIN = "inspect RUN --text the", "explain RUN --text the"
PRINTING = ("evaluate RUN --no-copying --format json", EXPLAIN, "corpus TEXT --split tail", "list", "doctor RUN")

QUICK = [
    Case(TRAIN, cut="step 1"),
    Case("generate RUN", FULL, codes=(4,)),
]
MERGE = [
    Case(TRAIN, LOGIN, cut="step 1", terminal=True),
    Case("list texts", f"{SHELL} | head -1", silent=True),
    Case(f"{INSPECT} --format json", settings=PLAIN_C, silent=True),
    Case(TRAIN, f"ulimit -f 0; {SHELL}", codes=(4,)),
    Case("list texts", f'mkdir gone; cd gone; rmdir "$PWD"; {SHELL}', codes=(2,)),
]
NIGHT = [
    Case(RESUME, FULL),
    Case(TRAIN, FULL),
    *(Case(TRAIN, cut=word) for word in ("parameters", "done")),
    Case(TRAIN, cut="", terminal=True),
    Case(RESUME, cut="sample", terminal=True),
    Case(STUDY, LOGIN, cut="step 1", terminal=True),
    Case(STUDY, FULL),
    *(Case(command, FULL, codes=(4,)) for command in PRINTING),
    *(Case(command, f"{SHELL} | head -1", silent=True) for command in PRINTING),
    Case("--help", FULL, codes=(4,)),
    Case(TRAIN, settings={"HOME": NOWHERE, "MPLCONFIGDIR": NOWHERE, "TMPDIR": NOWHERE}, silent=True),
    Case(TRAIN, settings={"VITRAL_CACHE": NOWHERE}, codes=(4,)),
    Case("evaluate RUN", settings={"VITRAL_CACHE": None, "HOME": NOWHERE, "XDG_CACHE_HOME": NOWHERE}, codes=(4,)),
    Case(f"{EXPLAIN} --format json --lang pt", settings={"PYTHONIOENCODING": "latin-1"}, silent=True),
    Case(INSPECT, settings={"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "wide"}, silent=True),
    Case(TRAIN, settings={"MPLBACKEND": "nosuch", "MATPLOTLIBRC": "/dev/zero"}, silent=True),
    Case(TRAIN, f"ulimit -n 24; {SHELL}", codes=(0, 4)),
    Case("corpus TEXT --split tail --out OUT", f"ulimit -f 1; {SHELL}", codes=(4,)),
    Case(TRAIN, f"umask 777; {SHELL}", codes=(0, 4)),
]
CASES = [
    *QUICK,
    *(pytest.param(case, marks=pytest.mark.merge) for case in MERGE),
    *(pytest.param(case, marks=pytest.mark.full) for case in NIGHT),
]


@pytest.fixture(scope="module")
def scene(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a configuration, its whole run, and the same run stopped halfway."""
    folder = tmp_path_factory.mktemp("scene")
    made = changed(config, steps=STEPS, checkpoint_every=7, evaluate_every=10, sample_every=4)
    (folder / "run.toml").write_text(tomli_w.dumps(made.plain()), encoding="utf-8")

    train(made, folder / "RUN")
    train(made, folder / "STOPPED", callback=at(interrupt, "step", STEPS // 2 + 1))
    return folder


@pytest.mark.parametrize("case", CASES)
def test_in(case: Case, scene: Path, config: RunConfig, tmp_path: Path, tally: Tally) -> None:
    shutil.copytree(scene / "STOPPED", tmp_path / "STOPPED")
    places = {"TOML": scene / "run.toml", "RUN": scene / "RUN", "TEXT": config.corpus.source}
    places |= {name: tmp_path / name for name in ("STOPPED", "OUT")}
    words = [str(places.get(word, word)) for word in case.command.split()]
    code, told = ran(case, words, tmp_path)
    where = f"{case}: exit code {code}, {told}"
    assert code in case.codes, where
    assert "Traceback" not in told, where
    assert all(line.startswith("vitral: ") for line in told.splitlines()), where
    if code or case.shell == FULL:
        assert bool(told) != case.terminal, where
    assert not (told and case.silent), where
    if words[0] in ("train", "resume") and code == 0:
        folder = RunFolder.open(tmp_path / ("OUT" if words[0] == "train" else "STOPPED"))
        ended_as(folder, RunFolder.open(scene / "RUN"))
        lost = case.shell == FULL or case.cut in ("step 1", "parameters", "sample")
        assert bool(told) == lost or case.terminal or not case.cut, where
    if words[0] == "study":
        assert (tmp_path / "OUT" / "report" / "study.html").is_file()
    tally("commands in environments that are bad", 1)


def ran(case: Case, words: list[str], folder: Path) -> tuple[int, str]:
    """The exit code of a command, and its text on standard error (of JSON, what is wrong with it as well)."""
    settings = {**os.environ, "OMP_NUM_THREADS": "1", **case.settings}
    program = ["sh", "-c", case.shell, "sh", sys.executable, "-m", "vitral", *words]
    if "head" in case.shell:  # the exit code of the program, not that of head
        program = ["bash", "-c", f"set -o pipefail; {case.shell}".replace("exec ", ""), *program[3:]]
    reading, writing = os.openpty() if case.terminal else os.pipe()
    settings |= {"TTY": os.ttyname(writing)} if case.terminal else {}
    process = subprocess.Popen(
        program,
        cwd=folder,
        env={name: value for name, value in settings.items() if value is not None},
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=writing if case.terminal else subprocess.PIPE,
        start_new_session=True,
    )
    os.close(writing)
    printed = b""
    try:
        while case.cut is None or case.cut.encode() not in printed:
            printed += (piece := os.read(reading, 4096))
            if not piece:
                break
    except OSError:  # a terminal whose last writer has ended
        pass
    os.close(reading)
    _, told = process.communicate(timeout=100)
    if "json" in words and case.codes == (0,):
        assert json.loads(printed), shlex.join(words)
    return process.returncode, (told or b"").decode()


def ended_as(folder: RunFolder, whole: RunFolder) -> None:
    """The run has the weights, optimizer and measurements of the whole one, and its page."""
    assert without_state(folder, STEPS) == without_state(whole, STEPS)
    assert folder.metrics("evaluation") == whole.metrics("evaluation")
    assert folder.metrics("end")[-1]["finished"]
    assert (folder.path / "report" / "run.html").is_file()
