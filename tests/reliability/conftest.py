"""What all tests of reliability share: two tiers, printed seeds, counts in a summary, a tiny run and its last bytes."""

import json
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from vitral.runs import RunFolder
from vitral.runs.checkpoint_files import OPTIMIZER, STATE, WEIGHTS
from vitral.training import RunConfig, train

FULL = os.environ.get("VITRAL_FULL") == "1"
"""`make test-full`: the counts of a night."""
STEPS = 12
WORDS = ("the", "cat", "saw", "a", "bird", "and", "sang", "to", "me", "dog", "of")

Tally = Callable[[str, int], None]


def scaled(quick: int, full: int) -> int:
    """How many of something: in `make test`, in `make test-full`."""
    return full if FULL else quick


@pytest.fixture
def tally(record_property: Callable[[str, Any], None]) -> Tally:
    """`tally("kills", 100)`: counted, and printed at the end of the session."""
    return lambda what, count: record_property(f"tally: {what}", count)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(own_cache: None) -> None:
    """Prepared texts go to a folder of the tests."""


@pytest.fixture(scope="session")
def config(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """Twelve tiny steps with dropout, accumulation, both optimizers, a sample and a checkpoint after each step."""
    text = tmp_path_factory.mktemp("corpus") / "words.txt"
    words = " ".join(WORDS[(n * n // 7 + n // 3) % 11] for n in range(2000)) + "\n"
    text.write_text(words, encoding="utf-8", newline="\n")
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
def straight(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The run without a stop."""
    return train(config, tmp_path_factory.mktemp("straight") / "run")


def last_bytes(folder: RunFolder, step: int = STEPS) -> dict[str, bytes]:
    """Weights, optimizer and state of the last checkpoint; its history depends on times."""
    return {name: (folder.steps / f"step-{step:08d}" / name).read_bytes() for name in (WEIGHTS, OPTIMIZER, STATE)}


def measured(folder: RunFolder) -> list[str]:
    """What was measured, apart from times and from the ends of sessions: one JSON text for each event."""
    events = [event for event in folder.metrics() if event["event"] not in ("end", "stopped")]
    return [json.dumps({k: v for k, v in event.items() if k != "tokens_per_second"}) for event in events]


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
