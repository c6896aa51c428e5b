"""The run folder: the layout of a run on disk.

config.toml        the whole configuration
run.json           the identity of the run, as in every checkpoint
environment.json   versions and machine
corpus.json        the text: bytes, hash, split
tokenizer.json     the tokenizer, complete
ngrams.json        the n-gram baselines, once counted
metrics.jsonl      one JSON object per line: every measurement
steps/step-…/      checkpoints
samples/  report/  samples generated during training; figures and pages
film/              the weights after some steps, in float16 (`training.film`); the log has their hashes
.lock              locked by the process that writes to the run

What is read back is verified against the newest intact checkpoint. `vitral.runs.sealed` judges damage.
"""

import dataclasses
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import tomli_w

from vitral.core import files
from vitral.core.config import MOST_TOML, parse_toml
from vitral.core.errors import StorageError, UsageError, reason
from vitral.core.files import (
    are_of_a_run,
    as_json,
    insist,
    json_object,
    names,
    read,
    readable,
    remove_folder,
    replace_durably,
    sealed_json,
    sha256,
    storage,
    temporary_name,
    unsealed_json,
)
from vitral.core.language import N_, _, restored
from vitral.runs import checkpoint as checkpoints
from vitral.runs.checkpoint import Checkpoint, list_checkpoints, load_checkpoint, load_state, step_name
from vitral.runs.metrics_log import MetricsLog

DUE = {"evaluation", "sample"}
"""Events that are due at a step."""
MOST_DOCUMENT = 1 << 26
"""Maximum bytes of a file that is read whole; a tokenizer of a million tokens is smaller."""
CONFIG, RUN = "config.toml", "run.json"
IMPORTED = "imported"
"""The source of the text of an imported model, and the key of corpus.json that says where the model comes from."""
INSIDE = ("steps", "samples", "report", "film")
"""Folders inside a run."""


def is_run(path: str | Path) -> bool:
    """Whether a folder has the files of a run, whole or damaged."""
    return os.path.lexists(os.path.join(path, "steps")) and are_of_a_run(os.listdir(path))


def _instead(path: Path) -> str:
    """What to do with a path that is no run."""
    from vitral.data import corpus_names  # loads PyTorch, which takes seconds

    with suppress(OSError):  # a name that is too long, a folder that cannot be read
        found = [str(steps.parent) for depth in ("*", "*/*") for steps in sorted(path.glob(f"{depth}/steps"))]
        if found:
            return _("there are runs in it: {runs}", runs=", ".join(found[:3]))
    if os.path.isfile(path) or str(path) in corpus_names():
        return _("to train on this text: vitral train {path}", path=path)
    return _("vitral list runs shows yours, vitral list zoo those that come with Vitral")


class RunFolder:
    """One run on disk.

    Attributes:
        path: the folder as the user typed it.
        steps: the folder of checkpoints.
        log: its metrics.
    """

    def __init__(self, path: Path) -> None:
        """Refer to the folder at `path`; see `create` and `open`."""
        self.path, self.steps = path, path / "steps"
        self.log = MetricsLog(path)

    @classmethod
    def create(
        cls,
        path: Path,
        config: Mapping[str, Any],
        documents: Mapping[str, Any],
        begin: "Callable[[RunFolder], None] | None" = None,
    ) -> "RunFolder":
        """Create a new run folder atomically.

        Args:
            path: the folder; it must not exist.
            config: the complete configuration as plain data.
            documents: JSON files by name without suffix: "run", "environment", "corpus", "tokenizer", "ngrams".
            begin: writes into the folder while it still has a temporary name, for example the checkpoint of step 0.

        Raises:
            UsageError: `path` already exists.
            StorageError: the folder cannot be written.
        """
        refuse_existing(path)
        folder = cls(path.with_name(temporary_name(path.name)))
        with storage(path):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                files.sweep(path.parent, f".{path.name}.")
                folder.steps.mkdir(parents=True)
                for name, document in documents.items():
                    folder.write_document(name, document)
                folder.write_config(config)
                if begin is not None:
                    begin(folder)
                insist(os.rename, folder.path, path)
            except BaseException as error:
                remove_folder(folder.path)
                if isinstance(error, OSError):
                    refuse_existing(path)  # another run has taken the name meanwhile
                raise
            files.sync(path.parent)
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> Self:
        """The run at `path`.

        Raises:
            UsageError: it is not a run, or folders in it are links.
        """
        if not is_run(path):
            raise UsageError(
                "{path}: not a run (a run is a folder with config.toml and steps/; {hint})",
                path=path,
                hint=_instead(path),
            )
        for inside in INSIDE:
            names(path / inside)
        return cls(path)

    @property
    def written(self) -> dict[str, Any]:
        """The content of config.toml; `vitral.runs.sealed` compares it with the sealed configuration.

        Raises:
            UsageError: it cannot be read.
        """
        return parse_toml(self._read(CONFIG, MOST_TOML), self.path / CONFIG)

    def latest(self) -> Checkpoint | None:
        """The newest intact checkpoint, without its tensors; None if there is none."""
        for folder in reversed(list_checkpoints(self.steps)):
            with suppress(UsageError, StorageError):
                return load_state(folder)
        return None

    def sealed(self) -> Mapping[str, Any]:
        """The identity of the run as plain data: of the newest intact checkpoint, else of run.json.

        Raises:
            UsageError: there is no checkpoint, and run.json is damaged.
        """
        newest = self.latest()
        return self.born() if newest is None else newest.state

    def born(self) -> dict[str, Any]:
        """The content of run.json, the identity with which the run began.

        Raises:
            UsageError: it is missing or damaged.
        """
        with readable(self.path / RUN):
            return unsealed_json(self._read(RUN))

    def document(self, name: str) -> dict[str, Any]:
        """A JSON file of the run, as it is sealed: "environment", "corpus", "tokenizer", "ngrams".

        Raises:
            UsageError: the file is missing, damaged or not JSON.
        """
        documents = self.sealed().get("documents", {})
        with readable(self.path / f"{name}.json"):
            return restored(json_object(self.as_sealed(f"{name}.json", documents.get(f"{name}.json"))))

    def as_sealed(self, name: str, hashed: str | None, most: int = MOST_DOCUMENT) -> bytes:
        """The bytes of a file of the run, at most so many, whose SHA-256 must be this one if it is not None.

        Raises:
            UsageError: the file is missing or damaged.
        """
        raw = self._read(name, most)
        if hashed is not None and sha256(raw) != hashed:
            raise UsageError("{path}: changed since the run was saved, restore it from a copy", path=self.path / name)
        return raw

    def ngrams(self) -> dict[str, Any] | None:
        """The n-gram baselines as plain data; None if they are not counted, or not sealed yet.

        Raises:
            UsageError: the file is damaged.
        """
        return self.document("ngrams") if "ngrams.json" in self.sealed()["documents"] else None

    def comparable_ngrams(self) -> dict[str, Any] | None:
        """The same, but None where a problem of the text makes a comparison with them void."""
        return None if self.document("corpus").get("problems") else self.ngrams()

    def write_document(self, name: str, document: Mapping[str, Any]) -> None:
        """Write a JSON file of the run atomically; run.json contains its own hash."""
        content = sealed_json(document) if name == "run" else as_json(dict(document))
        replace_durably(self.path / f"{name}.json", content)

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write config.toml atomically."""
        replace_durably(self.path / CONFIG, tomli_w.dumps(dict(config)).encode())

    def append_metric(self, event: Mapping[str, Any]) -> None:
        """Append one line to metrics.jsonl."""
        self.log.append(event)

    def metrics(self, event: str | Collection[str] | None = None) -> list[dict[str, Any]]:
        """The events of metrics.jsonl up to the newest checkpoint, all or of some kinds.

        Before the first checkpoint these are all complete lines. Events after the newest checkpoint are repeated by a
        resume, which removes them first.

        Raises:
            UsageError: the log differs from the seal of the newest checkpoint, or a line is not an event.
        """
        newest = self.latest()
        return list(self.log.events(event, newest and newest.history["metrics"]))

    def rewind(self, checkpoint: Checkpoint | None) -> None:
        """Restore the folder to its state at a checkpoint (None: at the beginning), from which the run is resumed.

        Later events are removed, since they will be measured again. Later checkpoints are damaged (otherwise the run
        would resume from them) and are renamed to `damaged-…`, so that new ones can take their place.

        Raises:
            StorageError: the folder cannot be written.
        """
        last = "" if checkpoint is None else step_name(checkpoint.step)
        for folder in list_checkpoints(self.steps):
            if folder.name > last:
                checkpoints.set_aside(folder)
        self.log.cut({"bytes": 0} if checkpoint is None else checkpoint.history["metrics"])

    def write_sample(self, step: int, text: str) -> None:
        """Save a sample generated at `step`."""
        files.make(self.path / "samples")
        replace_durably(self.path / "samples" / f"{step_name(step)}.txt", (text + "\n").encode())

    def write_frame(self, step: int, weights: bytes) -> None:
        """Save a frame of the film, the weights after `step`; its hash is in the log, which checkpoints seal."""
        files.make(self.path / "film")
        replace_durably(self.path / frame_name(step), weights)
        self.append_metric({"event": "frame", "step": step, "sha256": sha256(weights)})

    def film(self) -> dict[int, str]:
        """The SHA-256 of the film's frames by their steps; a frame that was removed is not there.

        Raises:
            UsageError: the log is damaged.
        """
        events = self.metrics("frame")
        with checkpoints.understood(self.log.path):
            there = (event for event in events if os.path.lexists(self.path / frame_name(event["step"])))
            return {event["step"]: event["sha256"] for event in there}

    def save(self, checkpoint: Checkpoint, *, keep: int) -> None:
        """Write a checkpoint that seals the log so far, in the place of one of the same step; remove old checkpoints.

        The newest `keep` checkpoints remain, and that of the state's `best_step`.

        Args:
            checkpoint: the checkpoint.
            keep: how many remain.

        Raises:
            StorageError: the checkpoint cannot be written; earlier checkpoints are intact.
        """
        # Events must reach the disk before the checkpoint that follows them: sealing flushes them.
        history = {**checkpoint.history, "metrics": self.log.seal()}
        checkpoints.save_checkpoint(self.steps, dataclasses.replace(checkpoint, history=history))
        self.tidy(checkpoint, keep=keep)

    def tidy(self, newest: Checkpoint, *, keep: int) -> None:
        """Remove old checkpoints but the best: the end of a save, which a kill may skip."""
        checkpoints.prune(self.steps, keep=keep, also={_best(newest)})

    def reseal(self, event: Mapping[str, Any]) -> None:
        """Seal an event in the place of those that follow the newest checkpoint, by writing its history again.

        Raises:
            StorageError: the checkpoint cannot be written.
        """
        newest = self.latest()
        if newest is not None:
            self.log.cut(newest.history["metrics"])
            self.append_metric(event)
            history = {**newest.history, "metrics": self.log.seal()}
            checkpoints.reseal(self.steps / step_name(newest.step), history)

    def load(
        self,
        which: str = "last",
        *,
        with_optimizer: bool = True,
        warn: Callable[[str], object],
    ) -> Checkpoint:
        """The "best" or "last" checkpoint; if it is damaged, an earlier one, with a warning.

        The best one is the `best_step` of the newest intact checkpoint.

        Args:
            which: "best" or "last".
            with_optimizer: whether to load the optimizer's tensors.
            warn: called with one line for each checkpoint that is skipped.

        Raises:
            UsageError: there is no intact checkpoint, or it is of another run.
        """
        newest = self.latest()
        last = "" if newest is None else step_name(newest.step)
        first = _best(newest) if newest is not None and which == "best" else last
        there = (folder.name for folder in reversed(list_checkpoints(self.steps)))
        for name in sorted((name for name in there if name <= last), key=lambda name: name != first):
            try:
                checkpoint = load_checkpoint(self.steps / name, with_optimizer=with_optimizer)
            except (UsageError, StorageError) as error:
                is_best = name == first != last
                sentence = N_("{why}; using the last one instead") if is_best else N_("{why}; using the one before")
                warn(sentence.format(why=error))
            else:
                self.require(checkpoint)
                return checkpoint
        raise UsageError(
            "{path}: no intact checkpoint (it stopped before the first, or all are damaged); vitral resume {path}",
            path=self.path,
        )

    def require(self, checkpoint: Checkpoint) -> None:
        """Refuse a checkpoint of another run.

        Raises:
            UsageError: it is of another run.
        """
        if checkpoint.state.get("run") != self.sealed().get("run"):
            raise UsageError(
                "{where}: the checkpoint of step {step} is of another run; remove it",
                where=self.path,
                step=checkpoint.step,
            )

    def sweep(self) -> None:
        """Remove what ended processes left behind; restore a checkpoint that was being replaced."""
        checkpoints.sweep(self.steps)
        for folder in (self.path, *(self.path / inside for inside in INSIDE)):
            if folder.is_dir():
                files.sweep(folder)

    def _read(self, name: str, most: int = MOST_DOCUMENT) -> bytes:
        with readable(self.path / name):
            return read(self.path / name, most)


def _best(newest: Checkpoint) -> str:
    """The name of the best checkpoint; before the first evaluation, of the newest."""
    best = newest.state.get("best_step")
    return step_name(newest.step if best is None else best)


def frame_name(step: int) -> str:
    """The file of a frame of the film: `film/step-00000128.safetensors`."""
    return f"film/{step_name(step)}.safetensors"


def refuse_existing(path: Path) -> None:
    """Refuse an existing path, except for an empty folder.

    Raises:
        UsageError: `path` exists and is not an empty folder, or is no name.
    """
    if not path.name:
        raise UsageError("{path}: not a name for a new folder; give one, as in --out runs/mine", path=path)
    if os.path.isdir(path) and not os.listdir(path):
        return
    if os.path.lexists(path):
        raise UsageError(
            "{path}: exists already; choose another --out (or vitral resume {path}, if it is a run)", path=path
        )


def readable_path(path: Path | str) -> str:
    r"""A path as text that every file can hold: bytes that are no UTF-8 are written as `\xff`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def run_folders(top: Path) -> Iterator[Path]:
    """Folders that are runs, whole or not; hidden folders and links are not looked into.

    Raises:
        UsageError: a folder cannot be read.
    """

    def unreadable(error: OSError) -> None:
        raise UsageError(
            "{folder}: cannot be read ({error})", folder=readable_path(error.filename), error=reason(error)
        )

    for folder, inside, there in os.walk(top, onerror=unreadable):
        if are_of_a_run({*inside, *there}):
            yield Path(folder)
            inside.clear()
        inside[:] = [name for name in inside if not name.startswith(".")]
