"""Processes as contenders: cold starts with empty caches, measured in wall time."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.options import LeftOut, Options
from vitral.core.errors import UsageError
from vitral.data import Corpus, CorpusConfig, cache_folder, load_corpus

ROOT = Path(__file__).resolve().parents[1]
LAST_LINES = 3
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
LOOP = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"
SPIN = "GOMP_SPINCOUNT"
"""How often a thread looks whether the others are done, before it sleeps."""


def shakespeare_corpus() -> Corpus:
    """The complete Shakespeare.

    Raises:
        LeftOut: it is not here and cannot be fetched.
    """
    try:
        return load_corpus(CorpusConfig(source="shakespeare"))
    except UsageError as error:
        raise LeftOut(f"the complete Shakespeare is not here ({error})") from None


def environment(options: Options, scratch: Path, *, own_threads: bool = False) -> dict[str, str]:
    """The environment of a cold process: number of threads, empty caches under `scratch`, the folder of texts.

    Vitral's cache also contains downloads, so without a folder of the user's own the downloaded texts are used as one.
    With `own_threads` every process chooses its threads itself, as it does for users who say nothing. How threads wait
    is each process's own choice too: Vitral's (`vitral.__init__`) would else be the peers' as well.
    """
    corpora = os.environ.get("VITRAL_CORPORA") or str(cache_folder() / "corpora")
    texts = {"VITRAL_CORPORA": str(Path(corpora).resolve())} if Path(corpora).is_dir() else {}
    left_out = (*THREADS, SPIN, "PYTHONDONTWRITEBYTECODE")  # an installed Vitral has its bytecode
    inherited = {name: value for name, value in os.environ.items() if name not in left_out}
    return {
        **inherited,
        **texts,
        **({} if own_threads else dict.fromkeys(THREADS, str(options.threads))),
        "VITRAL_CACHE": str(scratch / "vitral"),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
    }


@contextmanager
def cold(options: Options, *, own_threads: bool = False) -> Iterator[tuple[Path, dict[str, str]]]:
    """A temporary folder, and the environment of a process that uses it for its empty caches."""
    with tempfile.TemporaryDirectory(prefix="vitral-bench-") as folder:
        scratch = Path(folder)
        yield scratch, environment(options, scratch, own_threads=own_threads)


def python(*arguments: str) -> list[str]:
    """This Python with arguments."""
    return [sys.executable, *arguments]


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Processes that do nothing in a loop for as long as the block, and this process, last."""
    started = [subprocess.Popen(python("-c", LOOP, str(os.getpid()))) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def finish(command: Sequence[str], env: Mapping[str, str], cwd: Path = ROOT) -> str:
    """Run a command to its end; return its output.

    Raises:
        LeftOut: it failed; with its last lines.
    """
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " | ".join((done.stderr or done.stdout).strip().splitlines()[-LAST_LINES:])
        raise LeftOut(f"{' '.join(command[1:4])} … failed ({done.returncode}): {said}")
    return done.stdout


def wall(command: Sequence[str], env: dict[str, str]) -> Callable[[], float]:
    """A contender: the wall time of the process from start to end."""

    def run() -> float:
        begin = time.perf_counter()
        finish(command, env)
        return time.perf_counter() - begin

    return run


def last_json(printed: str) -> dict[str, Any]:
    r"""The JSON object on the last line of a process's output.

    >>> last_json('loading ...\n{"unix": 5}\n')
    {'unix': 5}
    """
    return json.loads(printed.strip().splitlines()[-1])


def read_events(folder: Path) -> list[dict[str, Any]]:
    """The events of a run's metrics.jsonl."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def trained_at(events: Sequence[dict[str, Any]]) -> tuple[float, int, float]:
    """Unix time and number of a run's last optimizer step, and the test loss after it.

    Raises:
        LeftOut: the run has no such events.
    """
    trained = [event for event in events if event["event"] == "end"]
    losses = [event["test_loss"] for event in events if event["event"] == "evaluation"]
    if not trained or not losses:
        raise LeftOut("metrics.jsonl has no end and no evaluation: the run was not finished")
    return trained[-1]["stepped"], trained[-1]["step"], losses[-1]
