"""The run folder: the only place that knows how a run lies on disk.

config.toml        the whole configuration
environment.json   versions and machine
corpus.json        the text: bytes, hash, split
tokenizer.json     the tokenizer, complete
metrics.jsonl      one JSON object a line: everything that was measured
steps/step-…/      checkpoints
best, last         one line each: the name of a checkpoint
samples/  report/  texts written while training; figures and pages
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from vitral.core.config import read_toml
from vitral.core.errors import StorageError, UsageError
from vitral.runs import checkpoint as checkpoints
from vitral.runs.checkpoint import Checkpoint
from vitral.runs.files import as_json, replace_durably, storage


class RunFolder:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        """Stand for the folder at `path`; see `create` and `open`."""
        self.path = path

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any], documents: Mapping[str, Any]) -> "RunFolder":
        """Make a new run folder.

        Args:
            path: where; nothing may be there.
            config: the whole configuration as plain data.
            documents: JSON files by name without suffix: "environment", "corpus", "tokenizer".

        Raises:
            UsageError: something is there already.
            StorageError: the disk did not take it.
        """
        refuse_existing(path)
        with storage(path):
            (path / "steps").mkdir(parents=True)
        folder = cls(path)
        for name, document in documents.items():
            folder.write_document(name, document)
        # The configuration is last: a folder that has one is a run.
        replace_durably(path / "config.toml", tomli_w.dumps(dict(config)).encode())
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """The run at `path`.

        Raises:
            UsageError: it is not a run.
        """
        if not (path / "config.toml").is_file() or not (path / "steps").is_dir():
            raise UsageError(f"{path}: not a run (a run is a folder with config.toml and steps/, made by vitral train)")
        return cls(path)

    @property
    def config(self) -> dict[str, Any]:
        """The whole configuration as plain data."""
        return read_toml(self.path / "config.toml")

    @property
    def steps(self) -> Path:
        """Where the checkpoints are."""
        return self.path / "steps"

    @property
    def report(self) -> Path:
        """Where figures and pages go; made when asked for."""
        with storage(self.path):
            (self.path / "report").mkdir(exist_ok=True)
        return self.path / "report"

    def document(self, name: str) -> dict[str, Any]:
        """A JSON file of the run: "environment", "corpus", "tokenizer".

        Raises:
            UsageError: it is missing or not JSON.
        """
        path = self.path / f"{name}.json"
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: cannot be read ({error})") from None

    def write_document(self, name: str, document: Mapping[str, Any]) -> None:
        """Write a JSON file of the run, all or nothing."""
        replace_durably(self.path / f"{name}.json", as_json(document))

    def append_metric(self, event: Mapping[str, Any]) -> None:
        """Add one line to metrics.jsonl."""
        path = self.path / "metrics.jsonl"
        with storage(path), open(path, "a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(event, ensure_ascii=False) + "\n")

    def metrics(self, event: str | None = None) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, all or those of one kind; a torn last line is left out."""
        path = self.path / "metrics.jsonl"
        # Only "\n" ends a line here: a sample may hold what Python's splitlines takes for an end.
        lines = path.read_bytes().rstrip(b"\n").split(b"\n") if path.exists() else []
        events = []
        for number, line in enumerate(lines, start=1):
            try:
                events.append(json.loads(line))
            except ValueError:
                if number < len(lines):
                    raise UsageError(f"{path}: line {number} is not JSON") from None
        return [found for found in events if event is None or found["event"] == event]

    def rewind(self, step: int, best_step: int | None) -> None:
        """Make the folder say what it said at `step`, from where a run is resumed.

        What was measured later is dropped, since it will be measured again. Later checkpoints, which are damaged or
        they would have been resumed from, are renamed to `damaged-…`, out of the way of those that take their place.

        Args:
            step: the step resumed from.
            best_step: the step whose validation loss was the lowest then, if one was measured.
        """
        for folder in checkpoints.list_checkpoints(self.steps):
            if folder.name > checkpoints.step_name(step):
                checkpoints.set_aside(folder)
        best = "" if best_step is None else checkpoints.step_name(best_step)
        if best != self._pointed("best") and (self.steps / best).is_dir() and best:
            replace_durably(self.path / "best", f"{best}\n".encode())
        kept = [event for event in self.metrics() if event.get("step", 0) <= step and event["event"] != "end"]
        lines = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in kept)
        replace_durably(self.path / "metrics.jsonl", lines.encode())

    def write_sample(self, step: int, text: str) -> None:
        """Keep a text written at `step`."""
        with storage(self.path):
            (self.path / "samples").mkdir(exist_ok=True)
        replace_durably(self.path / "samples" / f"{checkpoints.step_name(step)}.txt", (text + "\n").encode())

    def save(self, checkpoint: Checkpoint, *, best: bool, keep: int) -> None:
        """Write a checkpoint, point `last` (and `best`) to it, and let go of old ones."""
        folder = checkpoints.save_checkpoint(self.steps, checkpoint)
        if best:
            replace_durably(self.path / "best", f"{folder.name}\n".encode())
        replace_durably(self.path / "last", f"{folder.name}\n".encode())
        checkpoints.prune(self.steps, keep=keep, also={self._pointed("best")})

    def load(self, which: str = "last", *, with_optimizer: bool = True, warn: Callable[[str], None]) -> Checkpoint:
        """The "best" or "last" checkpoint; a damaged newest falls back to the one before, loudly.

        Args:
            which: "best" or "last".
            with_optimizer: whether the optimizer's tensors are wanted.
            warn: is told, in one line, why a checkpoint was passed over.

        Raises:
            UsageError: there is no whole checkpoint.
        """
        if which == "best" and (self.steps / self._pointed("best")).is_dir() and self._pointed("best"):
            try:
                return checkpoints.load_checkpoint(self.steps / self._pointed("best"), with_optimizer=with_optimizer)
            except (UsageError, StorageError) as error:
                warn(f"{error}; taking the last one instead")
        for folder in reversed(checkpoints.list_checkpoints(self.steps)):
            try:
                return checkpoints.load_checkpoint(folder, with_optimizer=with_optimizer)
            except (UsageError, StorageError) as error:
                warn(f"{error}; taking the one before")
        raise UsageError(f"{self.path}: no whole checkpoint (training stopped before the first, or all are damaged)")

    def _pointed(self, pointer: str) -> str:
        path = self.path / pointer
        name = path.read_text(encoding="utf-8").strip() if path.is_file() else ""
        # A pointer is a name in steps/, never a path.
        return name if name == Path(name).name else ""


def refuse_existing(path: Path) -> None:
    """Refuse to write where something is.

    Raises:
        UsageError: `path` exists and is not an empty folder.
    """
    if path.is_dir() and not any(path.iterdir()):
        return
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path}: exists already; choose another --out (or vitral resume {path}, if it is a run)")
