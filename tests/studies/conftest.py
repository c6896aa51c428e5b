"""Results for all tests of studies: made up from losses that a test chooses, and a tiny one that is really trained."""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pieces import ten_words

from tests.conftest import Once
from vitral.core.config import merge
from vitral.data import prepare
from vitral.evaluation import NgramBaselines
from vitral.model import Transformer
from vitral.report import style
from vitral.report.sections import Table
from vitral.report.study_tables import view_tables
from vitral.studies import ArmResult, RunResult, Study, StudyResult, run_study, study_named
from vitral.studies.probe import ArmMeasures, Trained, View
from vitral.studies.probes import probe_named
from vitral.studies.resolution import resolve
from vitral.studies.results import run_name
from vitral.training import RunConfig

Made = Callable[..., StudyResult]
NO_STUDY: Any = None
"""For views that read nothing of the study's result."""
WHOLE = study_named("no-attention")
FOUR = WHOLE.model_copy(update={"arms": WHOLE.arms[:4], "tune": {}})
"""The study `no-attention` with its first four arms, not tuned."""
PAIR = Study.parse(
    {
        "name": "pair",
        "title": "A pair",
        "question": "Does the norm's place matter?",
        "arms": [
            {"name": "pre", "title": "norm before"},
            {"name": "post", "title": "norm after", "changes": {"model": {"norm": "post"}}},
        ],
    }
)
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
            return RunResult(seed, tmp_path / run_name(arm, seed), curve, 2.9, validation, loss, 1.5, stopped)

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


class Log:
    """A callback that remembers runs, notes and measurements, and can stop the program at an event."""

    def __init__(self, stop_at: tuple[str, int, int] | None = None) -> None:
        """Stop at the event of this kind, run number and step, if one is given."""
        self.stop_at = stop_at
        self.runs: list[tuple[str, int, str]] = []
        self.events: dict[str, list[Any]] = {"note": [], "probe": [], "step": []}

    @property
    def states(self) -> set[str]:
        """What was done with the runs: found, resumed or trained."""
        return {state for _, _, state in self.runs}

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Note what happens."""
        kind = event["event"]
        if kind == "run":
            self.runs.append((event["arm"], event["seed"], event["state"]))
        if kind in self.events:
            self.events[kind].append(event[{"note": "text", "probe": "subject", "step": "step"}[kind]])
        if (kind, event.get("run"), event.get("step")) == self.stop_at:
            raise KeyboardInterrupt


def unfinished(run: Path) -> Path:
    """A run moved to where it is trained, as an ended process leaves it."""
    return run.rename(run.with_name(f".{run.name}.{'0' * 32}"))


def tables(view: View) -> list[Table]:
    """Of a page of a probe."""
    return view_tables(view)


def measures(arms: Mapping[str, Mapping[int, Any]], **configs: Any) -> list[ArmMeasures]:
    """Made-up measures, by arm and seed, with the configurations of some arms."""
    return [ArmMeasures(name, f"the arm {name}", configs.get(name, {}), runs) for name, runs in arms.items()]


def viewed(probe: str, arms: Mapping[str, Mapping[int, Any]], **configs: Any) -> View:
    """The view of made-up measures."""
    return probe_named(probe).view(NO_STUDY, measures(arms, **configs))


def is_plain(measured: Any) -> bool:
    """Whether JSON keeps it as it is."""
    return json.loads(json.dumps(measured, allow_nan=False)) == measured


@pytest.fixture(scope="module", autouse=True)
def _without_waiting_for_the_disk() -> Iterator[None]:
    """Nobody pulls the plug here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="module")
def only_svg() -> Iterator[None]:
    """Figures without their files for papers, which take most of the time of a page."""
    with pytest.MonkeyPatch.context() as patch:
        draw = style.drawn_bytes
        patch.setattr(style, "drawn_bytes", lambda figure, kind: draw(figure, kind) if kind == "svg" else b"")
        yield


def fresh(config: RunConfig, **model: Any) -> Trained:
    """A fresh model in place of a trained one: measuring does not ask whether it learned anything."""
    config, dataset = RunConfig.parse(merge(config.plain(), {"model": model})), prepare(config.corpus)
    made = Transformer(config.model, dataset.tokenizer.vocab_size, seed=config.seed).eval()
    run: Any = SimpleNamespace(
        sealed=SimpleNamespace(config=config), model=made, tokenizer=dataset.tokenizer, config=config.plain()
    )
    return Trained("base", 1, run, dataset, "quick")


@pytest.fixture(scope="session")
def tiny(once: Once) -> RunConfig:
    """A run that is trained in a moment, on a text of its own."""

    def write(folder: Path) -> None:
        folder.mkdir()
        ten_words(folder / "words.txt", 700)

    return RunConfig.parse(
        {
            "corpus": {
                "source": str(once("study-words", write) / "words.txt"),
                "tokenizer": "char",
                "split": "tail",
            },
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
def trained(tiny: RunConfig, once: Once, tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    """The study `no-attention` with two seeds, really trained; its folder is this process's own."""
    made = once("no-attention", lambda folder: run_study(FOUR, tiny, folder, seeds=[5, 7]))
    return run_study(FOUR, tiny, shutil.copytree(made, tmp_path_factory.mktemp("study") / "s"), seeds=[5, 7])
