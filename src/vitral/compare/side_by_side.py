"""Runs side by side: what may be compared, losses in blocks of the same test text, curves, samples."""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

from vitral.compare import BITS, NATS, ComparedRun, PairedDifference, Relation, RunComparison, short_names
from vitral.core.errors import UsageError, VitralError, reason
from vitral.core.language import N_
from vitral.decoding import Sampling, answered, generate
from vitral.evaluation import block_differences, evaluate_split, target_losses
from vitral.evaluation.intervals import LEVEL, mean_interval
from vitral.evaluation.losses import final_split, reading_of_config
from vitral.evaluation.masking import masking_of
from vitral.runs import RunSummary, load_run, runs_below, summarize_run
from vitral.runs.config import comparable
from vitral.runs.loading import LoadedRun
from vitral.runs.objectives import predicts_next
from vitral.runs.summary import readable_path

TEMPERATURE = 0.8
"""Of the samples."""


def compare(
    named: Iterable[Path],
    *,
    prompt: str,
    seed: int,
    max_tokens: int,
    corpora: Sequence[str | Path],
    losses: bool,
) -> RunComparison:
    """Compare runs: configurations, what may be compared, losses with paired intervals, curves, samples, speeds.

    Losses are those of the best checkpoints on the whole test split. Each run is compared with the first before it that
    has the same test text in the same tokens, in nats per token; else with the first that has the same test text, in
    bits per character. Losses on other texts are not compared. The runs below a folder stand in the order of their
    names: a reference that is chosen by the losses compared would make the intervals too narrow.

    Args:
        named: two or more runs, or folders of runs.
        prompt: that every run continues.
        seed: of the samples.
        max_tokens: of the samples.
        corpora: texts of one or more of the runs, if they are no longer where they were: files, folders or names.
        losses: whether to measure losses, which takes a pass over the test split for each run.

    Raises:
        UsageError: fewer than two runs, or one of them cannot be read.
    """
    notes, runs, named, summaries = list[str](), list[ComparedRun](), [*named], dict[str, RunSummary]()
    for below in map(runs_below, named):
        for run in below:
            if (path := os.path.realpath(run.path)) not in summaries or run.path in named:
                summaries[path] = run
    names = short_names([summary.path for summary in summaries.values()])
    for summary, name in zip(summaries.values(), names, strict=True):
        try:
            run = load_run(summary.path)
        except VitralError as error:
            if summary.path in named:
                raise
            left_out = N_("{run}: left out: {reason}")
            notes.append(left_out.format(run=readable_path(summary.path), reason=error))
            continue
        run.model.float()
        sample = _sample(run, prompt, max_tokens, seed, corpora)
        runs.append(_compared(run, replace(summary, name=name), sample, corpora if losses else None))
    if len(runs) < 2:
        raise UsageError(
            "compare needs two runs or more; name runs, or a folder that contains them{notes}",
            notes="".join(f"; {note}" for note in notes),
        )
    return RunComparison(tuple(runs), tuple(_relations(runs)), prompt, seed, tuple(notes))


def related(run: LoadedRun, other: LoadedRun, corpora: Sequence[str | Path] = ()) -> dict[str, Any]:
    """How a run differs from another, both with the checkpoints that are loaded, as plain data.

    Returns:
        {"batches", "changed", "difference"}: as in `Relation`, as in `RunComparison`, and the loss of the run minus
        that of the other as a `PairedDifference`, or None.
    """
    runs = [_compared(each, summarize_run(each.folder.path), {}, corpora) for each in (other, run)]
    (relation,) = _relations(runs)
    changed = RunComparison(tuple(runs), (relation,), "", 0).changed
    return {
        "batches": relation.batches,
        "changed": [*changed],
        "difference": relation.difference and asdict(relation.difference),
    }


def _sample(run: LoadedRun, prompt: str, max_tokens: int, seed: int, corpora: Sequence[str | Path]) -> dict[str, Any]:
    """The prompt with the run's continuation, or why there is none; of records, answers to their own questions."""
    try:
        run.sealed.require_causal_lm()
        if run.sealed.config.corpus.records is not None:
            split = run.sealed.dataset(run.sealed.own_among(corpora)).splits["test"]
            answers = answered(run.model, run.tokenizer, split, reading_of_config(run.model.config), max_tokens)
            return {"sample": "\n".join(answers)}
        return {"sample": continued(run, prompt, max_tokens, seed)}
    except UsageError as error:
        return {"missing_sample": reason(error)}


def continued(run: LoadedRun, prompt: str, max_tokens: int, seed: int) -> str:
    """The prompt with the run's continuation, at `TEMPERATURE`.

    Raises:
        UsageError: the prompt is too long, or has a character that the model has never seen.
    """
    how = Sampling(temperature=TEMPERATURE)
    (sample,) = generate(run.model, run.tokenizer, [prompt], max_tokens=max_tokens, sampling=how, seed=seed)
    return sample.prompt + sample.text


def _compared(
    run: LoadedRun, summary: RunSummary, sample: dict[str, Any], corpora: Sequence[str | Path] | None
) -> ComparedRun:
    """The run with its losses on the test split, target by target; of another objective only their mean."""
    config, losses = run.sealed.config, dict[str, Any]()
    try:
        if corpora is not None:
            dataset = run.sealed.dataset(run.sealed.own_among(corpora))
            split, masking = final_split(dataset), masking_of(config.training.objective, run.tokenizer)
            losses["whole_test_split"] = split is dataset.splits["test"]
            if predicts_next(config.training.objective):
                losses["targets"] = target_losses(run.model, split, run.tokenizer)
                losses["loss"] = losses["targets"].whole
            else:
                losses["loss"] = evaluate_split(run.model, split, run.tokenizer, masking=masking)
    except UsageError as error:
        losses = {"missing": reason(error)}
    speeds = []
    with suppress(UsageError):
        speeds = [event["tokens_per_second"] for event in run.folder.metrics("step")]
    return ComparedRun(
        summary=summary,
        sealed=run.sealed,
        config=comparable(config),
        checkpoint=run.checkpoint.step,
        tokens_per_step=config.tokens_per_step,
        tokens_per_second=median(speeds) if speeds else None,
        **losses,
        **sample,
    )


def _relations(runs: Sequence[ComparedRun]) -> list[Relation]:
    """Each run but the first beside the first before it with its test tokens, else its test text, else of all."""
    pairs = []
    for index, run in enumerate(runs[1:], start=1):
        units = {_comparable(run, other): other for other in reversed(runs[:index])}
        unit = min(units, key=(NATS, BITS, "nothing").index)
        pairs.append((run, units[unit], unit))
    confidence = 1 - LEVEL / max(1, sum(unit != "nothing" for *_, unit in pairs))
    return [_relation(run, other, unit, confidence) for run, other, unit in pairs]


def _comparable(run: ComparedRun, other: ComparedRun) -> str:
    one, two = run.summary, other.summary
    if one.objective != two.objective or not _same(one.test_text, two.test_text):
        return "nothing"
    if _same(one.test_tokens, two.test_tokens):
        return NATS
    return BITS if run.whole_test_split and other.whole_test_split else "nothing"


def _same(one: str | None, two: str | None) -> bool:
    """Whether two marks are equal; an unknown one is equal to none."""
    return one is not None and one == two


def _relation(run: ComparedRun, other: ComparedRun, unit: str, confidence: float) -> Relation:
    one, two = run.summary, other.summary
    batches, differ = _batches(run, other)
    why, difference = "", None
    try:
        difference = None if unit == "nothing" else _difference(run, other, unit, confidence)
    except UsageError as error:
        why = reason(error)
    return Relation(
        run=one.name,
        against=two.name,
        same_text=_same(*(each.sealed.document("corpus").get("sha256") for each in (run, other))),
        same_test=_same(one.test_text, two.test_text),
        same_tokens=_same(one.test_tokens, two.test_tokens),
        same_task=one.objective == two.objective,
        batches=batches,
        batches_differ=differ,
        comparable=unit,
        difference=difference,
        why=why,
    )


def _difference(run: ComparedRun, other: ComparedRun, unit: str, confidence: float) -> PairedDifference:
    if run.summary.objective != "next-token":
        raise UsageError("paired losses are those of next tokens, not of masked ones")
    one, two, same_tokens = run.targets, other.targets, unit == NATS
    if one is None or two is None:
        raise UsageError(run.missing or other.missing or N_("the losses were not measured"))
    blocks = [float(value) for value in block_differences(one, two, same_tokens=same_tokens)]
    interval = mean_interval(blocks, confidence)
    shared = int((one.nats + two.nats == one.nats + two.nats).sum()) if same_tokens else None  # NaN is not itself
    return PairedDifference(unit, interval.mean, interval.low, interval.high, confidence, tuple(blocks), shared)


def _batches(run: ComparedRun, other: ComparedRun) -> tuple[str, tuple[str, ...]]:
    """Whether two runs were trained on the same batches, and by what they differ."""
    one, two = run.sealed.newest, other.sealed.newest
    if one and two and one.step == two.step and one.state.get("chain") and one.state["chain"] == two.state.get("chain"):
        return "same", ()
    right = _drawing(other)
    differ = tuple(key for key, value in _drawing(run).items() if value != right[key])
    return ("other", differ) if differ else ("same by configuration", ())


def _drawing(run: ComparedRun) -> dict[str, Any]:
    """Everything that decides which windows a run is trained on."""
    training = run.config["training"]
    fingerprint = run.sealed.document("corpus").get("fingerprint") or run.name  # unknown: like no other
    return {
        N_("text, tokens or training split"): fingerprint,
        N_("seed"): run.config["seed"],
        "batch_size": training["batch_size"],
        "accumulation": training["accumulation"],
        "context_length": run.config["model"]["context_length"],
        N_("first step"): (training.get("schedule") or {}).get("begin"),
    }
