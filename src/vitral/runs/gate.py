"""The gate: the one way to open a run, and the one judgement of damage.

The newest intact checkpoint seals the run: its identity, the hashes of its JSON files, the whole configuration, and
the log. Everything read later is compared with it. Damage that would enter the result is refused; other damage is one
warning, and the result comes from what is sealed:

- weights, optimizer, state: a damaged checkpoint is skipped with a warning, and an earlier one is used;
- tokenizer.json: refused;
- config.toml: the sealed configuration is used, with a warning; a resume refuses, since the user may have wanted the
  change. `FREE` keys and the place of the text may differ;
- corpus.json, ngrams.json, metrics.jsonl: a warning; refused by what reads them;
- environment.json, run.json: a warning; run.json of another run is refused.

Reports and samples are derived from the rest: only `vitral doctor` looks at them. Other files are not looked at.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.core.config import differences
from vitral.core.errors import UsageError, printable
from vitral.core.files import sha256
from vitral.core.language import _
from vitral.data.tokenizers import Tokenizer, tokenizer_from_plain
from vitral.runs.checkpoint import Checkpoint, list_checkpoints, load_state
from vitral.runs.config import RunConfig, comparable
from vitral.runs.folder import CONFIG, IMPORTED, MOST_DOCUMENT, RunFolder, log_seal, most_bytes
from vitral.runs.identity import SPECIAL_IDS, Identity, Parent, run_id
from vitral.runs.keys import FREE

Warn = Callable[[str], object]


@dataclass(frozen=True)
class SealedRun:
    """A run whose files have been compared with its seal; its weights are not loaded yet.

    Attributes:
        folder: the run on disk.
        identity: the sealed identity; of a run of format 1, one made from its files.
        config: the configuration, with every decision taken while training, and free keys as in config.toml.
        tokenizer: the run's tokenizer.
        newest: the newest intact checkpoint without its tensors; None before the first.
        format: 1 or 2.
        complaints: damage that does not enter the weights or the tokenizer, one line each.
        changed: keys in which config.toml differs from the sealed configuration, with both values.
    """

    folder: RunFolder
    identity: Identity
    config: RunConfig
    tokenizer: Tokenizer
    newest: Checkpoint | None
    format: int
    complaints: tuple[str, ...]
    changed: tuple[str, ...]

    def with_free_keys(self, config: RunConfig) -> RunConfig:
        """A sealed configuration with the keys that may change taken from this run's `config`."""
        return _with_free_keys(config, self.config)

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines that every command says of this run, although nothing is damaged."""
        if self.format > 1:
            return ()
        sentence = _(
            "{path}: made by an earlier Vitral (format 1): its tokenizer, text record and log are not sealed",
            path=self.folder.path,
        )
        return (sentence,)

    @property
    def sealed(self) -> Mapping[str, Any]:
        """The identity as plain data; empty in format 1."""
        return self.identity.plain() if self.format > 1 else {}

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
        origin, parent = self.imported, self.identity.parent
        if origin is None:
            return {} if parent is None else dict(parent.special_ids or {})
        said = origin.get("config")
        found = {key: said.get(key) for key in SPECIAL_IDS} if isinstance(said, Mapping) else {}
        return {key: value for key, value in found.items() if _is_id(value)}

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

    def as_parent(self, checkpoint: Checkpoint) -> Parent:
        """The record of a checkpoint of this run, for a run that begins with its weights."""
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

    def document(self, name: str) -> dict[str, Any]:
        """A JSON file of the run, verified: "corpus", "environment".

        Raises:
            UsageError: it is damaged.
        """
        return self.folder.document(name, self.sealed)

    def ngrams(self) -> dict[str, Any] | None:
        """The n-gram baselines as plain data; None if they are not counted, or not sealed yet.

        Raises:
            UsageError: the file is damaged.
        """
        return self.folder.ngrams(self.sealed)


def _is_id(value: Any) -> bool:
    """Whether a value is an id, or a list of them."""
    listed = value if isinstance(value, list) and value else [value]
    return all(type(one) is int and one >= 0 for one in listed)


def enter(path: Path, warn: Warn) -> SealedRun:
    """Open a run: compare everything in its folder with the seal of its newest intact checkpoint.

    Args:
        path: the run's folder.
        warn: called with one line for each damage that does not enter a result.

    Raises:
        UsageError: it is not a run, or damage would enter every result.
    """
    folder = RunFolder.open(path)
    newest, damaged = _newest(folder)
    if newest is None:
        run = _without_checkpoint(folder)
    elif newest.format == 1:
        run = _of_format_1(folder, newest)
    else:
        run = _of_seal(folder, Identity.parse(identity_in(newest.state), f"{path}: step {newest.step}"), newest)
    for line in (*damaged, *run.complaints, *run.notes):
        warn(printable(line))
    return run


def identity_in(state: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a run's identity in a checkpoint's state or in run.json."""
    return {key: value for key, value in state.items() if key in Identity.model_fields}


def _newest(folder: RunFolder) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint whose state is intact, and a complaint about each later one.

    Raises:
        UsageError: there are checkpoints, and none is intact.
    """
    steps = folder.guarded_steps
    checkpoints = list_checkpoints(steps)
    complaints: list[str] = []
    for one in reversed(checkpoints):
        try:
            return load_state(steps.within(one.name)), [
                _("{complaint}; using the one before", complaint=line) for line in complaints
            ]
        except (UsageError, OSError) as error:
            complaints.append(str(error))
    if checkpoints:
        raise UsageError(
            "{path}: no intact checkpoint ({complaint})",
            path=folder.path,
            complaint=complaints[0].removeprefix(f"{folder.path}/"),
        )
    return None, []


def _of_seal(folder: RunFolder, identity: Identity, newest: Checkpoint | None) -> SealedRun:
    sealed = identity.plain()
    tokenizer = tokenizer_from_plain(folder.document("tokenizer", sealed))
    config, changed, complaints = _configuration(folder, identity)
    complaints += _birth_complaints(folder, identity)
    hashes: dict[str, str] = {name: hashed for name, hashed in identity.documents.items() if name != "tokenizer.json"}
    if newest is not None:
        hashes |= {"environment.json": newest.history.get("environment", "")}
    for name, hashed in hashes.items():
        complaints += _hash_complaint(folder, name, hashed)
    seal = log_seal(newest)
    if seal is not None and (complaint := folder.log.complaint(seal)):
        complaints.append(
            _(
                "{path}/metrics.jsonl: {complaint}; vitral doctor --repair {path} cuts it",
                path=folder.path,
                complaint=complaint,
            )
        )
    return SealedRun(folder, identity, config, tokenizer, newest, 2, tuple(complaints), changed)


def _configuration(folder: RunFolder, identity: Identity) -> tuple[RunConfig, tuple[str, ...], list[str]]:
    """The run's configuration, the keys in which config.toml differs from it, and complaints."""
    current = identity.current
    try:
        written = RunConfig.parse(folder.config, str(folder.path / CONFIG))
    except UsageError as error:
        complaint = _(
            "{complaint}; the sealed configuration is used; vitral doctor --repair {path} restores it",
            complaint=error,
            path=folder.path,
        )
        return current, (str(error),), [complaint]
    changed = _changes(identity.config, written)
    config = _with_free_keys(current, written)
    if not changed:
        return config, changed, []
    complaint = _(
        "{path}/config.toml: changed since the run began ({changed}); the sealed configuration is used; vitral doctor "
        "--repair {path} restores it",
        path=folder.path,
        changed="; ".join(changed),
    )
    return config, changed, [complaint]


def _with_free_keys(config: RunConfig, written: RunConfig) -> RunConfig:
    free = {key: getattr(written.training, key) for key in FREE}
    training = config.training.model_copy(update=free)
    corpus = config.corpus.model_copy(update={"source": written.corpus.source})
    return config.model_copy(update={"training": training, "corpus": corpus})


def _changes(sealed: RunConfig, written: RunConfig) -> tuple[str, ...]:
    found = differences(comparable(sealed), comparable(written))
    return tuple(f"{key}: {_shown(before)} → {_shown(now)}" for key, before, now in found)


def _shown(value: Any) -> str:
    text = _("unset") if value is None else str(value)[:60]
    return printable(text)


def _birth_complaints(folder: RunFolder, identity: Identity) -> list[str]:
    """Complaints about run.json.

    Raises:
        UsageError: it is intact and of another run.
    """
    try:
        born = folder.born()
    except UsageError as error:
        complaint = _(
            "{complaint}; the newest checkpoint contains the same; vitral doctor --repair {path} restores it",
            complaint=error,
            path=folder.path,
        )
        return [complaint]
    if born is None:
        return [_("{path}/run.json: missing; vitral doctor --repair {path} restores it", path=folder.path)]
    if born.get("run") != identity.run:
        raise UsageError(
            "{path}: its checkpoints are of another run than its run.json; they were put together by hand",
            path=folder.path,
        )
    return []


def _hash_complaint(folder: RunFolder, name: str, hashed: str) -> list[str]:
    where = folder.path / name
    try:
        intact = sha256(folder.files.read(name, most_bytes(name))) == hashed
    except FileNotFoundError:
        return [_("{path}: missing; only results that need it are refused", path=where)]
    except (OSError, ValueError) as error:
        return [_("{path}: cannot be read ({reason}); only results that need it are refused", path=where, reason=error)]
    if intact:
        return []
    return [_("{path}: changed since the run was saved; only results that need it are refused", path=where)]


def _without_checkpoint(folder: RunFolder) -> SealedRun:
    """A run that was stopped before its first checkpoint.

    Raises:
        UsageError: its files differ from its identity, or it started from weights of another run.
    """
    born = folder.born()
    if born is None:
        return _of_format_1(folder, None)
    identity = Identity.parse(identity_in(born), f"{folder.path}/run.json")
    run = _of_seal(folder, identity, None)
    if identity.parent is not None:
        raise UsageError(
            "{path}: no intact checkpoint, and it began with the weights of another run; start it "
            "again from there, with vitral train --init-from or vitral continue",
            path=folder.path,
        )
    return run


def _of_format_1(folder: RunFolder, newest: Checkpoint | None) -> SealedRun:
    """A run made before format 2: its checkpoints contain most of its configuration, and no hashes of other files.

    Raises:
        UsageError: a file cannot be read, or the run is of format 2 and its identity is missing.
    """
    where = folder.path
    corpus, tokenizer = folder.document("corpus", {}), folder.document("tokenizer", {})
    if corpus.get("format", 1) != 1 and newest is None:
        raise UsageError("{where}: no checkpoint, and run.json is missing; it cannot be continued", where=where)
    config = RunConfig.parse(folder.config, f"{where}/{CONFIG}")
    sealed = {} if newest is None else newest.state.get("config", {})
    if not isinstance(sealed, dict):
        raise UsageError(
            "{where}: step {step} contains no configuration", where=where, step=newest.step if newest else 0
        )
    if sealed:
        sealed = {**sealed, "corpus": {**sealed.get("corpus", {}), "source": config.corpus.source}}
    saved = RunConfig.parse(sealed, f"{where}: state.json") if sealed else config
    changed = _changes(saved, config)
    complaints: tuple[str, ...] = ()
    if changed:
        config = saved
        complaint = _(
            "{path}/config.toml: changed since the run began ({changed}); the saved configuration is used",
            path=where,
            changed="; ".join(changed),
        )
        complaints = (complaint,)
    # In format 1, corpus.json was written again when the baselines were counted; they are not part of the text.
    text = {key: value for key, value in corpus.items() if key != "ngrams"}
    identity = Identity(
        run=run_id(config, text, tokenizer),
        config=config,
        documents=_hashes_of_format_1(folder),
        threads=_threads_of_format_1(folder),
    )
    return SealedRun(folder, identity, config, tokenizer_from_plain(tokenizer), newest, 1, complaints, changed)


def _hashes_of_format_1(folder: RunFolder) -> dict[str, str]:
    return {name: sha256(folder.files.read(name, MOST_DOCUMENT)) for name in ("corpus.json", "tokenizer.json")}


def _threads_of_format_1(folder: RunFolder) -> int:
    try:
        return max(1, int(folder.document("environment", {}).get("threads", 1)))
    except (ValueError, TypeError):
        return 1
