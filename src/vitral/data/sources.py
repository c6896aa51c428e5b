"""Texts that are downloaded, by name."""

import os
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from vitral.core.errors import UsageError
from vitral.core.files import readable, replace_durably, storage
from vitral.core.language import N_

_GUTENBERG = ("*** START OF TH", "*** END OF TH")
_TIMEOUTS = (10.0, 60.0)
"""Timeouts in seconds for the connection and for the next bytes."""


class Source(NamedTuple):
    """A downloadable text.

    Attributes:
        description: one line.
        url: where it is downloaded from.
        phrases: phrases the file must contain, which rejects error pages and truncated files.
        files: file names to look for in the folder VITRAL_CORPORA before `NAME.txt`.
    """

    description: str
    url: str
    phrases: tuple[str, ...]
    files: tuple[str, ...] = ()


def _gutenberg(number: int, description: str, files: tuple[str, ...] = ()) -> Source:
    url = f"https://www.gutenberg.org/cache/epub/{number}/pg{number}.txt"
    return Source(description, url, _GUTENBERG, files)


SOURCES = {
    "shakespeare": _gutenberg(
        100, N_("the complete works of Shakespeare (Project Gutenberg 100)"), ("shakespeare-complete.txt",)
    ),
    "tinyshakespeare": Source(
        N_("scenes from Shakespeare, 1.1 million characters (Andrej Karpathy's char-rnn)"),
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        ("First Citizen:", "Whiles thou art waking."),
    ),
    "dom-casmurro": _gutenberg(55752, N_("Dom Casmurro, Machado de Assis, in Portuguese (Project Gutenberg 55752)")),
    "bras-cubas": _gutenberg(
        54829, N_("Memorias Posthumas de Braz Cubas, Machado de Assis, in Portuguese (Project Gutenberg 54829)")
    ),
    "os-lusiadas": _gutenberg(3333, N_("Os Lusíadas, Luís de Camões, in Portuguese (Project Gutenberg 3333)")),
    "alice": _gutenberg(11, N_("Alice's Adventures in Wonderland, Lewis Carroll (Project Gutenberg 11)")),
    "frankenstein": _gutenberg(84, N_("Frankenstein, Mary Shelley (Project Gutenberg 84)")),
}
"""Downloadable texts by name."""


def cache_folder() -> Path:
    """The folder for downloads and prepared tokens: VITRAL_CACHE, or the user's cache."""
    if chosen := os.environ.get("VITRAL_CACHE"):
        return Path(chosen)
    import pooch

    return Path(pooch.os_cache("vitral"))


def downloads() -> Path:
    """The folder of downloaded texts."""
    return cache_folder() / "corpora"


def fetch(name: str, may_download: bool) -> Path:
    """The file of a named text among the downloads, downloaded if missing.

    Editions change, so no hash is required (a run records it); the file must only contain the phrases of its source.
    A failed download leaves no file behind, and a file that was there before is neither overwritten nor removed.

    Raises:
        UsageError: the file is missing and cannot be downloaded, or its content is wrong; says how to provide it.
        StorageError: the folder cannot be written.
    """
    import pooch

    path, source = downloads() / f"{name}.txt", SOURCES[name]

    def is_text(content: bytes) -> bool:
        return all(phrase.encode() in content for phrase in source.phrases)

    if os.path.lexists(path):
        with readable(path):
            if not is_text(path.read_bytes()):
                raise UsageError(
                    "{path}: is not the text {name!r}; rename or remove it to download the text again",
                    path=path,
                    name=name,
                )
        return path
    if not may_download:
        raise UsageError("{path}: is not there", path=path)
    # Not streamed: texts fit into memory, and a broken connection is closed.
    loader: Any = pooch.HTTPDownloader(timeout=_TIMEOUTS, stream=False)
    downloaded, why = BytesIO(), N_("the downloaded file is not this text")
    try:
        loader(source.url, downloaded, None)
    except OSError as error:
        why = type(error).__name__
    if not is_text(downloaded.getvalue()):
        raise UsageError(
            "the text {name!r} is not on this machine and could not be downloaded from {url} ({why}); save it as "
            "{name}.txt in a folder and set VITRAL_CORPORA to that folder",
            name=name,
            url=source.url,
            why=why,
        )
    with storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_durably(path, downloaded.getvalue())
    return path
