"""The library's face: `vitral.train`, `vitral.load`, `vitral.study` and the other operations, named as the commands.

A function here takes what its command takes, refuses what its command refuses (`vitral.core.errors.VitralError`),
and returns an object instead of printing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitral.core.checked import Count, Finite, checked
from vitral.core.parts import register
from vitral.core.renamed import renamed
from vitral.data import Corpus, Dataset, load_corpus, prepare
from vitral.explanation import CheckReport, Exercise
from vitral.explanation import check as check_example
from vitral.explanation.examples.example import Example
from vitral.lab.configuration import Preset, configure, pinned, plan_run, presets, refuse_choices
from vitral.lab.examples import find_example, make_exercise
from vitral.lab.run import Generation, Measures, Run
from vitral.lab.study_plan import StudyPlan, plan_study
from vitral.lab.text_plan import TextPlan, written_plan
from vitral.reports.model import ModelCount
from vitral.reports.study import StudyPage
from vitral.reports.text import Survey, survey_dataset
from vitral.runs import RunConfig, is_run, load_run
from vitral.training import Callback, silent
from vitral.training import continue_run as continue_training
from vitral.training import resume as resume_run
from vitral.training.deadline import TimeFrame
from vitral.training.plans import FIT

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
    "continue_run",
    "count",
    "exercise",
    "free_folder",
    "load",
    "plan_study",
    "presets",
    "register",
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
    minutes: Finite | None = None,
    tokenizer: str | None = None,
    context: Count | None = None,
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
        minutes: training time; 2 for a bare text.
        tokenizer: "char", "byte", "bpe" or "bpe:1024". None: that of the configuration, or for a bare text that of its
            plan.
        context: tokens in the model's input; None as for `tokenizer`.
        init_from: a run whose weights to start from (fine-tuning); new characters are added to its vocabulary.
        callback: called with every event of training; if it raises, the run is saved first.
        overrides: tables of the configuration, for example `model={"d_model": 64}, training={"steps": 100}`;
            `specials=["<|endoftext|>"]`, special tokens of the text; and with `init_from` `replace=" "`, a character
            that replaces those that the run has never seen, which are then not added.

    Raises:
        UsageError: an invalid argument or configuration, in one line.
        TrainingStopped: a number was not finite.
        StorageError: writing to disk failed.
    """
    if "reporter" in overrides:
        renamed("reporter", "callback")
        callback = overrides.pop("reporter")
    frame = TimeFrame()
    source = None if init_from is None else Path(init_from)
    of_text = {"specials": "specials", "replace": "replacement"}
    given = {key: overrides.pop(name) for name, key in of_text.items() if overrides.get(name) is not None}
    layers = [overrides, pinned(tokenizer, context), {"corpus": given}]
    plan = plan_run(start, corpus=corpus, init_from=source, minutes=minutes, overrides=layers)
    folder = Path(out) if out is not None else free_folder(start or plan.config.corpus.source)
    return Run(plan.train(folder, callback, frame).path)


@checked(first=True)
def resume(
    run: str | Path,
    *,
    callback: Callback = silent,
    corpus: str | None = None,
    strict: bool = False,
    changed_parts: bool = False,
) -> Run:
    """Continue a run from its last checkpoint, with the same result as if it had never stopped.

    Args:
        run: the run's folder.
        callback: called with every event of training.
        corpus: the run's text, if it is no longer where it was: a file, a folder or a name.
        strict: whether to refuse another processor or PyTorch than before, with which other bits may result.
        changed_parts: whether to go on although the source of an own part has changed; the new one is recorded.

    Raises:
        UsageError: not a run, a finished run, or its text has changed.
        TrainingStopped: a number was not finite.
        StorageError: writing to disk failed.
    """
    resume_run(Path(run), callback=callback, corpus=corpus, strict=strict, changed_parts=changed_parts)
    return Run(run)


@checked(first=True)
def continue_run(
    run: str | Path,
    out: str | Path | None = None,
    *,
    minutes: Finite | None = None,
    steps: Count | None = None,
    threads: Count | None = None,
    callback: Callback = silent,
    corpus: str | None = None,
) -> Run:
    """Train a finished run for longer, in a new folder, and return the new run; see `vitral.training.continue_run`.

    Args:
        run: the finished run's folder, which does not change.
        out: the new run's folder; a free one under `runs/` if None.
        minutes: time for the new steps; give this or `steps`.
        steps: number of new steps.
        threads: threads of the processor; those of the finished run if None.
        callback: called with every event of training.
        corpus: the run's text, if it is no longer where it was: a file, a folder or a name.

    Raises:
        UsageError: not a run, not finished, or its text has changed.
        TrainingStopped: a number was not finite.
        StorageError: writing to disk failed.
    """
    folder = Path(out) if out is not None else free_folder(str(run))
    how = {"minutes": minutes, "steps": steps, "threads": threads}
    continue_training(Path(run), folder, **how, callback=callback, corpus=corpus)
    return Run(folder)


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
def survey(
    source: str = "sample", *, minutes: Finite | None = None, context: Count | None = None, **corpus: Any
) -> Survey:
    """Report on a text before training: size, alphabet, duplicates, problems, n-gram baselines, and how to train on it.

    Tokenizer, split, context and batches are those of `train` with the same arguments. A run's folder gives the report
    on its text, tokenized and split as in the run.

    Args:
        source: a known text's name, a file, a folder, or a run.
        minutes: training time that the text is planned for; 2 if None.
        context: tokens in the model's input; None: that of the plan.
        corpus: other keys of the `[corpus]` table, for example `tokenizer="bpe:1024", split="tail"`.

    Raises:
        UsageError: the text cannot be read, or is too short.
    """
    if is_run(source):
        refuse_choices(source, minutes=minutes, context=context, **corpus)
        return _survey_run(source)
    known = presets()
    start = source if source in known and known[source].run["corpus"]["source"] == source else None
    layers = [{"corpus": {**corpus, "source": source}}, pinned(None, context)]
    plan = plan_run(start, minutes=minutes, overrides=layers)
    text = plan.corpus or load_corpus(plan.config.corpus)
    return _survey(prepare(plan.config.corpus, corpus=text), text, plan.config, plan.text)


def _survey_run(path: str) -> Survey:
    run = Run(path)
    dataset, config = run.dataset(), run.sealed.config
    return _survey(dataset, dataset.load_text(), config, written_plan(config, f"the run {path}"))


def _survey(dataset: Dataset, text: Corpus, config: RunConfig, plan: TextPlan) -> Survey:
    surveyed = survey_dataset(
        dataset,
        text.text,
        context_length=config.model.context_length,
        batch_size=config.training.batch_size,
    )
    return replace(surveyed, plan=tuple(plan.plain()), advice=plan.lines)


@checked(first=True)
def count(
    start: str = "shakespeare",
    *,
    corpus: str | Mapping[str, Any] | None = None,
    vocabulary: Count | None = None,
    minutes: Finite | None = None,
    tokenizer: str | None = None,
    context: Count | None = None,
    **overrides: Any,
) -> ModelCount:
    """Count parameters, operations and bytes of a model before it is trained, or of a run.

    Args:
        start: a preset, a `.toml` file, a text (the model that `train` would use for it here and now, by timing a few
            steps), or a run.
        corpus: count with this text's vocabulary; or a table with keys of `[corpus]`.
        vocabulary: count with this many tokens. If neither is given, a preset is counted with its own nominal
            vocabulary, a `.toml` file and a text with that of the text, a run with its own.
        minutes: as for `train`.
        tokenizer: as for `train`.
        context: as for `train`.
        overrides: tables of the configuration, as for `train`.

    Raises:
        UsageError: an invalid configuration, or its text cannot be read.
    """
    layers = [overrides, pinned(tokenizer, context)]
    if is_run(start):
        chosen = {"corpus": corpus, "vocabulary": vocabulary, "minutes": minutes}
        refuse_choices(start, **chosen, tokenizer=tokenizer, context=context, **overrides)
        run = load_run(Path(start))
        return ModelCount.of(start, run.sealed.config, run.tokenizer.vocab_size)
    known = presets()
    plan = plan_run(start, corpus=corpus, minutes=minutes, overrides=layers)
    if plan.corpus is not None or plan.config.training.plan == FIT:
        dataset = plan.dataset()
        fitted = plan.fitted(dataset)
        advice = (*plan.text.lines, *fitted.notes)
        return ModelCount.of(start, fitted.config, vocabulary or dataset.tokenizer.vocab_size, advice)
    if vocabulary is None:
        nominal = corpus is None and tokenizer is None and start in known
        vocabulary = known[start].vocabulary if nominal else plan.dataset().tokenizer.vocab_size
    return ModelCount.of(start, plan.config, vocabulary)


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
        sizes: fields of `vitral.explanation.Exercise`: positions, d_model, num_heads, mask, scale, seed.

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
