"""A run in a few numbers, and the runs below a folder: from sealed files, without weights and without PyTorch.

A summary compares the files that it reads with the seal of the newest intact checkpoint, as the gate does, and says in
one line what does not agree. It reads of the weights only the header, for the number of parameters: `vitral doctor`
is the command that reads them whole.
"""

import json
import math
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from vitral.core.errors import StorageError, UsageError
from vitral.core.files import as_json, sha256
from vitral.core.guarded import GuardedFolder
from vitral.core.language import N_, _, in_language
from vitral.runs.checkpoint import Checkpoint, count_weights, list_checkpoints, load_state, step_name
from vitral.runs.checkpoint_files import MANIFEST
from vitral.runs.folder import CONFIG, IMPORTED, MOST_CONFIG, RunFolder, log_seal, most_bytes
from vitral.runs.keys import FREE
from vitral.runs.lock import is_held
from vitral.runs.search import readable_path, run_folders

State = Literal["finished", "running", "stopped", "damaged"]

LATEST = 4e9
"""Seconds of Unix time that are still a time (in the year 2096)."""
READ = ("evaluation", "end", "stopped")
"""Events that a summary needs; lines of other events are not parsed."""
SAME_TEXT = {
    "encoding": None,
    "field": None,
    "glob": None,
    "newlines": "lf",
    "replacement": None,
    "separator": "\n\n",
    "specials": None,
    "split": "blocks",
}
"""Keys of [corpus] that decide how a text is read and which part of it is for test, with their defaults."""


@dataclass(frozen=True)
class RunSummary:
    """A run in a few numbers; None where a number is unknown.

    Attributes:
        path: the run's folder.
        name: its path inside the folder that was listed; the folder's own name if it is that folder.
        state: "finished", "running" (a process holds its lock), "stopped", "damaged".
        why: what is damaged, or why training stopped; one English sentence, empty if there is nothing to say.
        format: 1 (before the seal) or 2.
        run: its identity, in hexadecimal.
        text: name of the text.
        tokenizer: "char", "byte", "bpe" or "file".
        vocab_size: number of tokens in the vocabulary.
        parameters: learned numbers.
        layers: number of blocks.
        width: d_model.
        context: tokens in the model's input.
        objective: "next-token" or "masked".
        seed: of the run.
        step: completed optimizer steps of the newest checkpoint.
        steps: that were planned.
        best_step: of the best checkpoint, with the lowest validation loss.
        validation_loss: of the best checkpoint, in nats per token.
        test_loss: of the best checkpoint, in nats per token.
        baselines: order -> loss of the n-gram baseline on the same test split; empty if they were not counted.
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
        orders = None if self.baselines is None else {str(order): loss for order, loss in self.baselines.items()}
        curve = [list(point) for point in self.curve]
        return {**asdict(self), "path": readable_path(self.path), "baselines": orders, "curve": curve}


@dataclass(frozen=True)
class FoundRuns:
    """The runs below a folder.

    Attributes:
        folder: that was searched.
        runs: in the order of their names.
        notes: what was not looked into, one English sentence each.
    """

    folder: Path
    runs: tuple[RunSummary, ...]
    notes: tuple[str, ...] = ()


def find_runs(folder: Path) -> FoundRuns:
    """Every run below a folder, or the folder itself if it is one; folders inside a run are not looked into.

    Hidden folders are left out, and links to folders are not followed. A run that is damaged or was copied in part is
    listed as such.

    Raises:
        UsageError: there is no such folder, or it cannot be read.
    """
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise UsageError("{folder}: is a file; name a folder of runs", folder=folder)
    if not os.path.isdir(folder):
        raise UsageError(
            "{folder}: there is no such folder; name a folder of runs (vitral train makes runs/)", folder=folder
        )
    notes: list[str] = []
    found = [summarize_run(path, _name(path, folder)) for path in run_folders(folder, notes)]
    return FoundRuns(folder, tuple(sorted(found, key=lambda run: run.name)), tuple(notes))


def _name(path: Path, folder: Path) -> str:
    return readable_path(path.relative_to(folder).as_posix() if path != folder else path.resolve().name)


def summarize_run(path: Path, name: str | None = None) -> RunSummary:
    """A run in a few numbers. Nothing is raised: a folder that cannot be read is a damaged run.

    Args:
        path: the run's folder.
        name: that the summary has; the folder's own if None.
    """
    summary = RunSummary(path, name or readable_path(path.resolve().name), "damaged")
    with in_language("en"):  # what is wrong is data here; it is told in the reader's language where it is shown
        try:
            return _summary(RunFolder(path), summary)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, ArithmeticError) as error:
            if is_held(GuardedFolder(path)):  # its files change while they are read
                return replace(summary, state="running")
            return replace(summary, why=_reason(error, path))


def _summary(folder: RunFolder, summary: RunSummary) -> RunSummary:
    files = folder.files
    missing = [name for name in ("steps", CONFIG, "corpus.json", "tokenizer.json") if files.kind(name) is None]
    is_running = is_held(files)
    newest, damage = _newest(folder)
    if missing:
        damage.append(N_("{names} missing: not copied whole?").format(names=", ".join(missing)))
    sealed = folder.sealed(newest) if newest is not None or "run.json" in files.names() else {}
    is_sealed = bool(sealed)
    config = _configuration(folder, sealed, damage)
    damage += _changed(folder, sealed, newest) if is_sealed else []
    corpus = _document(folder, "corpus", sealed, damage)
    events = _events(folder, newest, damage)
    summary = replace(
        summary,
        format=2 if is_sealed else corpus.get("format", 1) if corpus else None,
        run=sealed.get("run"),
        **_of_text(config, corpus, sealed, folder),
        **_of_model(config, folder, newest),
        **_of_training(config, newest, events),
        baselines=_baselines(folder, sealed, corpus, damage),
        when=_when(folder, newest, events),
    )
    if IMPORTED in corpus:  # it was not trained here: there is nothing to finish
        summary = replace(summary, steps=0)
    return _judged(summary, newest, events, damage, is_running=is_running)


def _judged(
    summary: RunSummary,
    newest: Checkpoint | None,
    events: Sequence[Mapping[str, Any]],
    damage: Sequence[str],
    *,
    is_running: bool,
) -> RunSummary:
    """The summary with its state; a run that is being written to is not judged."""
    if is_running:
        return replace(summary, state="running")
    if damage:
        return replace(summary, state="damaged", why=_reason(damage[0], summary.path))
    if (
        newest is not None
        and newest.step >= (math.inf if summary.steps is None else summary.steps)
        and not newest.state.get("pending")
    ):
        return replace(summary, state="finished")
    reasons = [str(event.get("reason", "")) for event in events if event["event"] == "stopped"]
    return replace(summary, state="stopped", why=_reason(reasons[-1], summary.path) if reasons else "")


def _newest(folder: RunFolder) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint whose state is intact, and a complaint about each later one, or about all."""
    complaints: list[str] = []
    for one in reversed(list_checkpoints(folder.guarded_steps)):
        try:
            return load_state(folder.guarded_steps.within(one.name)), complaints
        except (UsageError, StorageError) as error:
            complaints.append(str(error))
    return None, complaints


def _configuration(folder: RunFolder, sealed: Mapping[str, Any], damage: list[str]) -> dict[str, Any]:
    """The sealed configuration with its decisions, or that of config.toml; a difference of the two is damage."""
    written: dict[str, Any] | None = None
    try:
        written = tomllib.loads(folder.files.read(CONFIG, MOST_CONFIG).decode())
    except FileNotFoundError:
        pass  # said already
    except (OSError, ValueError, RecursionError) as error:
        damage.append(N_("{name} cannot be read ({error})").format(name=CONFIG, error=_one_line(error)))
    if not sealed:
        return written or {}
    config = json.loads(json.dumps(sealed["config"]))
    if written is not None and _essence(written) != _essence(config) and not _mean_the_same(written, config):
        damage.append(N_("{name} was changed since the run began").format(name=CONFIG))
    for decision in sealed.get("decisions") or ():
        changes = {key: decision.get(key) for key in ("steps", "schedule", "threads", "evaluate_every")}
        config["training"] |= {key: value for key, value in changes.items() if value is not None}
    return config


def _mean_the_same(written: Mapping[str, Any], sealed: Mapping[str, Any]) -> bool:
    """Whether two tables are one configuration, differently written; asked only of tables that differ."""
    from vitral.runs.config import RunConfig, comparable  # loads PyTorch, which takes seconds

    try:
        return comparable(RunConfig.parse(written)) == comparable(RunConfig.parse(sealed))
    except UsageError:
        return False


def _essence(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration without keys that may change; a key that is unset is absent in TOML."""
    corpus = {key: value for key, value in config.get("corpus", {}).items() if key != "source"}
    training = {key: value for key, value in config.get("training", {}).items() if key not in FREE}
    return _without_none({**config, "corpus": corpus, "training": training})


def _without_none(table: Any) -> Any:
    if isinstance(table, Mapping):
        return {key: _without_none(value) for key, value in table.items() if value is not None}
    return [_without_none(value) for value in table] if isinstance(table, list | tuple) else table


def _changed(folder: RunFolder, sealed: Mapping[str, Any], newest: Checkpoint | None) -> Iterator[str]:
    """Sealed JSON files that were changed or are missing."""
    try:
        born = folder.born()
        if born is None:
            yield N_("{name} is missing").format(name="run.json")
        elif born.get("run") != sealed.get("run"):
            yield N_("its checkpoints are of another run than its run.json")
    except UsageError as error:
        yield str(error)
    hashes = dict(sealed.get("documents", {}))
    if newest is not None and newest.history.get("environment"):
        hashes["environment.json"] = newest.history["environment"]
    for name, expected in hashes.items():
        try:
            found = sha256(folder.files.read(name, most_bytes(name)))
        except FileNotFoundError:
            yield N_("{name} is missing").format(name=name)
        except (OSError, ValueError) as error:
            yield N_("{name} cannot be read ({error})").format(name=name, error=_one_line(error))
        else:
            if found != expected:
                yield N_("{name} was changed since the run was saved").format(name=name)


def _document(folder: RunFolder, name: str, sealed: Mapping[str, Any], damage: list[str]) -> dict[str, Any]:
    """A JSON file of the run; empty if it is damaged."""
    try:
        return folder.document(name, sealed)
    except UsageError as error:
        damage.append(str(error))
        return {}


def _baselines(
    folder: RunFolder, sealed: Mapping[str, Any], corpus: Mapping[str, Any], damage: list[str]
) -> dict[int, float] | None:
    try:
        counted = folder.ngrams(sealed) if sealed else corpus.get("ngrams")
        return None if not counted else {int(order): float(loss) for order, loss in counted["orders"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        damage.append(_one_line(error))
        return None


def _events(folder: RunFolder, newest: Checkpoint | None, damage: list[str]) -> list[dict[str, Any]]:
    """The sealed events of the kinds in READ; none if the log is damaged."""
    try:
        return list(folder.log.events(READ, log_seal(newest)))
    except UsageError as error:
        damage.append(str(error))
        return []


def _of_text(
    config: Mapping[str, Any], corpus: Mapping[str, Any], sealed: Mapping[str, Any], folder: RunFolder
) -> dict[str, Any]:
    """The text, the tokenizer, and marks by which equal test texts and equal test tokens are known."""
    if "sha256" not in corpus:
        return {}
    read = SAME_TEXT | {key: value for key, value in config.get("corpus", {}).items() if key in SAME_TEXT}
    text = sha256(as_json([corpus["sha256"], read]))
    tokenizer = sealed.get("documents", {}).get("tokenizer.json")
    if tokenizer is None:
        with suppress(OSError, ValueError):
            tokenizer = sha256(folder.files.read("tokenizer.json", most_bytes("tokenizer.json")))
    return {
        "text": str(corpus.get("name")),
        "tokenizer": str(corpus.get("tokenizer")),
        "vocab_size": _whole(corpus, "vocab_size"),
        "test_text": text,
        "test_tokens": None if tokenizer is None else sha256(as_json([text, tokenizer])),
    }


def _of_model(config: Mapping[str, Any], folder: RunFolder, newest: Checkpoint | None) -> dict[str, Any]:
    model = config.get("model", {})
    parameters = None
    if newest is not None:
        with suppress(UsageError, OSError):
            parameters = count_weights(folder.guarded_steps.within(step_name(newest.step)))
    keys = {"layers": "num_layers", "width": "d_model", "context": "context_length"}
    return {"parameters": parameters, **{name: _whole(model, key) for name, key in keys.items()}}


def _of_training(
    config: Mapping[str, Any], newest: Checkpoint | None, events: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Steps, time and the losses of the best checkpoint."""
    training = config.get("training", {})
    objective = training.get("objective", "next-token")
    curve = tuple(
        (int(float(event["step"])), float(event["validation_loss"]), float(event["test_loss"]))  # fails if infinite
        for event in events
        if event["event"] == "evaluation" and all(map(_is_finite, (event["validation_loss"], event.get("test_loss"))))
    )
    best = None if newest is None else newest.state.get("best_step")
    of_best = next((point for point in reversed(curve) if point[0] == best), curve[-1] if curve else None)
    seconds = [float(event.get("seconds", 0.0)) for event in events if event["event"] == "end"]
    seconds = [spent for spent in seconds if math.isfinite(spent)]
    kept = None if newest is None else newest.history.get("seconds")
    return {
        "objective": str(objective if isinstance(objective, str) else objective["name"]),
        "seed": _whole(config, "seed"),
        "step": 0 if newest is None else newest.step,
        "steps": _whole(training, "steps"),
        "best_step": None if of_best is None else of_best[0],
        "validation_loss": None if of_best is None else of_best[1],
        "test_loss": None if of_best is None else of_best[2],
        "seconds": sum(seconds) if seconds else None if kept is None else float(kept),
        "curve": curve,
    }


def _is_finite(loss: float | None) -> bool:
    return loss is not None and math.isfinite(loss)


def _whole(table: Mapping[str, Any], key: str) -> int | None:
    """A whole number of a file that may not be sealed.

    Raises:
        ValueError: it is something else.
    """
    value = table.get(key)
    if value is not None and (type(value) is not int or abs(value) >= 2**63):
        raise ValueError(_("{key} is not a whole number", key=key))
    return value


def _when(folder: RunFolder, newest: Checkpoint | None, events: Sequence[Mapping[str, Any]]) -> float | None:
    stepped = [event["stepped"] for event in events if event["event"] == "end" and event.get("stepped")]
    if stepped:
        return _time(float(stepped[-1]))
    name = CONFIG if newest is None else f"steps/{step_name(newest.step)}/{MANIFEST}"
    try:
        return _time(round(folder.files.modified(name), 3))
    except (UsageError, OSError):
        return None


def _time(seconds: float) -> float | None:
    """Unix time that a calendar has; files that are not sealed may contain any number."""
    return seconds if 0 <= seconds <= LATEST else None


def _reason(error: Exception | str, path: Path) -> str:
    """One line without the run's own path."""
    line = error if isinstance(error, str) else _one_line(error)
    for where in (f"{path}{os.sep}", f"{path}: "):
        line = line.replace(where, "")
    return line.split(";")[0]


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return str(error.strerror)
    text = str(error) if isinstance(error, UsageError | OSError) else f"{type(error).__name__} {error}"
    return " ".join(ascii(text)[1:-1].split())[:200] if not text.isprintable() else text[:200]
