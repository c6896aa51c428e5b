"""Texts that are downloaded, by name."""

import os
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from vitral.core.errors import StorageError, UsageError, VitralError, reason
from vitral.core.files import readable, replace_durably
from vitral.core.language import N_, _

_GUTENBERG = ("*** START OF TH", "*** END OF TH")
_TIMEOUTS = (10.0, 60.0)
"""Timeouts in seconds for the connection and for the next bytes."""


@dataclass(frozen=True)
class Source:
    """A downloadable text.

    Attributes:
        description: one line.
        url: where it is downloaded from.
        phrases: phrases the file must contain, which rejects error pages and truncated files.
        files: file names to look for in the folder VITRAL_CORPORA before `NAME.txt`.
        gutenberg: the number of a text of Project Gutenberg.
    """

    description: str
    url: str
    phrases: tuple[str, ...]
    files: tuple[str, ...] = ()
    gutenberg: int | None = None

    def told(self) -> str:
        """The description with its number, in English."""
        if self.gutenberg is None:
            return self.description
        return N_("{text} (Project Gutenberg {number})").format(text=self.description, number=self.gutenberg)


def _gutenberg(number: int, description: str, files: tuple[str, ...] = ()) -> Source:
    url = f"https://www.gutenberg.org/cache/epub/{number}/pg{number}.txt"
    return Source(description, url, _GUTENBERG, files, number)


SOURCES = {
    "shakespeare": _gutenberg(100, N_("the complete works of Shakespeare"), ("shakespeare-complete.txt",)),
    "tinyshakespeare": Source(
        N_("scenes from Shakespeare, 1.1 million characters (Andrej Karpathy's char-rnn)"),
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        ("First Citizen:", "Whiles thou art waking."),
    ),
    "dom-casmurro": _gutenberg(55752, N_("Dom Casmurro, Machado de Assis, in Portuguese")),
    "bras-cubas": _gutenberg(54829, N_("Memorias Posthumas de Braz Cubas, Machado de Assis, in Portuguese")),
    "os-lusiadas": _gutenberg(3333, N_("Os Lusíadas, Luís de Camões, in Portuguese")),
    "alice": _gutenberg(11, N_("Alice's Adventures in Wonderland, Lewis Carroll")),
    "frankenstein": _gutenberg(84, N_("Frankenstein, Mary Shelley")),
}
"""Downloadable texts by name."""


def cache_folder(cache: Path | None = None) -> Path:
    """The folder for downloads and prepared tokens: the one given, VITRAL_CACHE, or the user's cache."""
    if cache is not None:
        return cache
    if chosen := os.environ.get("VITRAL_CACHE"):
        return Path(chosen)
    import pooch

    return Path(pooch.os_cache("vitral"))


def fetch(name: str, source: Source, folder: Path, *, may_download: bool = True) -> Path:
    """The file of a named text in `folder`, downloaded if missing.

    Editions change, so no hash is required (a run records it); the file must only contain the phrases of its source.
    A failed download leaves no file behind, and a file that was there before is never replaced or removed.

    Raises:
        UsageError: the file is missing and cannot be downloaded, or its content is wrong; says how to provide it.
        StorageError: the folder cannot be written.
    """
    import pooch

    path = folder / f"{name}.txt"
    if os.path.lexists(path):
        with readable(path):
            content = path.read_bytes()
        if not _contains(content, source.phrases):
            raise UsageError(
                "{path}: is not the text {name!r}; rename or remove it to download the text again", path=path, name=name
            )
        return path
    if not may_download:
        raise UsageError("{path}: is not there", path=path)
    # Not streamed: texts fit into memory, and a broken connection is closed.
    loader: Any = pooch.HTTPDownloader(timeout=_TIMEOUTS, stream=False)
    downloaded = BytesIO()
    try:
        loader(source.url, downloaded, None)
        if not _contains(downloaded.getvalue(), source.phrases):
            raise ValueError(N_("the downloaded file is not this text"))
        folder.mkdir(parents=True, exist_ok=True)
        replace_durably(path, downloaded.getvalue())
    except VitralError:
        raise
    except (OSError, ValueError) as error:
        # Disk errors have an errno, network errors do not.
        if isinstance(error, OSError) and error.errno is not None:
            raise StorageError(
                "{folder}: the text {name!r} cannot be stored there ({reason}; set VITRAL_CACHE to a folder with room)",
                folder=folder,
                name=name,
                reason=reason(error),
            ) from None
        raise UsageError(
            "the text {name!r} is not on this machine and could not be downloaded from {url} ({error}); save it as "
            "{name}.txt in a folder and set VITRAL_CORPORA to that folder",
            name=name,
            url=source.url,
            error=type(error).__name__ if isinstance(error, OSError) else _(str(error)),
        ) from None
    return path


def _contains(content: bytes, phrases: tuple[str, ...]) -> bool:
    return all(phrase.encode("utf-8") in content for phrase in phrases)
