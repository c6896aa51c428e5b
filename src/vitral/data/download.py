"""Named texts that come over the network, once, into the user's cache."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.core.errors import StorageError, UsageError
from vitral.data.reading import read_bytes, shown

_GUTENBERG = ("*** START OF TH", "*** END OF TH")
_TIMEOUTS = (10.0, 60.0)
"""Seconds to wait for a connection, and for the next bytes."""


@dataclass(frozen=True)
class Source:
    """A text that has a name.

    Attributes:
        description: one line.
        url: where it is downloaded from.
        holds: phrases the whole file must hold: a page that says "no", or half a file, is not taken for the text.
        files: file names looked for in the folder VITRAL_CORPORA besides `NAME.txt`, before it.
    """

    description: str
    url: str
    holds: tuple[str, ...]
    files: tuple[str, ...] = ()


def _gutenberg(number: int, description: str, files: tuple[str, ...] = ()) -> Source:
    url = f"https://www.gutenberg.org/cache/epub/{number}/pg{number}.txt"
    return Source(f"{description} (Project Gutenberg {number})", url, _GUTENBERG, files)


SOURCES = {
    "shakespeare": _gutenberg(100, "the complete works of Shakespeare", ("shakespeare-complete.txt",)),
    "tinyshakespeare": Source(
        "scenes from Shakespeare, 1.1 million characters (Andrej Karpathy's char-rnn)",
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        ("First Citizen:", "Whiles thou art waking."),
    ),
    "dom-casmurro": _gutenberg(55752, "Dom Casmurro, Machado de Assis, in Portuguese"),
    "bras-cubas": _gutenberg(54829, "Memorias Posthumas de Braz Cubas, Machado de Assis, in Portuguese"),
    "os-lusiadas": _gutenberg(3333, "Os Lusíadas, Luís de Camões, in Portuguese"),
    "alice": _gutenberg(11, "Alice's Adventures in Wonderland, Lewis Carroll"),
    "frankenstein": _gutenberg(84, "Frankenstein, Mary Shelley"),
}
"""Name -> text."""


def cache_folder(cache: Path | None = None) -> Path:
    """The folder for downloads and prepared tokens: the one given, VITRAL_CACHE, or the user's cache."""
    if cache is not None:
        return cache
    if chosen := os.environ.get("VITRAL_CACHE"):
        return Path(chosen)
    import pooch

    return Path(pooch.os_cache("vitral"))


def fetch(name: str, source: Source, folder: Path) -> Path:
    """The file of a named text in `folder`, downloaded if it is not there yet.

    Editions change, so the file's hash is recorded with a run and not required; only that it holds what its source
    says. A failed download leaves nothing behind.

    Raises:
        UsageError: it is not there and cannot be downloaded, or something else came; it says what to put where.
        StorageError: the folder cannot be written.
    """
    path = folder / f"{name}.txt"
    if not path.is_file():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _download(source.url, path)
        except (OSError, ValueError) as error:
            # An error of the disk carries a number, one of the network does not.
            if isinstance(error, OSError) and error.errno is not None:
                reason = f"{error.strerror}; set VITRAL_CACHE to a folder with room"
                raise StorageError(f"{shown(folder)}: the text {name!r} cannot be stored there ({reason})") from None
            raise UsageError(f"{_absent(name, source)} ({type(error).__name__}); {_by_hand(name)}") from None
    if not _holds(path, source.holds):
        path.unlink(missing_ok=True)
        raise UsageError(f"{_absent(name, source)} (something else came from there); {_by_hand(name)}")
    return path


def _absent(name: str, source: Source) -> str:
    return f"the text {name!r} is not on this machine and could not be downloaded from {source.url}"


def _by_hand(name: str) -> str:
    return f"save it as {name}.txt in a folder and set VITRAL_CORPORA to that folder"


def _download(url: str, path: Path) -> None:
    """Download to a temporary name beside `path`, then rename."""
    import pooch

    # Not streamed: a text fits into memory, and a connection that breaks is closed rather than left open.
    downloader: Any = pooch.HTTPDownloader(timeout=_TIMEOUTS, stream=False)
    with _quiet(pooch.get_logger()):
        pooch.retrieve(url, known_hash=None, fname=path.name, path=path.parent, downloader=downloader)


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Let this logger say nothing below an error inside the block."""
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _holds(path: Path, phrases: tuple[str, ...]) -> bool:
    raw = read_bytes(path)
    return all(phrase.encode("utf-8") in raw for phrase in phrases)
