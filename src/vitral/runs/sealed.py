"""A run and what is wrong with it: one judgement, by the seal of its newest intact checkpoint, for all that opens runs.

The newest intact checkpoint seals the run: its identity, the hashes of its JSON files, the whole configuration, and
the log. `enter` (for load, resume, evaluate, pages), the list and the doctor call `verify`, without PyTorch. What would
enter every result is refused, the rest is one line each:

- weights, optimizer, state: a damaged checkpoint is skipped, and an earlier one is used;
- tokenizer.json, config.toml (but for `FREE` keys and the place of the text), run.json of another run: refused;
- corpus.json, ngrams.json, metrics.jsonl: refused by what reads them;
- environment.json, run.json: the seal has what a resume needs.

Samples and older checkpoints are only looked at `deep`, by the doctor. Other files are not looked at.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitral.core.config import differences
from vitral.core.errors import StorageError, UsageError, reason
from vitral.core.files import read, readable
from vitral.core.language import N_, Message
from vitral.runs.checkpoint import Checkpoint, contents, list_checkpoints, load_state, step_name
from vitral.runs.folder import CONFIG, IMPORTED, MOST_DOCUMENT, RUN, RunFolder, log_seal
from vitral.runs.metrics_log import NAME as LOG

if TYPE_CHECKING:
    from vitral.data import Dataset
    from vitral.data.tokenizers import Tokenizer
    from vitral.runs.config import RunConfig
    from vitral.runs.identity import Identity, Parent


@dataclass(frozen=True)
class Finding:
    """One damage.

    Attributes:
        file: its path in the run.
        line: what is wrong, with the run's path.
        is_refused: whether it would enter every result.
    """

    file: str
    line: Message
    is_refused: bool = False


@dataclass(eq=False)
class SealedRun:
    """A run as its seal says it is; its weights are not loaded.

    Attributes:
        folder: the run on disk.
        newest: the newest intact checkpoint without its tensors; None before the first.
        seal: its state, or run.json before the first: the identity as plain data.
        findings: what does not agree.
    """

    folder: RunFolder
    newest: Checkpoint | None = None
    seal: Mapping[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @cached_property
    def identity(self) -> "Identity":
        """The sealed identity.

        Raises:
            UsageError: it is malformed.
        """
        from vitral.runs.identity import identity_in

        return identity_in(self.seal, str(self.folder.path))

    @cached_property
    def config(self) -> "RunConfig":
        """The configuration, with every decision taken while training, and free keys as in config.toml.

        Raises:
            UsageError: config.toml cannot be read.
        """
        from vitral.runs.config import RunConfig, with_free_keys

        written = RunConfig.parse(self.folder.config, f"{self.folder.path}/{CONFIG}")
        return with_free_keys(self.identity.current, written)

    @cached_property
    def tokenizer(self) -> "Tokenizer":
        """The run's tokenizer.

        Raises:
            UsageError: it is malformed.
        """
        from vitral.data.tokenizers import Tokenizer

        return Tokenizer(self.folder.document("tokenizer", self.seal))

    def find(self, file: str, line: Message, *, is_refused: bool = False) -> None:
        """Add a finding."""
        self.findings.append(Finding(file, line, is_refused))

    @property
    def imported(self) -> dict[str, Any] | None:
        """Where an imported model comes from, as plain data; None of a run that was trained here.

        Raises:
            UsageError: corpus.json is damaged.
        """
        if self.identity.config.corpus.source != IMPORTED:
            return None
        return self.document("corpus").get(IMPORTED)

    @property
    def special_ids(self) -> dict[str, Any]:
        """The ids that begin, end and fill a text: of an imported model, and of every run that descends from one.

        Raises:
            UsageError: corpus.json is damaged.
        """
        from vitral.runs.identity import SPECIAL_IDS

        origin, parent = self.imported, self.identity.parent
        if origin is None:
            return {} if parent is None else dict(parent.special_ids or {})
        said = origin.get("config")
        return {key: said[key] for key in SPECIAL_IDS if said.get(key) is not None} if said else {}

    @property
    def descends_from(self) -> str | None:
        """The name of the imported model whose weights this run began from, or is; None where there is none.

        Raises:
            UsageError: corpus.json is damaged.
        """
        origin, parent = self.imported, self.identity.parent
        if origin is None:
            return None if parent is None else parent.imported
        # A path of this machine is nobody's business.
        return str(origin.get("hub") or Path(str(origin.get("source"))).name)

    def as_parent(self, checkpoint: Checkpoint) -> "Parent":
        """The record of a checkpoint of this run, for a run that begins with its weights."""
        from vitral.runs.identity import Parent

        return Parent(
            run=self.identity.run,
            step=checkpoint.step,
            manifest=checkpoint.manifest,
            special_ids=self.special_ids or None,
            imported=self.descends_from,
        )

    def require_text(self) -> None:
        """Refuse an imported model where the text that a run was trained on is needed.

        Raises:
            UsageError: the run is one.
        """
        origin = self.imported
        if origin is not None:
            raise UsageError(
                "{path}: imported from {source}, so it has no text and no training of its own; vitral evaluate {path} "
                "--text FILE measures it on any text, vitral train FILE --init-from {path} trains it further",
                path=self.folder.path,
                source=origin.get("source"),
            )

    def dataset(self, corpus: str | Path | None = None) -> "Dataset":
        """The run's text, tokenized and split as it was in training; nothing is downloaded.

        Args:
            corpus: the text, if it is no longer where it was: a file, a folder or a name.

        Raises:
            UsageError: it cannot be found, or has changed since.
        """
        from vitral.data import prepare_recorded  # which imports PyTorch

        self.require_text()
        return prepare_recorded(
            self.config.corpus,
            self.document("corpus"),
            tokenizer=self.tokenizer,
            run_folder=self.folder.path,
            corpus=corpus,
        )

    def require_causal_lm(self) -> None:
        """Refuse a masked language model where text is generated.

        Raises:
            UsageError: the run is one.
        """
        if self.config.training.objective != "next-token":
            raise UsageError(
                '{path}: a masked language model (training.objective = "masked") cannot generate text; '
                'use a run whose objective is "next-token"',
                path=self.folder.path,
            )

    def document(self, name: str) -> dict[str, Any]:
        """A JSON file of the run, verified: "corpus", "environment".

        Raises:
            UsageError: it is damaged.
        """
        return self.folder.document(name, self.seal)

    def ngrams(self) -> dict[str, Any] | None:
        """The n-gram baselines as plain data; None if they are not counted, or not sealed yet.

        Raises:
            UsageError: the file is damaged.
        """
        return self.folder.ngrams(self.seal)


def enter(path: Path, warn: Callable[[str], object]) -> SealedRun:
    """Open a run.

    Args:
        path: the run's folder.
        warn: called with one line for each damage that does not enter a result.

    Raises:
        UsageError: it is not a run, its identity or tokenizer is malformed, or damage would enter every result.
    """
    run = verify(path)
    for one in run.findings:
        if one.is_refused:
            raise UsageError(one.line)
    for one in run.findings:
        warn(one.line)
    _ = run.config, run.tokenizer
    return run


def verify(path: Path, *, deep: bool = False) -> SealedRun:
    """Compare a run's files with its seal.

    Args:
        path: the run's folder.
        deep: whether to read all of every checkpoint, and what is for people, too.

    Raises:
        UsageError: it is not a run, or folders in it are links.
    """
    run = SealedRun(RunFolder.open(path))
    last: Message | None = None
    for folder in reversed(list_checkpoints(run.folder.steps)):
        try:
            found = load_state(folder)
            run.newest = run.newest or found
            if deep:
                contents(folder)
        except (UsageError, StorageError) as error:
            last = last or reason(error)
            line = reason(error) if run.newest else N_("{why}; using the one before").format(why=error)
            run.find(f"steps/{folder.name}", line)
        if run.newest and not deep:
            break
    if not run.newest and last:
        line = N_("{path}: no intact checkpoint ({complaint})")
        run.find("steps", line.format(path=path, complaint=last.removeprefix(f"{path}{os.sep}")), is_refused=True)
    elif _born(run):
        _documents(run)
        _configuration(run)
        if deep:
            _samples(run)
    return run


def _born(run: SealedRun) -> bool:
    """Compare run.json; return whether there is an identity."""
    path = run.folder.path
    try:
        born = run.folder.born()
    except UsageError as error:
        if run.newest is None:
            line = N_("{path}: no checkpoint, and run.json is missing; it cannot be continued")
            run.find(RUN, line.format(path=path), is_refused=True)
            return False
        line = N_("{why}; the newest checkpoint contains the same; vitral doctor --repair {path} restores it")
        run.find(RUN, line.format(why=error, path=path))
        born = run.newest.state
    run.seal = born if run.newest is None else run.newest.state
    if born.get("run") != run.seal.get("run"):
        line = N_("{path}: its checkpoints are of another run than its run.json; they were put together by hand")
        run.find(RUN, line.format(path=path), is_refused=True)
    if run.newest is None and born.get("parent") is not None:
        line = N_(
            "{path}: no intact checkpoint, and it began with the weights of another run; start it again from there, "
            "with vitral train --init-from or vitral continue"
        )
        run.find("steps", line.format(path=path), is_refused=True)
    unknown = [key for key in ("documents", "config") if not isinstance(run.seal.get(key), dict)]
    for key in unknown:
        run.find("steps", N_("{path}: its identity has no {key}").format(path=path, key=key), is_refused=True)
    return not unknown


def _documents(run: SealedRun) -> None:
    """Compare the sealed JSON files and the log."""
    hashes = dict(run.seal["documents"])
    if run.newest is not None:
        hashes["environment.json"] = run.newest.history.get("environment")
    for name, hashed in hashes.items():
        try:
            run.folder.as_sealed(name, hashed)
        except UsageError as error:
            run.find(name, reason(error), is_refused=name == "tokenizer.json")
    try:
        if (seal := log_seal(run.newest)) is not None:
            run.folder.log.require(seal)
    except UsageError as error:
        run.find(LOG, reason(error))


def _configuration(run: SealedRun) -> None:
    """Compare config.toml, which people may edit."""
    where = run.folder.path / CONFIG
    try:
        written, sealed = run.folder.config, run.seal["config"]
        if written == sealed:
            return
        from vitral.runs.config import RunConfig, comparable  # loads PyTorch, which takes seconds

        one, other = (comparable(RunConfig.parse(each, str(where))) for each in (sealed, written))
        found = [f"{key}: {_shown(before)} → {_shown(now)}" for key, before, now in differences(one, other)]
        if not found:
            return
        why = N_("{where}: changed since the run began ({changed})").format(where=where, changed="; ".join(found))
    except UsageError as error:
        why = reason(error)
    line = N_("{why}; vitral doctor --repair {path} restores it").format(why=why, path=run.folder.path)
    run.find(CONFIG, line, is_refused=True)


def _shown(value: Any) -> str:
    return "–" if value is None else str(value)[:60]


def _samples(run: SealedRun) -> None:
    """Compare the samples with the log; no result reads them."""
    with suppress(UsageError):  # found already
        for event in run.folder.log.events("sample", log_seal(run.newest)):
            name = f"samples/{step_name(event['step'])}.txt"
            path = run.folder.path / name
            try:
                with readable(path):
                    if os.path.lexists(path) and read(path, MOST_DOCUMENT) != f"{event['text']}\n".encode():
                        run.find(name, N_("{where}: differs from the log, which is right").format(where=path))
            except UsageError as error:
                run.find(name, reason(error))
