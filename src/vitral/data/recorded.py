"""Finding the text of a run again: on this machine only, and only if it is the very text that the run recorded.

A run's folder may come from a stranger, so nothing in it starts a download, and nothing but regular files is opened.
What was read is used only if its SHA-256 agrees.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.data.config import CorpusConfig
from vitral.data.corpora import COLLECTIONS, Corpus, TextRecord, load_corpus
from vitral.data.sources import SOURCES

_PARTS = re.compile(r"[\\/]")
_READ_FROM = re.compile(r"^(Read from ).*[\\/]")


def without_folders(record: Any, key: str = "") -> Any:
    """The record of a text for a page that is published: its files without the folders of this machine."""
    if isinstance(record, Mapping):
        return {name: without_folders(value, name) for name, value in record.items()}
    if isinstance(record, list | tuple):
        return [without_folders(item, key) for item in record]
    if key == "path":
        return _PARTS.split(record)[-1]
    return _READ_FROM.sub(r"\1", record) if key == "notes" else record


class RecordedText(TextRecord):
    """The text of a dataset, as a run's `corpus.json` has it.

    Attributes:
        fingerprint: of the dataset.
    """

    fingerprint: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


def identity(text: TextRecord, source: str) -> str:
    """Name, size and the first digits of the SHA-256, for a message."""
    return _(
        "the text {name!r} ({number:,} bytes, SHA-256 {hash}…)", name=source, number=text.bytes, hash=text.sha256[:12]
    )


def recorded_others(recorded: Mapping[str, Any], config: CorpusConfig, where: str) -> list[TextRecord]:
    """The further training texts of a run's `corpus.json`.

    Raises:
        UsageError: an entry is missing or malformed, or they are not those of the configuration.
    """
    trained_on = recorded.get("trained_on") or {}
    others = trained_on.get("also", []) if isinstance(trained_on, Mapping) else None
    if not isinstance(others, list) or len(others) != len(config.also or ()):
        raise UsageError(
            "{where}: does not record the further training texts of corpus.also in config.toml; restore both files",
            where=where,
        )
    return [TextRecord.of(other if isinstance(other, Mapping) else {}, where) for other in others]


def found_again(
    text: TextRecord,
    source: str,
    config: CorpusConfig,
    cache: Path,
    *,
    where: str = "",
    given: str | Path | None = None,
) -> Corpus:
    """The text of a run: at its place, or where the user says it is now. Nothing is ever downloaded.

    Args:
        text: what the run recorded.
        source: the source in its configuration: a name, a file or a folder, which may lie at the recorded path too.
        config: the corpus configuration of the run.
        cache: the cache folder.
        where: the beginning of an error message.
        given: the text as the user gives it now (a file, a folder or a name).

    Raises:
        UsageError: no place has it, or what is given now is another text.
    """
    reasons = list[str]()
    for place in [str(given)] if given is not None else dict.fromkeys([source, text.path or source]):
        try:
            placed = config.model_copy(update={"source": place})
            found = load_corpus(placed, cache=cache, may_download=False)
        except UsageError as error:
            reasons.append(str(error)[:400])
        else:
            if found.sha256 == text.sha256:
                return replace(found, name=text.name)
            reasons.append(_("{path} has another SHA-256", path=place))
    needed, why = identity(text, source), "; ".join(reasons)
    if given is not None:
        raise UsageError("--corpus {wrong}; {where}{identity} is needed", wrong=why, where=where, identity=needed)
    can_be_fetched = source in {*SOURCES, *COLLECTIONS}
    raise UsageError(
        "{where}{identity} was not found ({why}); give it with --corpus FILE{download}",
        where=where,
        identity=needed,
        why=why,
        download=_(", or download it with vitral corpus {name}", name=source) if can_be_fetched else "",
    )
