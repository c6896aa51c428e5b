"""Runs side by side: what may be compared, losses in blocks of the same test text, curves, samples."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from vitral.core.checked import Count, Natural, checked
from vitral.core.errors import UsageError
from vitral.core.language import N_, in_language
from vitral.data import Dataset
from vitral.evaluation import SplitLoss, TargetLosses, block_differences, evaluate_split, target_losses
from vitral.lab.run import SAMPLE_TEMPERATURE, Run
from vitral.reports.runs import ordered
from vitral.reports.side_by_side import (
    BITS,
    NATS,
    Batches,
    Comparable,
    ComparedRun,
    CurvePoint,
    PairedDifference,
    Relation,
    RunComparison,
)
from vitral.runs import RunSummary, find_runs, is_run, summarize_run
from vitral.runs.config import comparable
from vitral.runs.summary import readable_path
from vitral.studies.claims import LEVEL, mean_interval
from vitral.studies.measures import final_split
from vitral.training.objectives import masking_of

MOST_RUNS = 100
"""Runs that are compared at once."""


@dataclass(frozen=True)
class _Measured:
    """A run while it is compared.

    Attributes:
        shown: what the result says of it.
        targets: its losses, target by target; None where they were not measured.
        text: the SHA-256 of its text.
        trained_on: the fingerprint of its text, tokens and training split.
        chain: the hash of all its batches so far, and their number of steps.
        parent: identity of the run whose weights it began with, if any.
    """

    shown: ComparedRun
    targets: TargetLosses | None
    text: str
    trained_on: str
    chain: tuple[str, int]
    parent: str | None


@checked(first=True)
def compare(
    *runs: str | Path | Run,
    prompt: str = "",
    seed: Natural = 0,
    max_tokens: Count = 200,
    corpus: str | Path | None = None,
    losses: bool = True,
) -> RunComparison:
    """Compare runs: configurations, what may be compared, losses with paired intervals, curves, samples, speeds.

    Losses are those of the best checkpoints on the whole test split. Each run is compared with the first before it that
    has the same test text in the same tokens, in nats per token; else with the first that has the same test text, in
    bits per character. Losses on other texts are not compared.

    Args:
        runs: two or more runs or folders of runs.
        prompt: that every run continues.
        seed: of the samples.
        max_tokens: of the samples.
        corpus: the text of one or more of the runs, if it is no longer where it was: a file, a folder or a name.
        losses: whether to measure losses, which takes a pass over the test split for each run.

    Raises:
        UsageError: fewer than two runs, or one of them cannot be read.
    """
    notes: list[str] = []
    summaries = _named(_found(runs, notes))
    if len(summaries) < 2:
        raise UsageError("compare needs two runs or more; name runs, or a folder that contains them")
    if len(summaries) > MOST_RUNS:
        raise UsageError(
            "compare: {count:,} runs are more than {most:,}; name fewer", count=len(summaries), most=MOST_RUNS
        )
    how = {"max_tokens": max_tokens, "seed": seed, "temperature": SAMPLE_TEMPERATURE}
    measured = [_measured(summary, prompt, how, corpus, losses=losses) for summary in summaries]
    return RunComparison(
        tuple(each.shown for each in measured), tuple(_relations(measured)), prompt, seed, tuple(notes)
    )


def _found(given: Sequence[str | Path | Run], notes: list[str]) -> list[RunSummary]:
    """The runs that were named, and those below named folders; each once."""
    found: dict[str, RunSummary] = {}
    for each in given:
        path = each.path if isinstance(each, Run) else Path(each)
        if isinstance(each, Run) or is_run(path):
            inside = [summarize_run(path, str(path))]
        else:
            below = find_runs(path)
            if not below.runs:
                raise UsageError("{folder}: no run in it; train one with vitral train TEXT", folder=path)
            notes += below.notes
            inside = [replace(run, name=str(run.path)) for run in ordered(below.runs, "loss")]
            left_out = [run for run in inside if run.state == "damaged" or run.best_step is None]
            notes += [
                N_("{run}: left out, since it is damaged or has no evaluation").format(run=readable_path(run.path))
                for run in left_out
            ]
            inside = [run for run in inside if run not in left_out]
        for run in inside:
            found.setdefault(os.path.realpath(run.path), run)
    return list(found.values())


def _named(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """The runs with names as short as they can be told apart: the last parts of their paths."""
    parts = [Path(os.path.abspath(run.path)).parts for run in runs]
    length = 1
    while len({each[-length:] for each in parts}) < len(parts) and length < max(map(len, parts)):
        length += 1
    return [replace(run, name=readable_path("/".join(each[-length:]))) for run, each in zip(runs, parts, strict=True)]


def _measured(
    summary: RunSummary, prompt: str, how: Mapping[str, Any], corpus: str | Path | None, *, losses: bool
) -> _Measured:
    run = Run(summary.path)
    sealed = run.sealed
    record, state = sealed.document("corpus"), {} if sealed.newest is None else sealed.newest.state
    targets, loss, sample, why = None, None, None, ""
    with in_language("en"):  # a reason is data here; it is told in the reader's language where it is shown
        try:
            sample = run.generate(prompt, **how)
        except UsageError as error:
            why = str(error)
        if losses:
            try:
                targets, loss = _losses(run, _dataset(run, summary, corpus))
            except UsageError as error:
                why = str(error)
    events = run.metrics()
    begin = sealed.config.training.schedule.begin or 0
    speeds = [event["tokens_per_second"] for event in events if event["event"] == "step"]
    shown = ComparedRun(
        summary=summary,
        config=comparable(sealed.config),
        checkpoint=run.step,
        loss=loss,
        curve=_curve(events, sealed.config.tokens_per_step, begin),
        tokens_per_second=median(speeds) if speeds else None,
        threads=sealed.identity.current_threads,
        processor=_processor(run),
        sample=sample,
        why=why,
    )
    chain = (str(state.get("chain", "")), int(summary.step or 0))
    parent = None if sealed.identity.parent is None else sealed.identity.parent.manifest
    return _Measured(shown, targets, str(record.get("sha256")), str(record.get("fingerprint")), chain, parent)


def _dataset(run: Run, summary: RunSummary, corpus: str | Path | None) -> Dataset:
    """The run's text: the given one if it is this run's, else where the run knows it."""
    if corpus is not None:
        with suppress(UsageError):  # it may be the text of another run
            return Run(summary.path, corpus=corpus).dataset()
    return run.dataset()


def _losses(run: Run, dataset: Dataset) -> tuple[TargetLosses | None, SplitLoss]:
    """The losses on the test split, target by target; of a masked language model only their mean."""
    split = final_split(dataset)
    if run.is_masked_lm:
        masking = masking_of(run.sealed.config.training.objective, run.tokenizer)
        return None, evaluate_split(run.model, split, run.tokenizer, masking=masking)
    targets = target_losses(run.model, split, run.tokenizer)
    return targets, targets.whole


def _processor(run: Run) -> str | None:
    try:
        return run.sealed.document("environment").get("processor")
    except UsageError:
        return None


def _curve(events: Sequence[Mapping[str, Any]], tokens_per_step: int, begin: int) -> tuple[CurvePoint, ...]:
    """The evaluations of a run, with the time in training steps by the logged speeds."""
    points: list[CurvePoint] = []
    before, seconds, is_timed = begin, 0.0, False
    for event in events:
        if event["event"] == "step" and event["tokens_per_second"] > 0:
            seconds += (event["step"] - before) * tokens_per_step / event["tokens_per_second"]
            before, is_timed = event["step"], True
        elif event["event"] == "evaluation" and event.get("test_loss") is not None:
            step, spent = event["step"], round(seconds, 3) if is_timed else None
            losses = float(event["validation_loss"]), float(event["test_loss"])
            points.append(CurvePoint(step, step * tokens_per_step, spent, *losses))
    return tuple(points)


def _relations(runs: Sequence[_Measured]) -> list[Relation]:
    """Each run but the first beside the first before it with its test tokens, else its test text, else of all."""
    pairs = []
    for index, run in enumerate(runs[1:], start=1):
        units = {unit: other for other in reversed(runs[:index]) if (unit := _comparable(run, other))}
        pairs.append((run, units.get(NATS) or units.get(BITS) or runs[0]))
    wanted = sum(_comparable(run, other) != "nothing" for run, other in pairs)
    confidence = 1 - LEVEL / max(1, wanted)
    return [_relation(run, other, confidence) for run, other in pairs]


def _test(run: _Measured) -> tuple[str | None, str | None]:
    return run.shown.summary.test_text, run.shown.summary.objective


def _comparable(run: _Measured, other: _Measured) -> Comparable:
    if _test(run) != _test(other):
        return "nothing"
    return NATS if run.shown.summary.test_tokens == other.shown.summary.test_tokens else BITS


def _relation(run: _Measured, other: _Measured, confidence: float) -> Relation:
    one, two = run.shown.summary, other.shown.summary
    batches, differ = _batches(run, other)
    unit = _comparable(run, other)
    relation = Relation(
        run=one.name,
        against=two.name,
        same_text=run.text == other.text,
        same_test=one.test_text == two.test_text,
        same_tokens=one.test_tokens == two.test_tokens,
        same_task=one.objective == two.objective,
        batches=batches,
        batches_differ=differ,
        comparable=unit,
    )
    if unit == "nothing":
        return relation
    if run.targets is None or other.targets is None:
        return replace(relation, why=_why_unmeasured(run, other))
    try:
        return replace(relation, difference=_difference(run.targets, other.targets, unit, confidence))
    except UsageError as error:
        return replace(relation, why=str(error))


def _why_unmeasured(run: _Measured, other: _Measured) -> str:
    if run.shown.summary.objective != "next-token":
        return N_("paired losses are those of next tokens, not of masked ones")
    return run.shown.why or other.shown.why or N_("the losses were not measured")


def _difference(one: TargetLosses, two: TargetLosses, unit: str, confidence: float) -> PairedDifference:
    same_tokens = unit == NATS
    with in_language("en"):
        blocks = [float(value) for value in block_differences(one, two, same_tokens=same_tokens)]
    found = mean_interval(blocks, confidence)
    shared = None
    if same_tokens:
        shared = int((one.nats + two.nats == one.nats + two.nats).sum())  # NaN is not equal to itself
    return PairedDifference(unit, found.mean, found.low, found.high, confidence, tuple(blocks), shared)


def _batches(run: _Measured, other: _Measured) -> tuple[Batches, tuple[str, ...]]:
    """Whether two runs were trained on the same batches, and by what they differ."""
    if run.chain == other.chain and run.chain[0]:
        return "same", ()
    left, right = (_drawing(each) for each in (run, other))
    differ = tuple(key for key in left if left[key] != right[key])
    return ("other", differ) if differ else ("same by configuration", ())


def _drawing(run: _Measured) -> dict[str, Any]:
    """Everything that decides which windows a run is trained on."""
    config = run.shown.config
    training, model = config["training"], config["model"]
    return {
        N_("text, tokens or training split"): run.trained_on,
        N_("seed"): config["seed"],
        "batch_size": training["batch_size"],
        "accumulation": training["accumulation"],
        "context_length": model["context_length"],
        N_("first step"): (training.get("schedule") or {}).get("begin"),
    }
