"""The run folder: the layout of a run on disk.

config.toml        the whole configuration
run.json           the identity of the run, as in every checkpoint
environment.json   versions and machine
corpus.json        the text: bytes, hash, split
tokenizer.json     the tokenizer, complete
ngrams.json        the n-gram baselines, once counted
metrics.jsonl      one JSON object per line: every measurement
steps/step-…/      checkpoints
best, last         one line each, for people: the name of a checkpoint
samples/  report/  samples generated during training; figures and pages
.lock              locked by the process that writes to the run

What is read back is verified against the newest intact checkpoint. `vitral.runs.gate` opens a run and judges damage.
"""

import dataclasses
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from vitral.core.config import parse_toml
from vitral.core.errors import StorageError, UsageError, reason
from vitral.core.files import as_json, is_left_behind, sha256, storage, temporary_name
from vitral.core.guarded import GuardedFolder
from vitral.core.language import N_, _
from vitral.core.seals import json_object, sealed_json, unsealed_json
from vitral.runs import checkpoint as checkpoints
from vitral.runs.checkpoint import Checkpoint
from vitral.runs.checkpoint_files import OtherModel, Shapes
from vitral.runs.metrics_log import MetricsLog
from vitral.runs.search import run_folders

DUE = {"evaluation", "sample"}
"""Events that are due at a step."""
ENDS = {"end", "stopped"}
MOST_DOCUMENT = 1 << 26
"""Maximum bytes of a JSON file of a run; a tokenizer of a million tokens is smaller."""
MOST_CONFIG = 1 << 20
MOST_BORN = 1 << 22
"""Maximum bytes of run.json: the configuration and some hashes."""
CONFIG, RUN = "config.toml", "run.json"
IMPORTED = "imported"
"""The source of the text of an imported model, and the key of corpus.json that says where the model comes from."""
_OURS = re.compile(
    r"config\.toml|metrics\.jsonl|best|last|\.lock|(run|environment|corpus|tokenizer|ngrams)\.json|steps"
    r"|steps/(\.tmp-\d{1,10}-)?step-\d{8,9}(/((model|optimizer)\.safetensors|(state|history|MANIFEST)\.json))?"
    r"|(steps/)?\.[^/]*\.tmp"
)
"""Paths inside a run that is being created."""


def is_run(path: str | Path) -> bool:
    """Whether a folder has the files of a run, whole or damaged."""
    folder = GuardedFolder(Path(path))
    return os.path.isdir(path) and None not in (folder.kind("steps"), folder.kind(CONFIG) or folder.kind(RUN))


def _instead(path: Path) -> str:
    """What to do with a path that is no run."""
    from vitral.data import corpus_names  # loads PyTorch, which takes seconds

    if os.path.isdir(path) and (inside := [str(run) for run in run_folders(path, [], 999) if run != path]):
        return _("there are runs in it: {runs}", runs=", ".join(inside[:3]))
    if os.path.isfile(path) or str(path) in corpus_names():
        return _("to train on this text: vitral train {path}", path=path)
    return _("made by vitral train")


class RunFolder:
    """One run on disk.

    Attributes:
        path: the folder as the user typed it.
        files: the door to it.
        log: its metrics.
    """

    def __init__(self, path: Path) -> None:
        """Refer to the folder at `path`; see `create` and `open`."""
        self.path = path
        self.files = GuardedFolder(path)
        self.log = MetricsLog(self.files)

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
        above, beside = GuardedFolder(path.parent), temporary_name(path.name)
        with storage(path):
            try:
                above.make()
                for left in above.names():
                    if left.startswith(f".{path.name}.") and is_left_behind(left):
                        above.remove_folder(left, _is_ours)
                above.make(f"{beside}/steps")
                folder = cls(path.with_name(beside))
                for name, document in documents.items():
                    folder.write_document(name, document)
                folder.write_config(config)
                if begin is not None:
                    begin(folder)
                above.rename(beside, path.name)
            except BaseException as error:
                above.remove_folder(beside, _is_ours)
                if not isinstance(error, OSError) or not is_run(path):
                    raise
                raise UsageError(
                    "{path}: another run has taken this name meanwhile; choose another --out", path=path
                ) from None
            above.sync()
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """The run at `path`.

        Raises:
            UsageError: it is not a run, or its files are links.
        """
        folder = cls(path)
        if not is_run(path):
            raise UsageError(
                "{path}: not a run (a run is a folder with config.toml and steps/; {hint})",
                path=path,
                hint=_instead(path),
            )
        folder.files.names("steps")  # refuses a link
        return folder

    @property
    def config(self) -> dict[str, Any]:
        """The content of config.toml; `vitral.runs.gate` compares it with the sealed configuration.

        Raises:
            UsageError: it cannot be read.
        """
        return parse_toml(self._read(CONFIG, MOST_CONFIG), self.path / CONFIG)

    @property
    def steps(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "steps"

    @property
    def guarded_steps(self) -> GuardedFolder:
        """The door to the folder of checkpoints."""
        return self.files.within("steps")

    def newest(self) -> Checkpoint | None:
        """The newest intact checkpoint, without its tensors; None if there is none."""
        for folder in reversed(checkpoints.list_checkpoints(self.guarded_steps)):
            try:
                return checkpoints.load_state(self.guarded_steps.within(folder.name))
            except (UsageError, StorageError):
                continue
        return None

    def sealed(self, newest: Checkpoint | None = None) -> Mapping[str, Any]:
        """The identity of the run as plain data: of the newest intact checkpoint, else of run.json; empty in format 1.

        Raises:
            UsageError: there is no checkpoint, and run.json is damaged.
        """
        newest = newest or self.newest()
        if newest is not None:
            return newest.state if newest.format > 1 else {}
        return self.born() or {}

    def born(self) -> dict[str, Any] | None:
        """The content of run.json, the identity with which the run began; None if the file does not exist.

        Raises:
            UsageError: it is damaged.
        """
        if self.files.kind(RUN) is None:
            return None
        try:
            return unsealed_json(self._read(RUN, MOST_BORN))
        except UsageError:
            raise
        except ValueError as error:
            raise UsageError("{path}: damaged ({error})", path=self.path / RUN, error=error) from None

    def document(self, name: str, sealed: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A JSON file of the run: "environment", "corpus", "tokenizer", "ngrams".

        Args:
            name: without suffix.
            sealed: the identity to verify it against; None takes that of the newest checkpoint.

        Raises:
            UsageError: the file is missing, damaged or not JSON.
        """
        path, sealed = self.path / f"{name}.json", self.sealed() if sealed is None else sealed
        raw = self._read(path.name, most_bytes(path.name))
        expected = sealed.get("documents", {}).get(path.name)
        if expected is not None and sha256(raw) != expected:
            raise UsageError("{path}: changed since the run was saved; restore it from a copy", path=path)
        try:
            return json_object(raw)
        except ValueError as error:
            raise UsageError("{path}: cannot be read ({error})", path=path, error=ascii(str(error))[1:-1]) from None

    def ngrams(self, sealed: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """The n-gram baselines as plain data; None if they are not counted, or not sealed yet.

        Raises:
            UsageError: the file is damaged.
        """
        sealed = self.sealed() if sealed is None else sealed
        if sealed:
            return self.document("ngrams", sealed) if "ngrams.json" in sealed.get("documents", {}) else None
        return self.document("corpus", sealed).get("ngrams")  # format 1

    def write_document(self, name: str, document: Mapping[str, Any]) -> None:
        """Write a JSON file of the run atomically; run.json contains its own hash."""
        self.files.write(f"{name}.json", sealed_json(document) if name == "run" else as_json(document))

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write config.toml atomically."""
        self.files.write(CONFIG, tomli_w.dumps(dict(config)).encode())

    def append_metric(self, event: Mapping[str, Any]) -> None:
        """Append one line to metrics.jsonl."""
        self.log.append(event)

    def metrics(self, event: str | None = None) -> list[dict[str, Any]]:
        """The events of metrics.jsonl up to the newest checkpoint, all or of one kind.

        Before the first checkpoint these are all complete lines. Events after the newest checkpoint are repeated by a
        resume, which removes them first.

        Raises:
            UsageError: the log differs from the seal of the newest checkpoint, or a line is not an event.
        """
        return list(self.log.events(event, log_seal(self.newest())))

    def rewind(self, checkpoint: Checkpoint | None) -> int:
        """Restore the folder to its state at a checkpoint (None: at the beginning), from which the run is resumed.

        Later events are removed, since they will be measured again. Later checkpoints are damaged (otherwise the run
        would resume from them) and are renamed to `damaged-…`, so that new ones can take their place.

        Returns:
            Bytes of an incomplete last line of the log that was removed.

        Raises:
            StorageError: the folder cannot be written.
        """
        last = "" if checkpoint is None else checkpoints.step_name(checkpoint.step)
        for folder in checkpoints.list_checkpoints(self.guarded_steps):
            if folder.name > last:
                checkpoints.set_aside(self.guarded_steps, folder.name)
        if checkpoint is None:
            return self.log.cut({"bytes": 0})
        self.point(checkpoint)
        if "metrics" in checkpoint.history:
            if "stopped" in checkpoint.history:  # of events that are removed now, so that a kill leaves a log as sealed
                history = {name: value for name, value in checkpoint.history.items() if name != "stopped"}
                checkpoints.reseal(self.guarded_steps, last, history)
            return self.log.cut(checkpoint.history["metrics"])
        self._rewind_log_of_format_1(checkpoint)
        return 0

    def _rewind_log_of_format_1(self, checkpoint: Checkpoint) -> None:
        due = checkpoint.step if checkpoint.state.get("pending") else checkpoint.step + 1
        kept = [
            event
            for event in self.log.events()
            if event.get("step", 0) < (due if event["event"] in DUE else checkpoint.step + 1)
            and event["event"] not in ENDS
        ]
        lines = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in kept)
        self.files.write("metrics.jsonl", lines.encode())
        self.log = MetricsLog(self.files)

    def write_sample(self, step: int, text: str) -> None:
        """Save a sample generated at `step`."""
        self.files.make("samples")
        self.files.write(f"samples/{checkpoints.step_name(step)}.txt", (text + "\n").encode())

    def save(self, checkpoint: Checkpoint, *, keep: int, replace: bool = False) -> None:
        """Write a checkpoint that seals the log so far, and remove old checkpoints.

        The newest `keep` checkpoints remain, and that of the state's `best_step`.

        Args:
            checkpoint: the checkpoint.
            keep: how many remain.
            replace: whether to replace a checkpoint of the same step.

        Raises:
            StorageError: the checkpoint cannot be written; earlier checkpoints are intact.
        """
        # Events must reach the disk before the checkpoint that follows them: sealing flushes them.
        history = {**checkpoint.history, "metrics": self.log.seal()}
        sealed = dataclasses.replace(checkpoint, history=history)
        checkpoints.save_checkpoint(self.guarded_steps, sealed, replace=replace)
        self.tidy(checkpoint, keep=keep)

    def tidy(self, newest: Checkpoint, *, keep: int) -> None:
        """Point to the newest checkpoint and the best, and remove old ones: the end of a save, which a kill may skip.

        Raises:
            StorageError: a pointer cannot be written.
        """
        self.point(newest)
        best = newest.state.get("best_step")
        also = set() if best is None else {checkpoints.step_name(best)}
        checkpoints.prune(self.guarded_steps, keep=keep, also=also)

    def reseal(self, key: str = "stopped") -> None:
        """Seal events that were appended after the newest checkpoint, by writing its history again.

        Args:
            key: "metrics" for events that a resume keeps, "stopped" for those that it removes and repeats.

        Raises:
            StorageError: the checkpoint cannot be written.
        """
        newest = self.newest()
        if newest is not None and newest.format > 1:
            history = {name: value for name, value in newest.history.items() if name != "stopped"}
            checkpoints.reseal(
                self.guarded_steps, checkpoints.step_name(newest.step), {**history, key: self.log.seal()}
            )

    def load(
        self,
        which: str = "last",
        *,
        with_optimizer: bool = True,
        shapes: Shapes | None = None,
        newest: Checkpoint | None = None,
        warn: Callable[[str], object],
    ) -> Checkpoint:
        """The "best" or "last" checkpoint; if it is damaged, an earlier one, with a warning.

        The best one is the `best_step` of the newest intact checkpoint.

        Args:
            which: "best" or "last".
            with_optimizer: whether to load the optimizer's tensors.
            shapes: the shapes of the model's tensors (see `load_checkpoint`).
            newest: the newest checkpoint whose state is intact, if the caller has looked for it and has warned of
                later ones; they are skipped.
            warn: called with one line for each checkpoint that is skipped.

        Raises:
            UsageError: there is no intact checkpoint.
        """
        steps, wanted = self.guarded_steps, {"with_optimizer": with_optimizer, "shapes": shapes}
        names = [folder.name for folder in reversed(checkpoints.list_checkpoints(steps))]
        if newest is not None:
            names = [name for name in names if name <= checkpoints.step_name(newest.step)]
        elif which == "best":
            newest = self.newest()
        best = None if newest is None else newest.state.get("best_step")
        lines = dict.fromkeys(names, N_("{complaint}; using the one before"))
        if which == "best" and isinstance(best, int) and newest is not None and best != newest.step:
            first = checkpoints.step_name(best)
            lines.pop(first, None)
            lines = {first: N_("{complaint}; using the last one instead")} | lines
        for name, line in lines.items():
            try:
                return checkpoints.load_checkpoint(steps.within(name), **wanted)
            except OtherModel:
                raise
            except (UsageError, StorageError) as error:
                warn(_(line, complaint=error))
        raise UsageError(
            "{path}: no intact checkpoint (training stopped before the first, or all are damaged)", path=self.path
        )

    def sweep(self) -> None:
        """Remove what ended processes left behind; restore a checkpoint that was being replaced."""
        checkpoints.sweep(self.guarded_steps)
        for name in ("", "steps", "samples", "report"):
            if not name or self.files.kind(name) == "folder":
                self.files.sweep(name)

    def point(self, checkpoint: Checkpoint) -> None:
        """Write the names of the last and the best checkpoint, for people.

        Raises:
            StorageError: they cannot be written.
        """
        best = checkpoint.state.get("best_step")
        for pointer, step in (("best", best), ("last", checkpoint.step)):
            if step is not None:
                self.files.write(pointer, f"{checkpoints.step_name(step)}\n".encode())

    def _read(self, name: str, most: int) -> bytes:
        try:
            return self.files.read(name, most)
        except (UsageError, StorageError):
            raise
        except (OSError, ValueError) as error:
            said = reason(error) if isinstance(error, OSError) else ascii(str(error))[1:-1]
            raise UsageError("{path}: cannot be read ({reason})", path=self.path / name, reason=said) from None


def most_bytes(document: str) -> int:
    """Maximum bytes of a JSON file of a run, by its name; versions and a machine need few."""
    return MOST_BORN if document in (RUN, "environment.json") else MOST_DOCUMENT


def log_seal(checkpoint: Checkpoint | None) -> Mapping[str, Any] | None:
    """The seal of the log; of a run that stopped at a number that is not finite, that of its last event."""
    return None if checkpoint is None else checkpoint.history.get("stopped", checkpoint.history.get("metrics"))


def _is_ours(path: str) -> bool:
    return _OURS.fullmatch(path) is not None


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
