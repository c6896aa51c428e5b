"""A run in a few numbers, and the runs below a folder: from sealed files, without weights and without PyTorch.

`verify` says what is damaged. Of the weights only the header is read, for the number of parameters: `vitral doctor` is
the command that reads them whole.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from vitral.core.errors import UsageError, reason
from vitral.core.files import as_json, sha256
from vitral.core.language import Message
from vitral.runs.checkpoint import FORMAT, MANIFEST, count_weights, step_name
from vitral.runs.folder import CONFIG, IMPORTED, readable_path, run_folders
from vitral.runs.lock import is_held
from vitral.runs.metrics_log import NAME as LOG
from vitral.runs.objectives import objective_name
from vitral.runs.sealed import SealedRun, verify

State = Literal["finished", "running", "stopped", "damaged"]

READ = ("evaluation", "end", "stopped")
"""Events that a summary needs."""
SAME_TEXT = ("encoding", "field", "glob", "newlines", "replacement", "separator", "specials", "split")
"""Keys of [corpus] that decide how a text is read and which part of it is for test."""


@dataclass(frozen=True)
class RunSummary:
    """A run in a few numbers; None where a number is unknown.

    Attributes:
        path: the run's folder.
        name: its path inside the folder that was listed; the folder's own name if it is that folder.
        state: "finished", "running" (a process holds its lock), "stopped", "damaged".
        why: what is damaged, or why training stopped; one English sentence, empty if there is nothing to say.
        format: of its files, 2; None if it cannot be read.
        run: its identity, in hexadecimal.
        text: name of the text.
        tokenizer: "char", "byte", "bpe" or "file".
        vocab_size: number of tokens in the vocabulary.
        parameters: learned numbers.
        layers: number of blocks.
        width: d_model.
        context: tokens in the model's input.
        objective: "next-token", "masked", "mixed" or "label".
        seed: of the run.
        step: completed optimizer steps of the newest checkpoint.
        steps: that were planned.
        best_step: of the best checkpoint, with the lowest validation loss.
        validation_loss: of the best checkpoint, in nats per token.
        test_loss: of the best checkpoint, in nats per token.
        baselines: order -> loss of the n-gram baseline on the same test split; None if they were not counted, or if a
            problem of the text makes them void.
        when: of its last step, in seconds of Unix time; of a run that was killed, of its newest checkpoint.
        seconds: spent in training, as far as it was logged.
        test_text: equal in runs with the same test text.
        test_tokens: equal in runs with the same test tokens, whose losses can be compared.
        curve: (step, validation loss, test loss) of every evaluation.
    """

    path: Path
    name: str
    state: State
    why: str = ""
    format: int | None = None
    run: str | None = None
    text: str | None = None
    tokenizer: str | None = None
    vocab_size: int | None = None
    parameters: int | None = None
    layers: int | None = None
    width: int | None = None
    context: int | None = None
    objective: str | None = None
    seed: int | None = None
    step: int | None = None
    steps: int | None = None
    best_step: int | None = None
    validation_loss: float | None = None
    test_loss: float | None = None
    baselines: Mapping[int, float] | None = None
    when: float | None = None
    seconds: float | None = None
    test_text: str | None = None
    test_tokens: str | None = None
    curve: tuple[tuple[int, float, float], ...] = ()

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        return json.loads(json.dumps({**asdict(self), "path": readable_path(self.path)}))


def runs_below(folder: Path) -> list[RunSummary]:
    """Every run below a folder by name, or the folder itself if it is one; folders inside a run are not looked into.

    Hidden folders are left out, and links to folders are not followed. A run that is damaged or was copied in part is
    listed as such.

    Raises:
        UsageError: there is no such folder, a folder cannot be read, or no run is in it.
    """
    summaries = [summarize_run(path, _name(path, folder)) for path in run_folders(folder)]
    if not summaries:
        raise UsageError(
            "{folder}: no run in it; train one with vitral train TEXT, or name another folder", folder=folder
        )
    return sorted(summaries, key=lambda run: run.name)


def _name(path: Path, folder: Path) -> str:
    return readable_path(path.relative_to(folder).as_posix() if path != folder else path.resolve().name)


def summarize_run(path: Path, name: str | None = None) -> RunSummary:
    """A run in a few numbers. Nothing is raised: a folder that cannot be read is a damaged run.

    Args:
        path: the run's folder.
        name: that the summary has; the folder's own if None.
    """
    summary = RunSummary(path, name or readable_path(path.resolve().name), "damaged")
    try:
        summary = _summary(verify(path), summary)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        summary = replace(summary, why=_reason(reason(error), path))
    # What is being written is not judged: its files change while they are read.
    return replace(summary, state="running", why="") if is_held(path) else summary


def _summary(run: SealedRun, summary: RunSummary) -> RunSummary:
    newest, damaged = run.newest, {one.file for one in run.findings}
    summary = replace(summary, why=_reason(run.findings[0].line, summary.path) if run.findings else "")
    if any(one.is_refused and one.file != CONFIG for one in run.findings):
        return summary
    seal, events, parameters = run.sealed(), list[dict[str, Any]](), None
    config, model, training = seal["config"], seal["config"]["model"], seal["config"]["training"]
    corpus = {} if "corpus.json" in damaged else run.document("corpus")
    counted = None if damaged & {"corpus.json", "ngrams.json"} else run.comparable_ngrams()
    if newest is not None:
        if LOG not in damaged:
            events = run.metrics(READ)
        with suppress(UsageError, OSError):
            parameters = count_weights(run.steps / step_name(newest.step))
    curve = tuple(
        (event["step"], float(event["validation_loss"]), float(event["test_loss"]))
        for event in events
        if event["event"] == "evaluation" and math.isfinite(event["validation_loss"] + event["test_loss"])
    )
    last = curve[-1] if curve else (None,) * 3
    best = next((point for point in reversed(curve) if point[0] == seal.get("best_step")), last)
    ends = [event for event in events if event["event"] == "end"]
    steps = [training["steps"], *(one["steps"] for one in seal["decisions"] if one.get("steps"))][-1]
    summary = replace(
        summary,
        format=FORMAT,
        run=seal["run"],
        **_of_text(config, corpus, seal),
        parameters=parameters,
        layers=model["num_layers"],
        width=model["d_model"],
        context=model["context_length"],
        objective=objective_name(training.get("objective", "next-token")),
        seed=config["seed"],
        step=0 if newest is None else newest.step,
        steps=0 if IMPORTED in corpus else steps,  # an imported model was not trained here: nothing is to finish
        best_step=best[0],
        validation_loss=best[1],
        test_loss=best[2],
        baselines=counted and {int(order): float(loss) for order, loss in counted["orders"].items()},
        when=_when(run, ends),
        seconds=sum(float(event["seconds"]) for event in ends) if ends else newest and newest.history.get("seconds"),
        curve=curve,
    )
    if damaged:
        return summary
    if newest is not None and newest.step >= (summary.steps or 0) and not newest.state.get("pending"):
        return replace(summary, state="finished")
    reasons = [event["reason"] for event in events if event["event"] == "stopped"]
    return replace(summary, state="stopped", why=reasons[-1] if reasons else "")


def _of_text(config: Mapping[str, Any], corpus: Mapping[str, Any], seal: Mapping[str, Any]) -> dict[str, Any]:
    """The text, the tokenizer, and marks by which equal test texts and equal test tokens are known."""
    if not corpus:
        return {}
    read = [config["corpus"].get(key) for key in SAME_TEXT]
    text = sha256(as_json([corpus["sha256"], read]))
    return {
        "text": str(corpus["name"]),
        "tokenizer": str(corpus["tokenizer"]),
        "vocab_size": corpus["vocab_size"],
        "test_text": text,
        "test_tokens": sha256(as_json([text, seal["documents"]["tokenizer.json"]])),
    }


def _when(run: SealedRun, ends: Sequence[Mapping[str, Any]]) -> float:
    if ends and (stepped := ends[-1].get("stepped")):
        return float(stepped)
    name = CONFIG if run.newest is None else f"steps/{step_name(run.newest.step)}/{MANIFEST}"
    return round((run.path / name).stat().st_mtime, 3)


def _reason(line: Message, path: Path) -> Message:
    """What is wrong, without advice and the run's own path."""
    return line.cause.removeprefix(f"{path}{os.sep}").removeprefix(f"{path}: ")
