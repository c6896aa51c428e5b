"""The configuration of a run: preset < TOML file < overrides, parsed into one frozen object."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitral.core.config import merge, nearest, read_toml
from vitral.core.errors import UsageError
from vitral.core.language import N_
from vitral.core.parts import changed_parts, without_sources
from vitral.data import Corpus, CorpusConfig, Dataset, corpus_names, load_corpus, prepare
from vitral.data.config import TASK, TASK_SOURCES
from vitral.data.corpora import records_in
from vitral.runs import RunFolder, enter, load_run, refuse_existing
from vitral.runs.config import Preset, presets
from vitral.training import Callback, RunConfig, ranks, resume, train
from vitral.training.deadline import TimeFrame
from vitral.training.plans import FIT, LADDER, LADDER_TRAINING, ResolvedPlan
from vitral.training.run import how_far_begun, resolved_plan
from vitral.training.text_plan import TextPlan, plan_text, usual_shape, written_plan

DEFAULT_PRESET = "fast"
DEFAULT_MINUTES = 2.0
"""Training time where a bare text is given and nothing else."""

SIZE = ("model.d_model", "model.num_layers", "model.num_heads", "model.num_kv_heads", "model.d_head", "model.d_ff")
PRECISION = ("training.dtype", "training.compile")
SIZED = (*SIZE, *PRECISION, "training.optimizer", "training.schedule")
"""Keys that training chooses together, by measured speed, where the user has chosen none of them."""
USUAL = ((0.0, 1), (0.5, 3), (5.0, 4), (15.0, 5))
"""(Minutes, place on the ladder): the size from that training time on where it is not chosen by measured speed.

Up to 4 × 128 the sizes were compared at equal times (docs/internals, the ladder). 4 × 192 was trained for 10 and 15
minutes (docs/internals/experiments.md), beside no other size; 6 × 256 is extrapolated.
"""
TASK_RECIPE: Mapping[str, Any] = {
    "model": {"d_model": 64, "positions": "learned"},
    "training": {"steps": 1000, "evaluate_every": 250, "optimizer": {"learning_rate": 0.03}},
}
"""A generated task where nothing else is given, besides the preset `fast` (docs/internals/experiments.md)."""


@dataclass(frozen=True, eq=False)
class RunPlan:
    """A run to be made.

    Attributes:
        config: its complete configuration.
        text: how its text is trained on, with the reasons.
        corpus: the text, where it was read to plan; None where the configuration is a preset or a file.
        init_from: a run whose weights it starts from.
        notes: what was chosen with a part of the model's size that the user set.
    """

    config: RunConfig
    text: TextPlan
    corpus: Corpus | None = None
    init_from: Path | None = None
    notes: tuple[str, ...] = ()

    def dataset(self) -> Dataset:
        """The text, tokenized and split as the run will have it.

        Raises:
            UsageError: the text cannot be used.
            StorageError: the tokens cannot be stored.
        """
        tokenizer = None if self.init_from is None else load_run(self.init_from).tokenizer
        return prepare(self.config.corpus, corpus=self.corpus, tokenizer=tokenizer, grow=True)

    def fitted(self, dataset: Dataset) -> ResolvedPlan:
        """The configuration with the size that training would choose here and now, by timing steps.

        Raises:
            UsageError: all the minutes would allow only a handful of steps.
        """
        if self.config.training.plan != FIT:
            return ResolvedPlan(self.config, ())
        return resolved_plan(self.config, dataset, TimeFrame())

    def train(self, out: Path, callback: Callback, frame: TimeFrame | None = None) -> RunFolder:
        """Train the run in a new folder, in the minutes of its time frame.

        Where torchrun has started the ranks anew, since one was lost, they go on with the run that they had begun.

        Raises:
            UsageError: the configuration cannot be used, or `out` exists.
            TrainingStopped: a number was not finite.
            StorageError: writing to disk failed.
        """
        begun = ranks.broadcast(ranks.leads() and how_far_begun(out))
        if begun == "stopped":
            return resume(out, callback=callback, frame=frame)
        if begun == "finished":
            return RunFolder(out)
        if ranks.leads():
            refuse_existing(out)
        # A run that starts from another one has that one's tokenizer: training prepares its text itself.
        is_read = self.init_from is None and self.corpus is not None and ranks.leads()
        dataset = self.dataset() if is_read else None
        if dataset is not None:
            brief = self.text.brief(has_dropout=self.config.training.minutes is None)
            dataset = replace(dataset, remarks=(*self.text.worth, brief, *self.notes, *dataset.remarks))
        config = self.config.watched()  # unlike the runs of a study
        return train(config, out, callback=callback, dataset=dataset, init_from=self.init_from, frame=frame)


def configure(
    start: str | None = None,
    *,
    corpus: str | Mapping[str, Any] | None = None,
    init_from: Path | None = None,
    minutes: float | None = None,
    overrides: Sequence[Mapping[str, Any]] = (),
) -> RunConfig:
    """The configuration of a run; see `plan_run`."""
    return plan_run(start, corpus=corpus, init_from=init_from, minutes=minutes, overrides=overrides).config


def plan_run(
    start: str | None = None,
    *,
    corpus: str | Mapping[str, Any] | None = None,
    init_from: Path | None = None,
    minutes: float | None = None,
    overrides: Sequence[Mapping[str, Any]] = (),
) -> RunPlan:
    """Plan a run. A bare text is read, and trained on as `plan_text` says.

    Args:
        start: a preset, a `.toml` file, or a text (a corpus's name, a file, a folder); a preset takes precedence.
        corpus: the text, instead of the one in `start`; or a table with keys of `[corpus]`.
        init_from: a run; its model and tokenizer are used.
        minutes: training time; the preset `fast`, also used for a bare text, has a larger model for a longer time.
        overrides: plain nested data, later over earlier.

    Raises:
        UsageError: an invalid value or an unknown name, in one line; or a bare text that cannot be read.
    """
    chosen = merge(*overrides).get("training", {})
    chosen = chosen if isinstance(chosen, Mapping) else {}
    if minutes is not None and "steps" in chosen:
        raise UsageError("minutes: training.steps is given too; give only one of the two")
    minutes = chosen.get("minutes", minutes)
    known = presets()
    layers: list[Mapping[str, Any]] = []
    given = {"source": corpus} if isinstance(corpus, str) else corpus or {}
    asked = merge(*overrides).get("corpus", {})
    given = _recognised(given, start, asked)
    where, is_bare = "config", False
    if start in known:
        layers.append(known[start].run)
    elif start is not None and start.endswith(".toml"):
        layers.append(read_toml(Path(start)))
        where = start
    else:
        _require_text_or_preset(start, known)
        is_bare = True
        of_text = {"training": {"dtype": "float32"}}  # not every processor is faster in bfloat16
        layers += [merge(known[DEFAULT_PRESET].run, of_text), {"corpus": {"source": start or "sample"}}]
        if is_task := str(start).startswith(f"{TASK}:"):
            layers.append(TASK_RECIPE)
        layers += (
            []
            if init_from
            else _suited(
                RunConfig.parse({"corpus": merge({"source": start or "sample"}, given, asked)}).corpus, overrides
            )
        )
        minutes = DEFAULT_MINUTES if minutes is None and "steps" not in chosen and not is_task else minutes
    later = [*_inherited(init_from), {"corpus": given}, *overrides]
    chosen_keys = merge(*later)
    pins = {f"{table}.{key}" for table, keys in chosen_keys.items() if isinstance(keys, Mapping) for key in keys}
    if minutes is not None:
        layers.append({"training": {"minutes": minutes}})
        RunConfig.parse(layers[-1], where)  # refused before it chooses a size
        if is_bare or (start == DEFAULT_PRESET and minutes >= USUAL[1][0]):
            layers += [_sized(minutes, pins), usual_shape(minutes)]
            layers += [] if "model.dropout" in pins else [{"training": {"regularisation": FIT}}]
    config = RunConfig.parse(merge(*layers, *later), where)
    if init_from is not None and config.plain()["corpus"]["tokenizer"] != later[0]["corpus"]["tokenizer"]:
        raise UsageError(
            "corpus.tokenizer: --init-from {init_from} uses the tokenizer of that run; leave it out",
            init_from=init_from,
        )
    if not is_bare:
        named = N_("the preset {name}").format(name=start) if start in known else where
        return RunPlan(config, written_plan(config, named), None, init_from)
    text = load_corpus(config.corpus)
    plan = plan_text(text, config, pins)
    notes = _chosen_besides(merge(*layers), pins) if minutes is not None else ()
    return RunPlan(RunConfig.parse(merge(*layers, plan.layer, *later), where), plan, text, init_from, notes)


def _recognised(given: Mapping[str, Any], start: str | None, chosen: Mapping[str, Any]) -> Mapping[str, Any]:
    """The user's keys of [corpus] with the kind of the records in a file, unless a way of reading it is chosen."""
    if {"records", "field"} & {*given, *chosen}:
        return given
    source = str(chosen.get("source", given.get("source", start)))
    kind = None if source in {*presets(), *corpus_names()} else records_in(source)
    return given if kind is None else {**given, "records": kind}


def _suited(corpus: CorpusConfig, overrides: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The layer with the shape of the model that suits records, and the objective of an encoder of labels."""
    suited = {"pairs": "encoder-decoder", "labels": "encoder"}.get(corpus.records or "", "decoder")
    shape = merge({"model": {"shape": suited}}, *overrides)["model"]["shape"]
    if corpus.records == "labels" and shape == "encoder":
        return [{"model": {"shape": shape, "tie_head": False}, "training": {"objective": "label"}}]
    return [{"model": {"shape": shape}}]


def pinned(tokenizer: str | None, context: int | None) -> dict[str, Any]:
    """The tokenizer and the context that a user chose, as a layer of configuration."""
    layer: dict[str, Any] = {} if tokenizer is None else {"corpus": {"tokenizer": tokenizer}}
    return layer if context is None else {**layer, "model": {"context_length": context}}


def refuse_choices(run: str, **choices: Any) -> None:
    """Refuse options that a run has decided already.

    Raises:
        UsageError: one of them is given.
    """
    given = [name for name, value in choices.items() if value is not None]
    if given:
        raise UsageError("{run}: a run, whose text and model are decided; leave out {given}", run=run, given=given[0])


def _inherited(init_from: Path | None) -> list[Mapping[str, Any]]:
    """The layer of a run whose weights are the initial ones."""
    if init_from is None:
        return []
    config = enter(init_from, lambda line: None).config
    changed_parts(config.model, str(init_from))  # refuses what is not registered
    inherited = config.plain()
    kept = {key: inherited["corpus"][key] for key in ("tokenizer", "specials") if key in inherited["corpus"]}
    return [{"model": without_sources(inherited["model"]), "corpus": kept}]


def _sized(minutes: float, chosen: set[str]) -> dict[str, Any]:
    """The layer that lets the model fit the time; with the usual size where the user has chosen a part of it."""
    if chosen.isdisjoint((*SIZED, "training.plan")):
        return {"training": {"plan": FIT}}
    size = next(LADDER[place] for least, place in reversed(USUAL) if minutes >= least)
    plan = "auto" if chosen.isdisjoint(PRECISION) else "as-written"
    return {"model": size.model, "training": {**LADDER_TRAINING, "plan": plan}}


def _chosen_besides(layer: Mapping[str, Any], pins: set[str]) -> tuple[str, ...]:
    """A note of the sizes that were not measured, because the user set a key that training chooses with them."""
    given = [key for key in SIZED if key in pins]
    values = ((key, layer["model"].get(key.removeprefix("model."))) for key in SIZE if key not in pins)
    chosen = [f"{key} = {value}" for key, value in values if value is not None]
    if not given or not chosen:
        return ()
    chosen += [] if "model.dropout" in pins else ["model.dropout"]
    sentence = N_("you set {given}; the plan chose {chosen}: to change one thing alone, set these too, in both runs")
    return (sentence.format(given=", ".join(given), chosen=", ".join(chosen)),)


def _require_text_or_preset(start: str | None, known: Mapping[str, Preset]) -> None:
    if (
        start is None
        or start.startswith(f"{TASK}:")
        or start in corpus_names()
        or os.path.lexists(start)
        or len(Path(start).parts) > 1
        or "." in start
    ):
        return
    names = {*known, *corpus_names(), *TASK_SOURCES}
    raise UsageError(
        "{start!r} is not a preset, a known text or a file; {hint}", start=start, hint=nearest(start, names)
    )
