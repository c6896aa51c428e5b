"""The run folder: the layout of a run on disk.

config.toml        the whole configuration
environment.json   versions and machine
corpus.json        the text: bytes, hash, split
tokenizer.json     the tokenizer, complete
metrics.jsonl      one JSON object per line: every measurement
steps/step-…/      checkpoints
best, last         one line each: the name of a checkpoint
samples/  report/  samples generated during training; figures and pages
.lock              locked by the process that writes to the run
"""

import glob
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from vitral.core.config import read_toml
from vitral.core.errors import StorageError, UsageError
from vitral.core.files import as_json, read_capped, replace_durably, storage, sync_file, sync_folder
from vitral.runs import checkpoint as checkpoints
from vitral.runs.checkpoint import Checkpoint, Shapes

MOST_POINTER = 100
DUE = {"evaluation", "sample"}
"""Events that are due at a step."""
ENDS = {"end", "stopped"}
MOST_DOCUMENT = 1 << 26
"""Maximum bytes of a JSON file of a run; a tokenizer of a million tokens is smaller."""


class RunFolder:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        """Refer to the folder at `path`; see `create` and `open`."""
        self.path = path

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
            documents: JSON files by name without suffix: "environment", "corpus", "tokenizer".
            begin: writes into the folder while it still has a temporary name, for example the checkpoint of step 0.

        Raises:
            UsageError: `path` already exists.
            StorageError: the folder cannot be written.
        """
        refuse_existing(path)
        beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        with storage(path):
            try:
                _sweep_beside(path)
                (beside / "steps").mkdir(parents=True)
                folder = cls(beside)
                for name, document in documents.items():
                    folder.write_document(name, document)
                replace_durably(beside / "config.toml", tomli_w.dumps(dict(config)).encode())
                if begin is not None:
                    begin(folder)
                os.rename(beside, path)
                sync_folder(path.parent)
            except BaseException:
                shutil.rmtree(beside, ignore_errors=True)
                raise
        return cls(path)

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
        """The complete configuration as plain data."""
        return read_toml(self.path / "config.toml")

    @property
    def steps(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "steps"

    @property
    def report(self) -> Path:
        """The folder of figures and pages, created on first use."""
        with storage(self.path):
            (self.path / "report").mkdir(exist_ok=True)
        return self.path / "report"

    def document(self, name: str) -> dict[str, Any]:
        """A JSON file of the run: "environment", "corpus", "tokenizer".

        Raises:
            UsageError: the file is missing or not JSON.
        """
        path = self.path / f"{name}.json"
        try:
            document = json.loads(read_capped(path, MOST_DOCUMENT))
        except (OSError, ValueError, RecursionError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else ascii(str(error))[1:-1]
            raise UsageError(f"{path}: cannot be read ({reason})") from None
        if not isinstance(document, dict):
            raise UsageError(f"{path}: cannot be read (not a JSON object)")
        return document

    def write_document(self, name: str, document: Mapping[str, Any]) -> None:
        """Write a JSON file of the run atomically."""
        replace_durably(self.path / f"{name}.json", as_json(document))

    def append_metric(self, event: Mapping[str, Any]) -> None:
        """Append one line to metrics.jsonl."""
        path = self.path / "metrics.jsonl"
        with storage(path), open(path, "a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(event, ensure_ascii=False) + "\n")

    def metrics(self, event: str | None = None) -> list[dict[str, Any]]:
        """The events of metrics.jsonl, all or of one kind; an incomplete last line is ignored."""
        path = self.path / "metrics.jsonl"
        # Split at "\n" only: a sample may contain other characters that splitlines treats as line ends.
        lines = path.read_bytes().rstrip(b"\n").split(b"\n") if path.exists() else []
        events = []
        for number, line in enumerate(lines, start=1):
            try:
                found = json.loads(line)
                if not isinstance(found, dict) or not isinstance(found.get("event"), str):
                    raise ValueError
                events.append(found)
            except (ValueError, RecursionError):
                if number < len(lines):
                    raise UsageError(f"{path}: line {number} is not an event in JSON") from None
        return [found for found in events if event is None or found["event"] == event]

    def rewind(self, step: int, best_step: int | None, *, redo: bool = False) -> None:
        """Restore the folder to its state at `step`, from which the run is resumed.

        Later events are removed, since they will be measured again. Later checkpoints are damaged (otherwise the run
        would resume from them) and are renamed to `damaged-…`, so that new ones can take their place.

        Args:
            step: the step to resume from.
            best_step: the step with the lowest validation loss up to then, if any.
            redo: whether the evaluation and sample due at that step are still to be done.
        """
        for folder in checkpoints.list_checkpoints(self.steps):
            if folder.name > checkpoints.step_name(step):
                checkpoints.set_aside(folder)
        best = "" if best_step is None else checkpoints.step_name(best_step)
        for pointer, name in (("best", best), ("last", checkpoints.step_name(step))):
            if name and name != self._pointed(pointer) and (self.steps / name).is_dir():
                replace_durably(self.path / pointer, f"{name}\n".encode())
        due = step if redo else step + 1
        kept = [
            event
            for event in self.metrics()
            if event.get("step", 0) < (due if event["event"] in DUE else step + 1) and event["event"] not in ENDS
        ]
        lines = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in kept)
        replace_durably(self.path / "metrics.jsonl", lines.encode())

    def write_sample(self, step: int, text: str) -> None:
        """Save a sample generated at `step`."""
        with storage(self.path):
            (self.path / "samples").mkdir(exist_ok=True)
        replace_durably(self.path / "samples" / f"{checkpoints.step_name(step)}.txt", (text + "\n").encode())

    def save(self, checkpoint: Checkpoint, *, best: bool, keep: int, replace: bool = False) -> None:
        """Write a checkpoint, point `last` (and `best`) to it, and remove old ones.

        Raises:
            StorageError: the checkpoint cannot be written; earlier checkpoints are intact.
        """
        metrics = self.path / "metrics.jsonl"
        if metrics.exists():  # events must reach the disk before the checkpoint that follows them
            with storage(metrics):
                sync_file(metrics)
        folder = checkpoints.save_checkpoint(self.steps, checkpoint, replace=replace)
        if best:
            replace_durably(self.path / "best", f"{folder.name}\n".encode())
        replace_durably(self.path / "last", f"{folder.name}\n".encode())
        checkpoints.prune(self.steps, keep=keep, also={self._pointed("best")})

    def load(
        self,
        which: str = "last",
        *,
        with_optimizer: bool = True,
        shapes: Shapes | None = None,
        warn: Callable[[str], None],
    ) -> Checkpoint:
        """The "best" or "last" checkpoint; if it is damaged, an earlier one, with a warning.

        Args:
            which: "best" or "last".
            with_optimizer: whether to load the optimizer's tensors.
            shapes: the shapes of the model's tensors (see `load_checkpoint`).
            warn: called with one line for each checkpoint that is skipped.

        Raises:
            UsageError: there is no intact checkpoint.
        """
        wanted = {"with_optimizer": with_optimizer, "shapes": shapes}
        if which == "best" and self._pointed("best") and (self.steps / self._pointed("best")).is_dir():
            try:
                return checkpoints.load_checkpoint(self.steps / self._pointed("best"), **wanted)
            except checkpoints.OtherModel:
                raise
            except (UsageError, StorageError) as error:
                warn(f"{error}; using the last one instead")
        for folder in reversed(checkpoints.list_checkpoints(self.steps)):
            try:
                return checkpoints.load_checkpoint(folder, **wanted)
            except checkpoints.OtherModel:
                raise
            except (UsageError, StorageError) as error:
                warn(f"{error}; using the one before")
        raise UsageError(f"{self.path}: no intact checkpoint (training stopped before the first, or all are damaged)")

    def _pointed(self, pointer: str) -> str:
        path = self.path / pointer
        try:
            name = read_capped(path, MOST_POINTER).decode("ascii", "replace").strip() if path.is_file() else ""
        except (OSError, ValueError):
            return ""
        # A pointer must be a checkpoint's name, not a path.
        return name if checkpoints.STEP.fullmatch(name) else ""


def _sweep_beside(path: Path) -> None:
    """Remove leftovers of ended processes that were creating this folder."""
    if not path.parent.is_dir():
        return
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        number = leftover.name.removesuffix(".tmp").rpartition(".")[2]
        if number.isdecimal() and not _is_alive(int(number)):
            shutil.rmtree(leftover, ignore_errors=True)


def _is_alive(process: int) -> bool:
    """Whether another process with this id is running."""
    if process == os.getpid() or os.name == "nt":
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def refuse_existing(path: Path) -> None:
    """Refuse an existing path, except for an empty folder.

    Raises:
        UsageError: `path` exists and is not an empty folder.
    """
    if path.is_dir() and not any(path.iterdir()):
        return
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path}: exists already; choose another --out (or vitral resume {path}, if it is a run)")
