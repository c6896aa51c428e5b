"""A run and what is wrong with it: one judgement, by the seal of its newest intact checkpoint, for all that opens runs.

The newest intact checkpoint seals the run: its identity, the hashes of its JSON files, the whole configuration, and
the log. `enter` (for load, resume, evaluate, pages), the list and the doctor call `verify`, without PyTorch. What would
enter every result is refused, the rest is one line each:

- weights, optimizer, state: a damaged checkpoint is skipped, and an earlier one is used;
- tokenizer.json, config.toml (but for `FREE` keys and the place of the text), run.json of another run: refused;
- corpus.json, ngrams.json, metrics.jsonl: refused by what reads them;
- environment.json, run.json: the seal has what a resume needs.

Samples, frames of the film and older checkpoints are only looked at `deep`, by the doctor. Other files are not looked
at.
"""

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vitral.core.config import differences, shown
from vitral.core.errors import StorageError, UsageError, reason
from vitral.core.files import sha256
from vitral.core.language import N_, Message
from vitral.runs.checkpoint import (
    MOST_BYTES,
    Checkpoint,
    contents,
    list_checkpoints,
    load_state,
    step_name,
    understood,
)
from vitral.runs.folder import CONFIG, IMPORTED, RUN, RunFolder, frame_name
from vitral.runs.metrics_log import NAME as LOG
from vitral.runs.objectives import objective_name, predicts_next

if TYPE_CHECKING:
    from vitral.data import Dataset
    from vitral.data.tokenizers import Tokenizer
    from vitral.runs.config import RunConfig
    from vitral.runs.identity import Identity, Parent


class Finding(NamedTuple):
    """One damage.

    Attributes:
        file: its path in the run.
        line: what is wrong, with the run's path.
        is_refused: whether it would enter every result.
    """

    file: str
    line: Message
    is_refused: bool = False


class SealedRun(RunFolder):
    """A run as its seal says it is; its weights are not loaded.

    Attributes:
        newest: the newest intact checkpoint without its tensors; None before the first.
        findings: what does not agree.
    """

    def __init__(self, path: Path) -> None:
        """Refer to the folder at `path`; see `verify`."""
        super().__init__(path)
        self.newest: Checkpoint | None = None
        self.findings = list[Finding]()

    def latest(self) -> Checkpoint | None:
        """The newest intact checkpoint when the run was verified."""
        return self.newest

    @cached_property
    def identity(self) -> "Identity":
        """The sealed identity.

        Raises:
            UsageError: it is malformed.
        """
        from vitral.runs.identity import identity_in

        return identity_in(self.sealed(), str(self.path))

    @cached_property
    def config(self) -> "RunConfig":
        """The configuration, with every decision taken while training, and free keys as in config.toml.

        Raises:
            UsageError: config.toml cannot be read.
        """
        from vitral.runs.config import RunConfig, with_free_keys

        written = RunConfig.parse(self.written, f"{self.path}/{CONFIG}")
        return with_free_keys(self.identity.current, written)

    @cached_property
    def tokenizer(self) -> "Tokenizer":
        """The run's tokenizer.

        Raises:
            UsageError: it is malformed.
        """
        from vitral.data.tokenizers import Tokenizer

        return Tokenizer(self.document("tokenizer"))

    @contextmanager
    def noted(self, file: str, sentence: Message | None = None, *, is_refused: bool = False) -> Generator[None]:
        """Make a refusal inside the block a finding; a sentence says more of {why}, and of the run's {path}."""
        try:
            yield
        except (UsageError, StorageError) as error:
            why = reason(error)
            line = why if sentence is None else sentence.format(why=why, path=self.path)
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

        parent = self.identity.parent
        inherited = parent.special_ids if parent else None
        said = (self.imported or {}).get("config") or inherited or {}
        return {key: said[key] for key in SPECIAL_IDS if said.get(key) is not None}

    @property
    def descends_from(self) -> str | None:
        """The name of the imported model whose weights this run began from, or is; None where there is none.

        Raises:
            UsageError: corpus.json is damaged.
        """
        if (origin := self.imported) is not None:  # a path of this machine is nobody's business
            return str(origin.get("hub") or Path(str(origin.get("source"))).name)
        return self.identity.parent and self.identity.parent.imported

    def as_parent(self, checkpoint: Checkpoint) -> "Parent":
        """The record of a checkpoint of this run, for a run that begins with its weights."""
        from vitral.runs.identity import Parent

        born = {"special_ids": self.special_ids or None, "imported": self.descends_from}
        return Parent(run=self.identity.run, step=checkpoint.step, manifest=checkpoint.manifest, **born)

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
                path=self.path,
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
            run_folder=self.path,
            corpus=corpus,
        )

    def own_among(self, corpora: Iterable[str | Path]) -> str | Path | None:
        """The first of these texts that is the run's; None if none is."""
        for corpus in corpora:
            with suppress(UsageError):
                self.dataset(corpus)
                return corpus
        return None

    def require_causal_lm(self) -> None:
        """Refuse a masked language model, or a model of labels, where text is generated.

        Raises:
            UsageError: the run is one.
        """
        objective = self.config.training.objective
        if not predicts_next(objective):
            raise UsageError(
                '{path}: a model with training.objective = "{name}" predicts no next token, so it cannot generate '
                'text; use a run whose objective is "next-token" or "mixed"',
                path=self.path,
                name=objective_name(objective),
            )


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
    run = SealedRun.open(path)
    for folder in reversed(list_checkpoints(run.steps)):
        with run.noted(f"steps/{folder.name}", None if run.newest else N_("{why}; using the one before")):
            checkpoint = load_state(folder)
            run.newest = run.newest or checkpoint
            if deep:
                with run.noted(f"steps/{folder.name}"):
                    contents(folder)
        if run.newest and not deep:
            break
    with run.noted("steps", is_refused=True):
        _require_identity(run)
        _documents(run)
        with run.noted(CONFIG, N_("{why}; vitral doctor --repair {path} restores it"), is_refused=True):
            _require_configuration(run)
        if deep:
            _samples(run)
    return run


def _require_identity(run: SealedRun) -> None:
    """Refuse a run that nothing seals, and compare run.json with what does."""
    path, newest = run.path, run.newest
    if newest is None and run.findings:
        complaint = run.findings[0].line.cause.removeprefix(f"{path}{os.sep}")
        raise UsageError("{path}: no intact checkpoint ({complaint})", path=path, complaint=complaint)
    try:
        born = run.born()
    except UsageError as error:
        if newest is None:
            raise UsageError(
                "{path}: no checkpoint, and run.json is missing; it cannot be continued", path=path
            ) from None
        line = N_("{why}; the newest checkpoint contains the same; vitral doctor --repair {path} restores it")
        run.findings.append(Finding(RUN, line.format(why=error, path=path)))
        born = newest.state
    seal = run.sealed()
    if born.get("run") != seal.get("run"):
        raise UsageError(
            "{path}: its checkpoints are of another run than its run.json; they were put together by hand", path=path
        )
    if newest is None and born.get("parent") is not None:
        raise UsageError(
            "{path}: no intact checkpoint, and it began with the weights of another run; start it again from there, "
            "with vitral train --init-from or vitral continue",
            path=path,
        )
    for key in ("documents", "config"):
        if not isinstance(seal.get(key), dict):
            raise UsageError("{path}: its identity has no {key}", path=path, key=key)


def _documents(run: SealedRun) -> None:
    """Compare the sealed JSON files and the log."""
    hashes = dict(run.sealed()["documents"])
    if run.newest is not None:
        hashes["environment.json"] = run.newest.history.get("environment")
        with run.noted(LOG):
            run.log.require(run.newest.history["metrics"])
    for name, hashed in hashes.items():
        with run.noted(name, is_refused=name == "tokenizer.json"):
            run.as_sealed(name, hashed)


def _require_configuration(run: SealedRun) -> None:
    """Compare config.toml, which people may edit."""
    where, written, sealed = run.path / CONFIG, run.written, run.sealed()["config"]
    if written == sealed:
        return
    from vitral.runs.config import RunConfig, comparable  # loads PyTorch, which takes seconds

    one, other = (comparable(RunConfig.parse(each, str(where))) for each in (sealed, written))
    if changes := [f"{key}: {shown(before)} → {shown(now)}" for key, before, now in differences(one, other)]:
        raise UsageError("{where}: changed since the run began ({changed})", where=where, changed="; ".join(changes))


def _samples(run: SealedRun) -> None:
    """Compare the samples and the film with the log; no result reads them, and they may be removed."""
    if any(finding.file == LOG for finding in run.findings):
        return
    with run.noted(LOG), understood(run.log.path):
        texts = {f"samples/{step_name(one['step'])}.txt": f"{one['text']}\n" for one in run.metrics("sample")}
        hashes = {name: sha256(text.encode()) for name, text in texts.items()}
        for name, hashed in (hashes | {frame_name(step): hashed for step, hashed in run.film().items()}).items():
            if os.path.lexists(run.path / name):
                with run.noted(name):
                    run.as_sealed(name, hashed, MOST_BYTES)
