"""Runs side by side: what may be compared, losses in blocks of the same test text, curves, samples."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from vitral.compare.comparison import (
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
from vitral.core.errors import UsageError, VitralError, reason
from vitral.core.language import N_, in_language
from vitral.decoding import Sampling, generate
from vitral.evaluation import TargetLosses, block_differences, evaluate_split, target_losses
from vitral.runs import RunSummary, SealedRun, is_run, load_run, summarize_run
from vitral.runs.config import comparable
from vitral.runs.loading import LoadedRun
from vitral.runs.summary import readable_path, runs_below
from vitral.studies.claims import LEVEL
from vitral.studies.estimator import mean_interval
from vitral.studies.texts import final_split
from vitral.training.objectives import masking_of

TEMPERATURE = 0.8
"""Of the samples."""
LEFT_OUT = N_("{run}: left out: {reason}")


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


@dataclass(frozen=True)
class _Measured:
    """A run that was measured: what the result says of it, its files, and its losses target by target, if measured."""

    shown: ComparedRun
    sealed: SealedRun
    targets: TargetLosses | None = None


def compare(
    named: Iterable[tuple[Path, str | Path | None]],
    *,
    prompt: str = "",
    seed: int = 0,
    max_tokens: int = 200,
    corpus: str | Path | None = None,
    losses: bool = True,
) -> RunComparison:
    """Compare runs: configurations, what may be compared, losses with paired intervals, curves, samples, speeds.

    Losses are those of the best checkpoints on the whole test split. Each run is compared with the first before it that
    has the same test text in the same tokens, in nats per token; else with the first that has the same test text, in
    bits per character. Losses on other texts are not compared. The runs below a folder stand in the order of their
    names: a reference that is chosen by the losses compared would make the intervals too narrow.

    Args:
        named: two or more runs, or folders of runs, each with the text that was given for it, if any.
        prompt: that every run continues.
        seed: of the samples.
        max_tokens: of the samples.
        corpus: the text of one or more of the runs, if it is no longer where it was: a file, a folder or a name.
        losses: whether to measure losses, which takes a pass over the test split for each run.

    Raises:
        UsageError: fewer than two runs, or one of them cannot be read.
    """
    notes: list[str] = []
    measured: list[_Measured] = []
    for each in _with_short_names(_found(named, notes)):
        try:
            run = load_run(each.summary.path)
        except VitralError as error:
            if each.is_named:
                raise
            notes.append(LEFT_OUT.format(run=readable_path(each.summary.path), reason=error))
            continue
        run.model.float()
        one = _unmeasured(run, each.summary, _sample(run, prompt, max_tokens, seed))
        measured.append(_measured(run, one, each.corpus, corpus) if losses else one)
    if len(measured) < 2:
        raise UsageError(
            "compare needs two runs or more; name runs, or a folder that contains them{notes}",
            notes="".join(f"; {note}" for note in notes),
        )
    relations = tuple(_relations(measured))
    return RunComparison(tuple(each.shown for each in measured), relations, prompt, seed, tuple(notes))


def _found(named: Iterable[tuple[Path, str | Path | None]], notes: list[str]) -> list[_Found]:
    """The runs that were named, and those below named folders; each once."""
    found: dict[str, _Found] = {}
    for path, corpus in named:
        if is_run(path):
            one = _Found(summarize_run(path), corpus)
            place = os.path.realpath(path)
            before = found.get(place, one)
            found[place] = replace(one, corpus=corpus if before.corpus is None else before.corpus)
            continue
        below = runs_below(path)
        notes += below.notes
        for run in below.runs:
            if run.state == "damaged" or run.best_step is None:
                why = N_("it is damaged or has no evaluation")
                notes.append(LEFT_OUT.format(run=readable_path(run.path), reason=why))
            else:
                found.setdefault(os.path.realpath(run.path), _Found(run, is_named=False))
    return list(found.values())


def _with_short_names(found: Sequence[_Found]) -> list[_Found]:
    """The runs with names as short as they can be told apart: the last parts of their paths."""
    parts = [Path(os.path.abspath(each.summary.path)).parts for each in found]
    length = 1
    while len({each[-length:] for each in parts}) < len(parts) and length < max(map(len, parts)):
        length += 1
    names = [readable_path("/".join(each[-length:])) for each in parts]
    return [replace(each, summary=replace(each.summary, name=name)) for each, name in zip(found, names, strict=True)]


def _sample(run: LoadedRun, prompt: str, max_tokens: int, seed: int) -> tuple[str | None, str]:
    """The prompt with the run's continuation, or why there is none."""
    how = Sampling(temperature=TEMPERATURE)
    try:
        run.sealed.require_causal_lm()
        (sample,) = generate(run.model, run.tokenizer, [prompt], max_tokens=max_tokens, sampling=how, seed=seed)
    except UsageError as error:
        return None, reason(error)
    return sample.prompt + sample.text, ""


def _unmeasured(run: LoadedRun, summary: RunSummary, written: tuple[str | None, str]) -> _Measured:
    """The run without losses."""
    config, events = run.sealed.config, run.folder.metrics()
    speeds = [event["tokens_per_second"] for event in events if event["event"] == "step"]
    processor = None
    with suppress(UsageError):
        processor = run.sealed.document("environment").get("processor")
    shown = ComparedRun(
        summary=summary,
        config=comparable(config),
        checkpoint=run.checkpoint.step,
        loss=None,
        curve=_curve(events, config.tokens_per_step, config.training.schedule.begin or 0),
        tokens_per_second=median(speeds) if speeds else None,
        threads=run.sealed.identity.current_threads,
        processor=processor,
        sample=written[0],
        why_no_sample=written[1],
    )
    return _Measured(shown, run.sealed)


def _measured(run: LoadedRun, one: _Measured, own: str | Path | None, corpus: str | Path | None) -> _Measured:
    """The run with its losses on the test split, target by target; of a masked language model only their mean."""
    try:
        dataset = None
        if corpus is not None:
            with suppress(UsageError):  # it may be the text of another run
                dataset = run.sealed.dataset(corpus)
        dataset = dataset or run.sealed.dataset(own)
        split = final_split(dataset)
        masking = masking_of(run.sealed.config.training.objective, run.tokenizer)
        targets = target_losses(run.model, split, run.tokenizer) if masking is None else None
        loss = targets.whole if targets else evaluate_split(run.model, split, run.tokenizer, masking=masking)
    except UsageError as error:
        return replace(one, shown=replace(one.shown, why=reason(error)))
    return replace(one, shown=replace(one.shown, loss=loss, is_whole=split is dataset.splits["test"]), targets=targets)


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
    texts = [each.sealed.document("corpus").get("sha256") for each in (run, other)]
    batches, differ = _batches(run, other)
    unit, why, difference = _comparable(run, other), "", None
    if unit != "nothing" and one.objective != "next-token":
        why = N_("paired losses are those of next tokens, not of masked ones")
    elif unit != "nothing" and (run.targets is None or other.targets is None):
        why = run.shown.why or other.shown.why or N_("the losses were not measured")
    elif unit != "nothing":
        try:
            difference = _difference(run, other, unit, confidence)
        except UsageError as error:
            why = reason(error)
    return Relation(
        run=one.name,
        against=two.name,
        same_text=_same(*texts),
        same_test=_same(one.test_text, two.test_text),
        same_tokens=_same(one.test_tokens, two.test_tokens),
        same_task=one.objective == two.objective,
        batches=batches,
        batches_differ=differ,
        comparable=unit,
        difference=difference,
        why=why,
    )


def _difference(run: _Measured, other: _Measured, unit: str, confidence: float) -> PairedDifference:
    one, two = run.targets, other.targets
    assert one is not None
    assert two is not None
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
    one, two = (each.sealed.newest for each in (run, other))
    if one and two and one.step == two.step and one.state.get("chain") and one.state["chain"] == two.state.get("chain"):
        return "same", ()
    left, right = (_drawing(each) for each in (run, other))
    differ = tuple(key for key in left if left[key] != right[key])
    return ("other", differ) if differ else ("same by configuration", ())


def _drawing(run: _Measured) -> dict[str, Any]:
    """Everything that decides which windows a run is trained on."""
    config = run.shown.config
    training, model = config["training"], config["model"]
    fingerprint = run.sealed.document("corpus").get("fingerprint") or run.shown.name  # unknown: like no other
    return {
        N_("text, tokens or training split"): fingerprint,
        N_("seed"): config["seed"],
        "batch_size": training["batch_size"],
        "accumulation": training["accumulation"],
        "context_length": model["context_length"],
        N_("first step"): (training.get("schedule") or {}).get("begin"),
    }
