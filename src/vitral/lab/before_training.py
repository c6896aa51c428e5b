"""A text and a model before training, from Python: `survey` and `count`."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitral.core.checked import Count, Finite, checked
from vitral.data import Corpus, Dataset, load_corpus, prepare
from vitral.lab.configuration import pinned, plan_run, presets, refuse_choices
from vitral.lab.new_runs import text, text_layer
from vitral.lab.run import Run
from vitral.lab.text_plan import TextPlan, written_plan
from vitral.reports.model import ModelCount
from vitral.reports.text import Survey, survey_dataset
from vitral.runs import RunConfig, is_run, load_run
from vitral.training.plans import FIT


@checked
def survey(
    source: str | Path | Run = "sample", *, minutes: Finite | None = None, context: Count | None = None, **corpus: Any
) -> Survey:
    """Report on a text before training: size, alphabet, duplicates, problems, n-gram baselines, and how to train on it.

    Tokenizer, split, context and batches are those of `train` with the same arguments. A run's folder gives the report
    on its text, tokenized and split as in the run. The command is `vitral corpus`.

    Args:
        source: a known text's name, a file, a folder, or a run.
        minutes: training time that the text is planned for; 2 if None.
        context: tokens in the model's input; None: that of the plan.
        corpus: other keys of the `[corpus]` table, for example `tokenizer="bpe:1024", split="tail"`.

    Raises:
        UsageError: the text cannot be read, or is too short.
    """
    if isinstance(source, Run) or is_run(source):
        run = source if isinstance(source, Run) else Run(source)
        refuse_choices(str(run.path), minutes=minutes, context=context, **corpus)
        return _survey_run(run)
    known, name = presets(), text(source)
    start = name if name in known and known[name].run["corpus"]["source"] == name else None
    layers = [{"corpus": {**corpus, "source": name}}, pinned(None, context)]
    plan = plan_run(start, minutes=minutes, overrides=layers)
    read = plan.corpus or load_corpus(plan.config.corpus)
    return _survey(prepare(plan.config.corpus, corpus=read), read, plan.config, plan.text)


def _survey_run(run: Run) -> Survey:
    dataset, config = run.dataset(), run.sealed.config
    return _survey(dataset, dataset.load_text(), config, written_plan(config, f"the run {run.path}"))


def _survey(dataset: Dataset, read: Corpus, config: RunConfig, plan: TextPlan) -> Survey:
    surveyed = survey_dataset(
        dataset,
        read.text,
        context_length=config.model.context_length,
        batch_size=config.training.batch_size,
    )
    return replace(surveyed, plan=tuple(plan.plain()), advice=plan.lines)


@checked
def count(
    start: str | Path | Run = "shakespeare",
    *,
    corpus: str | Path | Mapping[str, Any] | None = None,
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
        overrides: tables of the configuration, and arguments about the text, as for `train`.

    Raises:
        UsageError: an invalid configuration, or its text cannot be read.
    """
    of_text = {"corpus": corpus, "vocabulary": vocabulary, "tokenizer": tokenizer}
    return ModelCount.of(*configured(start, minutes=minutes, context=context, **of_text, **overrides))


def configured(
    start: str | Path | Run,
    *,
    corpus: str | Path | Mapping[str, Any] | None = None,
    vocabulary: Count | None = None,
    minutes: Finite | None = None,
    tokenizer: str | None = None,
    context: Count | None = None,
    **overrides: Any,
) -> tuple[str, RunConfig, int, tuple[str, ...]]:
    """Name, configuration and vocabulary of what `count` and `forecast` are asked about, and lines of advice.

    Args and errors are those of `count`.
    """
    name = str(start.path) if isinstance(start, Run) else text(start)
    if isinstance(start, Run) or is_run(name):
        chosen = {"corpus": corpus, "vocabulary": vocabulary, "minutes": minutes}
        refuse_choices(name, **chosen, tokenizer=tokenizer, context=context, **overrides)
        run = start if isinstance(start, Run) else load_run(Path(name))
        return name, run.sealed.config, run.tokenizer.vocab_size, ()
    known = presets()
    layers = [text_layer(overrides), pinned(tokenizer, context), overrides]
    plan = plan_run(name, corpus=text(corpus), minutes=minutes, overrides=layers)
    if plan.corpus is not None or plan.config.training.plan == FIT:
        dataset = plan.dataset()
        fitted = plan.fitted(dataset)
        advice = (*plan.text.lines, *fitted.notes)
        return name, fitted.config, vocabulary or dataset.tokenizer.vocab_size, advice
    if vocabulary is None:
        nominal = corpus is None and tokenizer is None and name in known
        vocabulary = known[name].vocabulary if nominal else plan.dataset().tokenizer.vocab_size
    return name, plan.config, vocabulary, ()
