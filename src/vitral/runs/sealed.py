"""A run whose files have been compared with its seal: what every command but the list and the doctor opens."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitral.core.errors import UsageError
from vitral.data.tokenizers import Tokenizer
from vitral.runs.checkpoint import Checkpoint
from vitral.runs.config import FREE, RunConfig
from vitral.runs.folder import CONFIG, IMPORTED, RunFolder
from vitral.runs.identity import SPECIAL_IDS, Identity, Parent
from vitral.runs.verification import Verified, verify

if TYPE_CHECKING:
    from vitral.data import Dataset


@dataclass(frozen=True)
class SealedRun:
    """A verified run; its weights are not loaded yet.

    Attributes:
        folder: the run on disk.
        identity: the sealed identity.
        config: the configuration, with every decision taken while training, and free keys as in config.toml.
        tokenizer: the run's tokenizer.
        newest: the newest intact checkpoint without its tensors; None before the first.
    """

    folder: RunFolder
    identity: Identity
    config: RunConfig
    tokenizer: Tokenizer
    newest: Checkpoint | None

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
        return self.folder.document(name, self.identity.plain())

    def ngrams(self) -> dict[str, Any] | None:
        """The n-gram baselines as plain data; None if they are not counted, or not sealed yet.

        Raises:
            UsageError: the file is damaged.
        """
        return self.folder.ngrams(self.identity.plain())


def enter(path: Path, warn: Callable[[str], object]) -> SealedRun:
    """Open a run.

    Args:
        path: the run's folder.
        warn: called with one line for each damage that does not enter a result.

    Raises:
        UsageError: it is not a run, or damage would enter every result.
    """
    found = verify(path)
    found.require(warn)
    return opened(found)


def opened(found: Verified) -> SealedRun:
    """A run in which nothing is refused.

    Raises:
        UsageError: its identity or its tokenizer is malformed.
    """
    where = str(found.folder.path)
    identity = identity_in(found.sealed, where)
    config = with_free_keys(identity.current, RunConfig.parse(found.folder.config, f"{where}/{CONFIG}"))
    tokenizer = Tokenizer(found.folder.document("tokenizer", found.sealed))
    return SealedRun(found.folder, identity, config, tokenizer, found.newest)


def identity_in(state: Mapping[str, Any], where: str) -> Identity:
    """A run's identity in a checkpoint's state or in run.json.

    Raises:
        UsageError: it is malformed.
    """
    return Identity.parse({key: value for key, value in state.items() if key in Identity.model_fields}, where)


def with_free_keys(config: RunConfig, written: RunConfig) -> RunConfig:
    """A sealed configuration with the keys that may change as they are written."""
    free = {key: getattr(written.training, key) for key in FREE}
    training = config.training.model_copy(update=free)
    corpus = config.corpus.model_copy(update={"source": written.corpus.source})
    return config.model_copy(update={"training": training, "corpus": corpus})
