"""What all tests of reliability share: numbers of trials, seeds, counts in a summary, a tiny run and a tiny study."""

import csv
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Once
from tests.training.conftest import measured_in, write_words
from vitral.report.study import write_report
from vitral.runs import RunFolder
from vitral.runs.checkpoint import OPTIMIZER, STATE, WEIGHTS
from vitral.studies import Study, run_study
from vitral.training import RunConfig, train

STEPS = 12
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

Tally = Callable[[str, int], None]


def scaled(quick: int, full: int) -> int:
    """How many examples Hypothesis draws: usually, in `make test-full`."""
    return full if os.environ.get("VITRAL_FULL") == "1" else quick


def trials(quick: int, merge: int, full: int) -> pytest.MarkDecorator:
    """`trials`: how many of something, in each of the three tiers; none where it is 0."""
    marks = ((quick, ()), (merge, pytest.mark.merge), (full, pytest.mark.full))
    return pytest.mark.parametrize("trials", [pytest.param(many, marks=mark) for many, mark in marks if many])


@pytest.fixture
def draw() -> random.Random:
    """Random choices, whose seed is printed with a failure."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.fixture
def tally(record_property: Callable[[str, Any], None]) -> Tally:
    """`tally("kills", 100)`: counted, and printed at the end of the session."""
    return lambda what, count: record_property(f"tally: {what}", count)


@pytest.fixture(scope="session", autouse=True)
def _unflushed() -> Iterator[None]:
    """What the system holds in memory survives the death of a process: no test waits for a disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def config(once: Once) -> RunConfig:
    """Twelve tiny steps with dropout, accumulation, both optimizers, a sample and a checkpoint after each step."""
    text = once("words.txt", write_words)
    return RunConfig.parse(
        {
            "corpus": {"source": str(text), "tokenizer": "char", "split": "tail"},
            "model": {"context_length": 11, "d_model": 6, "num_heads": 3, "num_layers": 1, "dropout": 0.2},
            "training": {
                "steps": STEPS,
                "batch_size": 3,
                "accumulation": 2,
                "optimizer": {"name": "muon", "learning_rate": 0.02},
                "evaluate_every": 5,
                "checkpoint_every": 1,
                "sample_every": 4,
                "sample_tokens": 7,
                "log_every": 1,
                "device": "cpu",
            },
        }
    )


@pytest.fixture(scope="session")
def straight(config: RunConfig, once: Once) -> RunFolder:
    """The run without a stop."""
    return RunFolder.open(once("straight", lambda path: train(config, path)))


def changed(config: RunConfig, **training: Any) -> RunConfig:
    """The same run with other values of training."""
    plain = config.plain()
    return RunConfig.parse({**plain, "training": plain["training"] | training})


@pytest.fixture(scope="session")
def short(config: RunConfig) -> RunConfig:
    """Four steps."""
    return changed(config, steps=4, evaluate_every=2, accumulation=1, sample_every=None)


def last_bytes(folder: RunFolder, step: int = STEPS) -> dict[str, bytes]:
    """Weights, optimizer and state of the last checkpoint; its history depends on times."""
    return {name: (folder.steps / f"step-{step:08d}" / name).read_bytes() for name in (WEIGHTS, OPTIMIZER, STATE)}


def files_of(path: Path) -> dict[str, bytes]:
    """Everything under a folder but the lock."""
    return {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file() and f.name != ".lock"}


def without_state(folder: RunFolder, step: int = STEPS) -> dict[str, bytes]:
    """Weights and optimizer, of runs whose checkpoints came at other steps."""
    return {name: raw for name, raw in last_bytes(folder, step).items() if name != STATE}


def measured(folder: RunFolder) -> list[str]:
    """What was measured, apart from times and from the ends of sessions: one JSON text for each event."""
    return measured_in(folder, but="stopped")


def make_study(config: RunConfig, out: Path) -> None:
    """The same command, whatever there is."""
    write_report(run_study(STUDY, config, out, budget="quick"))


@pytest.fixture(scope="session")
def whole_study(config: RunConfig, once: Once) -> Path:
    """A study of two runs as it should be."""
    return once("norms", lambda out: make_study(config, out))


def study_numbers(out: Path) -> dict[str, object]:
    """Everything a study measured and drew, apart from times."""
    patterns = ("measures/**/*.json", "**/figures/*", "**/*.svg")
    found: dict[str, object] = {
        str(path.relative_to(out)): path.read_bytes() for pattern in patterns for path in out.glob(pattern)
    }
    for run in (*out.glob("arms/*/seed-*"), *out.glob("study/arms/*/seed-*")):
        found[str(run.relative_to(out))] = measured(RunFolder.open(run))
    for table in out.glob("report/study.csv"):
        rows = csv.DictReader(table.read_text(encoding="utf-8").splitlines())
        found["table"] = [{key: value for key, value in row.items() if key != "seconds"} for row in rows]
    return found


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what was counted."""
    totals: Counter[str] = Counter()
    for report in terminalreporter.stats.get("passed", []) + terminalreporter.stats.get("failed", []):
        for name, count in getattr(report, "user_properties", []):
            if name.startswith("tally: ") and report.when == "call":
                totals[name.removeprefix("tally: ")] += count
    if totals:
        terminalreporter.section("reliability, counted")
        for name, count in sorted(totals.items()):
            terminalreporter.write_line(f"{count:>9,}  {name}")
