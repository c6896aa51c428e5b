"""Runs side by side: what may be compared, losses in blocks of the same test text, curves, samples."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from vitral.core.checked import Count, Natural, checked
from vitral.core.errors import UsageError, VitralError, reason
from vitral.core.language import N_, in_language
from vitral.data import Dataset
from vitral.data.batches import Split
from vitral.evaluation import SplitLoss, TargetLosses, block_differences, evaluate_split, target_losses
from vitral.lab.run import SAMPLE_TEMPERATURE, Run
from vitral.reports.relations import (
    BITS,
    NATS,
    Batches,
    Comparable,
    ComparedRun,
    CurvePoint,
    PairedDifference,
    Relation,
)
from vitral.reports.runs import runs_below
from vitral.reports.side_by_side import RunComparison
from vitral.runs import RunSummary, is_run, summarize_run
from vitral.runs.config import comparable
from vitral.runs.search import readable_path
from vitral.studies.claims import LEVEL
from vitral.studies.intervals import mean_interval
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
        text: the SHA-256 of its text; None if unknown.
        trained_on: the fingerprint of its text, tokens and training split; None if unknown.
        chain: the hash of all its batches so far, and their number of steps.
        parent: identity of the run whose weights it began with, if any.
    """

    shown: ComparedRun
    targets: TargetLosses | None
    text: str | None
    trained_on: str | None
    chain: tuple[str, int]
    parent: str | None


@dataclass(frozen=True)
class _Found:
    """A run that is to be compared.

    Attributes:
        summary: the run in a few numbers.
        corpus: the text that was given for it; None: where the run knows it.
        is_named: whether it was named itself, and not found below a folder.
    """

    summary: RunSummary
    corpus: str | Path | None = None
    is_named: bool = True


@checked
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
    bits per character. Losses on other texts are not compared. The runs below a folder stand in the order of their
    names: a reference that is chosen by the losses compared would make the intervals too narrow.

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
    found = _named(_found(runs, notes))
    if len(found) < 2:
        raise UsageError("compare needs two runs or more; name runs, or a folder that contains them")
    if len(found) > MOST_RUNS:
        raise UsageError("compare: {count:,} runs are more than {most:,}; name fewer", count=len(found), most=MOST_RUNS)
    how = {"max_tokens": max_tokens, "seed": seed, "temperature": SAMPLE_TEMPERATURE}
    loaded = _loaded(found, notes)
    measured = [_measured(run, each.summary, prompt, how, corpus, losses=losses) for each, run in loaded]
    return RunComparison(
        tuple(each.shown for each in measured), tuple(_relations(measured)), prompt, seed, tuple(notes)
    )


def _found(given: Sequence[str | Path | Run], notes: list[str]) -> list[_Found]:
    """The runs that were named, and those below named folders; each once."""
    found: dict[str, _Found] = {}
    for each in given:
        if isinstance(each, Run):
            inside = [_Found(summarize_run(each.path), each.corpus)]
        elif is_run(Path(each)):
            inside = [_Found(summarize_run(Path(each)))]
        else:
            below = runs_below(Path(each))
            left_out = [run for run in below.runs if run.state == "damaged" or run.best_step is None]
            notes += below.notes
            notes += [
                N_("{run}: left out, since it is damaged or has no evaluation").format(run=readable_path(run.path))
                for run in left_out
            ]
            inside = [_Found(run, is_named=False) for run in below.runs if run not in left_out]
        for one in inside:
            place = os.path.realpath(one.summary.path)
            before = found.get(place, one)
            is_named, corpus = before.is_named or one.is_named, one.corpus if before.corpus is None else before.corpus
            found[place] = replace(before, is_named=is_named, corpus=corpus)
    return list(found.values())


def _named(found: Sequence[_Found]) -> list[_Found]:
    """The runs with names as short as they can be told apart: the last parts of their paths."""
    parts = [Path(os.path.abspath(each.summary.path)).parts for each in found]
    length = 1
    while len({each[-length:] for each in parts}) < len(parts) and length < max(map(len, parts)):
        length += 1
    names = [readable_path("/".join(each[-length:])) for each in parts]
    return [replace(each, summary=replace(each.summary, name=name)) for each, name in zip(found, names, strict=True)]


def _loaded(found: Sequence[_Found], notes: list[str]) -> list[tuple[_Found, Run]]:
    """The runs with their weights; what was found below a folder and cannot be loaded is left out with a note.

    Raises:
        VitralError: a run that was named cannot be loaded, or fewer than two can.
    """
    loaded: list[tuple[_Found, Run]] = []
    for each in found:
        if each.is_named:
            loaded.append((each, Run(each.summary.path, corpus=each.corpus)))
            continue
        try:
            loaded.append((each, Run(each.summary.path)))
        except VitralError as error:
            run = readable_path(each.summary.path)
            sentence = N_("{run}: left out, since it cannot be loaded ({reason})")
            notes.append(sentence.format(run=run, reason=error))
    if len(loaded) < 2:
        raise UsageError("compare needs two runs or more; {reason}", reason=notes[-1])
    return loaded


def _measured(
    run: Run, summary: RunSummary, prompt: str, how: Mapping[str, Any], corpus: str | Path | None, *, losses: bool
) -> _Measured:
    sealed = run.sealed
    record, state = sealed.document("corpus"), {} if sealed.newest is None else sealed.newest.state
    targets, loss, sample, why, why_no_sample = None, None, None, "", ""
    is_whole = True
    try:
        sample = run.generate(prompt, **how)
    except UsageError as error:
        why_no_sample = reason(error)
    if losses:
        try:
            dataset = _dataset(run, summary, corpus)
            split = final_split(dataset)
            is_whole = split is dataset.splits["test"]
            targets, loss = _losses(run, split)
        except UsageError as error:
            why = reason(error)
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
        why_no_sample=why_no_sample,
        is_whole=is_whole,
    )
    chain = (str(state.get("chain", "")), int(summary.step or 0))
    parent = None if sealed.identity.parent is None else sealed.identity.parent.manifest
    return _Measured(shown, targets, record.get("sha256"), record.get("fingerprint"), chain, parent)


def _dataset(run: Run, summary: RunSummary, corpus: str | Path | None) -> Dataset:
    """The run's text: the given one if it is this run's, else where the run knows it."""
    if corpus is not None:
        with suppress(UsageError):  # it may be the text of another run
            return Run(summary.path, corpus=corpus).dataset()
    return run.dataset()


def _losses(run: Run, split: Split) -> tuple[TargetLosses | None, SplitLoss]:
    """The losses on the test split, target by target; of a masked language model only their mean."""
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


def _comparable(run: _Measured, other: _Measured) -> Comparable:
    one, two = run.shown.summary, other.shown.summary
    if one.objective != two.objective or not _same(one.test_text, two.test_text):
        return "nothing"
    if _same(one.test_tokens, two.test_tokens):
        return NATS
    return BITS if run.shown.is_whole and other.shown.is_whole else "nothing"


def _same(one: str | None, two: str | None) -> bool:
    """Whether two marks are equal; an unknown one is equal to none."""
    return one is not None and one == two


def _relation(run: _Measured, other: _Measured, confidence: float) -> Relation:
    one, two = run.shown.summary, other.shown.summary
    batches, differ = _batches(run, other)
    unit = _comparable(run, other)
    relation = Relation(
        run=one.name,
        against=two.name,
        same_text=_same(run.text, other.text),
        same_test=_same(one.test_text, two.test_text),
        same_tokens=_same(one.test_tokens, two.test_tokens),
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
        return replace(relation, why=reason(error))


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
        N_("text, tokens or training split"): run.trained_on or run.shown.name,  # unknown: like no other
        N_("seed"): config["seed"],
        "batch_size": training["batch_size"],
        "accumulation": training["accumulation"],
        "context_length": model["context_length"],
        N_("first step"): (training.get("schedule") or {}).get("begin"),
    }
