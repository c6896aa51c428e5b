"""The library's face: `vitral.train`, `vitral.load`, `vitral.study` and the other operations, named as the commands.

A function here takes what its command takes, refuses what its command refuses (`vitral.core.errors.VitralError`),
and returns an object instead of printing.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vitral.core.checked import Count, checked
from vitral.core.renamed import renamed
from vitral.data import CorpusConfig, load_corpus, prepare
from vitral.explain import CheckReport, Exercise
from vitral.explain import check as check_example
from vitral.explain.examples.example import Example
from vitral.lab.configuration import DEFAULT_PRESET, Preset, configure, presets
from vitral.lab.examples import find_example, make_exercise
from vitral.lab.run import Generation, Measures, Run
from vitral.lab.study_plan import StudyPlan, plan_study
from vitral.model import cost, parameter_table
from vitral.reports.model import ModelCount
from vitral.reports.study import StudyPage
from vitral.reports.text import Survey, survey_dataset
from vitral.training import Callback, silent
from vitral.training import resume as resume_run
from vitral.training import train as train_run

__all__ = [
    "Generation",
    "Measures",
    "ModelCount",
    "Preset",
    "Run",
    "StudyPlan",
    "Survey",
    "check",
    "configure",
    "count",
    "exercise",
    "free_folder",
    "load",
    "plan_study",
    "presets",
    "resume",
    "study",
    "survey",
    "train",
]


@checked(first=True)
def train(
    start: str | None = None,
    out: str | Path | None = None,
    *,
    corpus: str | Mapping[str, Any] | None = None,
    init_from: str | Path | None = None,
    callback: Callback = silent,
    **overrides: Any,
) -> Run:
    """Train a model and return the run.

    Args:
        start: a preset, a `.toml` file, or a text (a file, a folder, a name such as "tinyshakespeare").
        out: the run's folder; a free one under `runs/` if None.
        corpus: the text, instead of the one in `start`; or a table with keys of `[corpus]`, such as
            `{"encoding": "cp1252"}`.
        init_from: a run whose weights to start from (fine-tuning).
        callback: called with every event of training; if it raises, the run is saved first.
        overrides: tables of the configuration, for example `model={"d_model": 64}, training={"steps": 100}`.

    Raises:
        UsageError: an invalid argument or configuration, in one line.
        TrainingStopped: a number was not finite.
        StorageError: writing to disk failed.
    """
    if "reporter" in overrides:
        renamed("reporter", "callback")
        callback = overrides.pop("reporter")
    source = None if init_from is None else Path(init_from)
    config = configure(start, corpus=corpus, init_from=source, overrides=[overrides])
    folder = Path(out) if out is not None else free_folder(start or config.corpus.source)
    train_run(config, folder, callback=callback, init_from=source)
    return Run(folder)


@checked(first=True)
def resume(run: str | Path, *, callback: Callback = silent, corpus: str | None = None, strict: bool = False) -> Run:
    """Continue a run from its last checkpoint, with the same result as if it had never stopped.

    Args:
        run: the run's folder.
        callback: called with every event of training.
        corpus: the run's text, if it is no longer where it was: a file, a folder or a name.
        strict: whether to refuse another processor or PyTorch than before, with which other bits may result.

    Raises:
        UsageError: not a run, a finished run, or its text has changed.
        TrainingStopped: a number was not finite.
        StorageError: writing to disk failed.
    """
    resume_run(Path(run), callback=callback, corpus=corpus, strict=strict)
    return Run(run)


@checked(first=True)
def load(path: str | Path, which: str = "best", *, device: str = "cpu", corpus: str | Path | None = None) -> Run:
    """Load a run's "best" or "last" checkpoint; see `Run`."""
    return Run(path, which, device=device, corpus=corpus)


@checked(first=True)
def study(
    name: str,
    start: str | None = None,
    *,
    budget: str | None = None,
    corpus: str | None = None,
    seeds: Sequence[int] | None = None,
    out: str | Path | None = None,
    callback: Callback = silent,
    **overrides: Any,
) -> StudyPage:
    """Run a study, or continue one that was stopped, and write its report.

    Args:
        name: a study's name or a `.toml` file.
        start: preset or configuration of the base model; the study's own if None.
        budget: "quick", "standard" or "full"; the smallest that the study has if None.
        corpus: the text, instead of the configuration's.
        seeds: the study's own if None.
        out: the study's folder; `studies/NAME-BUDGET` if None.
        callback: called with every event of training and measuring.
        overrides: tables of the base's configuration, as for `train`.

    Raises:
        UsageError: an unknown study, an invalid argument, or the folder contains another study.
        StorageError: writing to disk failed.
    """
    folder = None if out is None else Path(out)
    plan = plan_study(name, start, budget=budget, corpus=corpus, seeds=seeds, overrides=[overrides], out=folder)
    return plan.run(callback=callback)


@checked(first=True)
def survey(source: str = "sample", **corpus: Any) -> Survey:
    """Report on a text before training: size, alphabet, duplicates, problems, n-gram baselines.

    Batches are counted with the context length and batch size of the default preset.

    Args:
        source: a known text's name, a file, or a folder.
        corpus: other keys of the `[corpus]` table, for example `tokenizer="bpe", split="tail"`.

    Raises:
        UsageError: the text cannot be read, or is too short to be split.
    """
    config = CorpusConfig.parse({**corpus, "source": source}, "corpus")
    text = load_corpus(config)
    default = presets()[DEFAULT_PRESET].run
    return survey_dataset(
        prepare(config, corpus=text),
        text.text,
        context_length=default["model"]["context_length"],
        batch_size=default["training"]["batch_size"],
    )


@checked(first=True)
def count(
    start: str = "shakespeare",
    *,
    corpus: str | Mapping[str, Any] | None = None,
    vocabulary: Count | None = None,
    **overrides: Any,
) -> ModelCount:
    """Count parameters, operations and bytes of a model before it is trained.

    Args:
        start: a preset or a `.toml` file.
        corpus: count with this text's vocabulary; or a table with keys of `[corpus]`.
        vocabulary: count with this many tokens. If neither is given, a preset is counted with its own nominal
            vocabulary, and a `.toml` file with that of its text.
        overrides: tables of the configuration, as for `train`.

    Raises:
        UsageError: an invalid configuration, or its text cannot be read.
    """
    known = presets()
    config = configure(start, corpus=corpus, overrides=[overrides])
    if vocabulary is None:
        nominal = corpus is None and start in known
        vocabulary = known[start].vocabulary if nominal else prepare(config.corpus).tokenizer.vocab_size
    return ModelCount(
        name=start or DEFAULT_PRESET,
        vocab_size=vocabulary,
        config=config.model,
        batch_size=config.training.batch_size,
        rows=parameter_table(config.model, vocabulary),
        cost=cost(config.model, vocabulary, config.training.batch_size),
    )


@checked(first=True)
def check(example: str | Path) -> CheckReport:
    """Check a worked example, a `.toml` file or a name of the gallery; print the result to read it.

    Raises:
        UsageError: there is no such example, or it cannot be read; with the line of the file.
    """
    return check_example(find_example(example))


@checked(first=True)
def exercise(file: str | Path | None = None, **sizes: Any) -> Example:
    """Make a small attention exercise with whole numbers, to be solved by hand and checked.

    Args:
        file: write it to this file, with question marks to fill in; not written if None.
        sizes: fields of `vitral.explain.Exercise`: positions, d_model, num_heads, mask, scale, seed.

    Raises:
        UsageError: an invalid size, or the file exists.
        StorageError: writing to disk failed.
    """
    return make_exercise(Exercise(**sizes), None if file is None else Path(file))


@checked(first=True)
def free_folder(name: str) -> Path:
    """A folder for a new run that does not exist yet: `runs/NAME`, then `runs/NAME-2` and so on."""
    stem = Path("runs") / (Path(name).resolve().stem or "run")
    number = 1
    while (candidate := stem if number == 1 else stem.with_name(f"{stem.name}-{number}")).exists():
        number += 1
    return candidate
