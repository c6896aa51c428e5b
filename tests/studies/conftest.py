"""Made-up results: a study whose losses a test chooses."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from vitral.evaluation import NgramBaselines
from vitral.studies import ArmResult, RunResult, StudyResult, run_study, study_named
from vitral.studies.resolution import resolve
from vitral.studies.results import run_path
from vitral.training import RunConfig

Made = Callable[..., StudyResult]
WHOLE = study_named("no-attention")
FOUR = WHOLE.model_copy(update={"arms": WHOLE.arms[:4], "tune": {}})
"""The study `no-attention` with its first four arms, not tuned."""
BASELINES = NgramBaselines({1: 3.264, 2: 2.520, 3: 1.949, 4: 1.595, 5: 1.420, 6: 1.379}, 2.513)
BASE = RunConfig.parse({"model": {"context_length": 7, "d_model": 12, "num_heads": 3}, "training": {"steps": 10}})


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """A function that makes a result of `no-attention` from losses by arm, one for each seed, None where it stopped."""

    def make(losses: Mapping[str, Sequence[float | None]], first_seeds: Sequence[int] | None = None) -> StudyResult:
        study = FOUR
        seeds = tuple(range(1, 1 + max(map(len, losses.values()))))
        resolved = [arm for arm in resolve(study, BASE, 31) if arm.arm.name in losses]

        def run(arm: str, seed: int, loss: float | None) -> RunResult:
            curve = ((5, 3.0),) if loss is None else ((5, 3.0), (10, loss))
            stopped = "stopped at step 5: the test loss is nan" if loss is None else None
            validation = None if loss is None else loss + 0.01
            return RunResult(seed, run_path(tmp_path, arm, seed), curve, 2.9, validation, loss, 1.5, stopped)

        arms = tuple(
            ArmResult(
                arm=arm.arm,
                config={key: value for key, value in arm.config.plain().items() if key != "seed"},
                num_parameters=arm.num_parameters,
                flops_per_token=6 * arm.num_parameters,
                runs=tuple(run(arm.arm.name, *pair) for pair in zip(seeds, losses[arm.arm.name], strict=True)),
            )
            for arm in resolved
        )
        return StudyResult(
            study=study,
            base=arms[0].config,
            seeds=seeds,
            first_seeds=tuple(first_seeds or seeds),
            arms=arms,
            baselines=BASELINES,
            curve_baselines=BASELINES,
            corpus={"source": "made-up", "sha256": "ab" * 32, "split": {"tokens": {"train": 2240}}},
            environment={"vitral": "0.0", "python": "3"},
            folder=tmp_path,
        )

    return make


def text(num_words: int = 1500) -> str:
    """Sentences whose words follow one another by chance, the same every time."""
    generator = np.random.default_rng(3)
    words = ["the", "cat", "dog", "saw", "a", "bird", "and", "sang", "to", "me"]
    return " ".join(generator.choice(words, size=num_words)) + "\n"


@pytest.fixture(scope="session", autouse=True)
def _own_cache(own_cache: None) -> None:
    """Prepared texts go to a folder of the tests."""


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """A run that is trained in a moment, on a text of its own."""
    path = tmp_path_factory.mktemp("corpus") / "words.txt"
    path.write_text(text(), encoding="utf-8", newline="\n")
    return RunConfig.parse(
        {
            "corpus": {"source": str(path), "tokenizer": "char", "split": "tail"},
            "model": {"context_length": 11, "d_model": 6, "num_heads": 2, "num_layers": 1, "dropout": 0.1},
            "training": {
                "steps": 6,
                "batch_size": 3,
                "evaluate_every": 3,
                "log_every": 1,
                "device": "cpu",
                "optimizer": {"name": "adamw", "learning_rate": 0.01},
            },
        }
    )


@pytest.fixture(scope="session")
def trained(tiny: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    """The study `no-attention` with two seeds, really trained."""
    return run_study(FOUR, tiny, tmp_path_factory.mktemp("study"), seeds=[5, 7])
