"""Corpora: a text from a name (bundled, downloaded or the user's own), a file, or a folder of files."""

import hashlib
import os
import re
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from vitral.core.checked import checked
from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.core.language import N_, in_language
from vitral.data.config import TASK, CorpusConfig
from vitral.data.folders import Listing, is_surely_text, library_files, no_match, own_named, refuse_own, user_files
from vitral.data.long_texts import Text, joined_text, pieces
from vitral.data.opening import opened, shown, stamp_of
from vitral.data.shards import Shards, are_shards
from vitral.data.sources import SOURCES, Source, cache_folder, fetch
from vitral.data.tasks import TASKS, Task, task_text
from vitral.data.texts import (
    LONG,
    Document,
    Reading,
    decode_document,
    on_disk,
    read_file,
    reading_notes,
)

BUNDLED = {"sample": "the-window-of-aldermere.txt", "sample-pt": "dom-casmurro.txt"}
"""The files of the bundled texts, under `data/texts`; its README has their sources and licences."""

_BUILT_IN = {
    "sample": N_("The Window of Aldermere, an original play in five acts, bundled with Vitral"),
    "sample-pt": N_("Dom Casmurro, a novel by Machado de Assis, in Portuguese, bundled with Vitral"),
    "python": N_("the source of this Python's standard library: a large text without a download"),
}
COLLECTIONS = {"machado": ("dom-casmurro", "bras-cubas")}
"""Names of several texts, read one after the other."""
_NAME = re.compile(r"\w[\w .-]*")
_NAMED_AT_MOST = 3
MOST_ENTRIES = 100_000
"""Files and folders looked at in a folder that a run names."""


@dataclass(frozen=True)
class Corpus:
    r"""A text and its origin.

    Attributes:
        name: name of the corpus, file or folder.
        text: the text, never empty.
        num_bytes: number of bytes read.
        sha256: SHA-256 of these bytes, in hexadecimal; for a folder, of the lines `<sha256>  <path>\n` of its files in
            order, as printed by `sha256sum`.
        notes: changes made while reading, one sentence each: newlines changed, licence stripped, files skipped.
        path: absolute path of the file or folder it was read from; None for a bundled text and for several texts.
        folder: of a folder, the number of its files, those skipped included, and their size in bytes.
        files: of several texts, the name of each and where it begins.
        shards: the tokens that another program made of the text.
    """

    name: str
    text: Text
    num_bytes: int
    sha256: str
    notes: tuple[str, ...] = ()
    path: str | None = None
    folder: tuple[int, int] | None = None
    files: tuple[tuple[str, int], ...] = ()
    shards: Shards | None = None

    def origin(self) -> dict[str, Any]:
        """Path and folder as plain data: hints for finding the text again, which are no part of its identity."""
        folder = {} if self.folder is None else {"folder": dict(zip(("files", "bytes"), self.folder, strict=True))}
        return {**({} if self.path is None else {"path": self.path}), **folder}


@dataclass(frozen=True)
class Again:
    """How the text of a run is read again: never downloaded, and with formats that are refused today.

    Attributes:
        num_bytes: its size; another file is not read. None: whatever its size.
        folder: see `Corpus.folder`; another folder is not read.
    """

    num_bytes: int | None = None
    folder: tuple[int, int] | None = None


@checked(first=True)
def corpus_names() -> dict[str, str]:
    """Every corpus name currently available to `load_corpus`, with a one-line description in English."""
    own = {}
    if folder := own_folder():
        own = {
            path.stem: N_("your own {path}").format(path=shown(path))
            for path in sorted(folder.glob("*.txt"))
            if path.is_file()
        }
    in_order = N_("{first} and {second}, one after the other")
    collections = {name: in_order.format(first=first, second=second) for name, (first, second) in COLLECTIONS.items()}
    return {**own, **_BUILT_IN, **collections, **{name: source.told() for name, source in SOURCES.items()}}


@checked(first=True)
def load_corpus(
    config: CorpusConfig,
    *,
    sources: Mapping[str, Source] = SOURCES,
    cache: Path | None = None,
    again: Again | None = None,
) -> Corpus:
    """Read the text of a configuration, or generate its task.

    A name is searched first in the folder VITRAL_CORPORA (as `NAME.txt`), then among the built-in and the downloadable
    texts, which are downloaded once. Any other source is a file or a folder. A folder contributes all its files that
    are text and match `config.glob`, at any depth, sorted by path, with `config.separator` between them; hidden files
    and folders, and those that Vitral wrote (runs, studies, reports), are left out.

    Args:
        config: source and reading options.
        sources: the downloadable texts.
        cache: folder for downloads, see `cache_folder`.
        again: for the text of an existing run.

    Raises:
        UsageError: the name, file or folder does not exist, cannot be read, is not a text, is a run, or is
            empty.
        StorageError: a download cannot be stored.
    """
    corpus = _find(config, sources, cache, again)
    if not len(corpus.text):
        raise UsageError("{name}: empty, there is no text in it", name=corpus.name)
    return corpus


def _find(config: CorpusConfig, sources: Mapping[str, Source], cache: Path | None, again: Again | None) -> Corpus:
    if config.task is not None:
        return generated(config.task)
    name = config.source
    if own := next((path for path in own_files(name, sources) if path.is_file()), None):
        return _from_file(name, own, config, again, noted=True)
    if name in BUNDLED:
        return bundled(name, config)
    if name == "python":
        return python(config)
    if name in sources:
        file = fetch(name, sources[name], downloads(cache), may_download=again is None)
        return _from_file(name, file, config, again, noted=True)
    if name in COLLECTIONS:
        each = None if again is None else Again()
        parts = (config.model_copy(update={"source": part}) for part in COLLECTIONS[name])
        return joined(name, [_find(part, sources, cache, each) for part in parts], config)
    path = as_path(name)
    if os.path.isdir(path):
        return from_shards(path) if are_shards(path) else from_folder(path, config, again)
    if os.path.lexists(path):
        return _from_file(path.name, path, config, again)
    refuse_task_name(name)
    known = {*corpus_names(), *sources, *COLLECTIONS}
    raise UsageError(
        "corpus {name!r}: no such name, file or folder; {hint}", name=shown(name), hint=nearest(name, known)
    )


def refuse_task_name(name: str) -> None:
    """Refuse the word "task", or the name of one, where the name of a text is expected.

    Raises:
        UsageError: says where a task is set.
    """
    if name in (TASK, *TASKS):
        raise UsageError(
            "{name!r} is a generated task and no text; set it in a configuration file, CONFIG.toml: [corpus] "
            "task = {example}; known tasks: {names}",
            name=name,
            example=f'{{ name = "{TASKS[0] if name == TASK else name}" }}',
            names=", ".join(TASKS),
        )


def own_folder() -> Path | None:
    """The user's folder of texts, VITRAL_CORPORA, if set.

    Raises:
        UsageError: it is not a folder.
    """
    chosen = os.environ.get("VITRAL_CORPORA")
    if not chosen:
        return None
    if not os.path.isdir(chosen):
        raise UsageError("VITRAL_CORPORA is {chosen}, which is not a folder", chosen=shown(chosen))
    return Path(chosen)


def own_files(name: str, sources: Mapping[str, Source] = SOURCES) -> list[Path]:
    """The places of a named text in the folder VITRAL_CORPORA; the files need not exist.

    Raises:
        UsageError: VITRAL_CORPORA is not a folder.
    """
    folder = own_folder() if is_name(name) else None
    if folder is None:
        return []
    others = sources[name].files if name in sources else ()
    return [folder / file for file in (*others, f"{name}.txt")]


def as_path(source: str) -> Path:
    """A source as a path, `~` replaced by the user's folder."""
    try:
        return Path(os.path.expanduser(source))
    except ValueError:  # the name of a user that no system can have
        return Path(source)


def is_name(source: str) -> bool:
    """Whether a source can be the name of a text."""
    return _NAME.fullmatch(source) is not None


def downloads(cache: Path | None = None) -> Path:
    """The folder of downloaded texts."""
    return cache_folder(cache) / "corpora"


def _from_file(name: str, path: Path, config: CorpusConfig, again: Again | None, *, noted: bool = False) -> Corpus:
    """One file as a corpus; `noted` records the path, for a source given by name."""
    _refuse_patterns(name, config)
    with opened(path) as file:
        if again is not None and again.num_bytes not in (None, stamp_of(file.fileno())[0]):
            raise UsageError("{path}: has another size", path=shown(path))
        document = read_file(file, path, Reading.of(config, refuses_formats=again is None))
    return from_document(name, document, path, noted=noted)


def _refuse_patterns(name: str, config: CorpusConfig) -> None:
    if config.glob is not None:
        raise UsageError(
            "{name}: is one text, and --glob chooses among the files of a folder; leave it out", name=shown(name)
        )


def from_document(name: str, document: Document, path: Path | None = None, *, noted: bool = False) -> Corpus:
    """One file that has been read as a corpus; `noted` adds a note of its path."""
    where = (N_("Read from {path}.").format(path=shown(path)),) if noted and path else ()
    notes = (*where, *reading_notes([document]))
    origin = None if path is None else os.path.abspath(path)
    return Corpus(shown(name), document.text, document.num_bytes, document.sha256, notes, origin)


def bundled(name: str, config: CorpusConfig) -> Corpus:
    """A bundled text.

    Raises:
        UsageError: its file is missing.
    """
    _refuse_patterns(name, config)
    file = BUNDLED[name]
    try:
        raw = resources.files("vitral.data").joinpath("texts", file).read_bytes()
    except OSError:
        raise UsageError("the bundled text {file} is missing; install Vitral again", file=file) from None
    return from_document(name, decode_document(raw, file, Reading.of(config)))


def generated(task: Task) -> Corpus:
    """The sequences of a task, drawn again."""
    text = task_text(task)
    sequences = N_("{sequences:,} sequences of {span:,} symbols, drawn by seed {seed}.")
    note = sequences.format(sequences=task.sequences, span=task.span, seed=task.seed)
    return Corpus(TASK, text, len(text), hashlib.sha256(text.encode("ascii")).hexdigest(), (note,))


def python(config: CorpusConfig) -> Corpus:
    """The source of this Python's standard library."""
    root = Path(sysconfig.get_paths()["stdlib"])
    listing = Listing(library_files(root, config.glob), {})
    if config.glob is not None and not listing.files:
        raise no_match(root, config.glob, Listing(library_files(root), {}))
    return _of_files("python", root, config, listing)


def from_folder(path: Path, config: CorpusConfig, again: Again | None = None) -> Corpus:
    """The files of a folder that are text and match `config.glob`, joined in the order of their paths.

    Args:
        path: the folder.
        config: how it is read.
        again: for the folder of an existing run.

    Raises:
        UsageError: the folder or a file cannot be read, none is text, or the folder is Vitral's own, such as a run.
    """
    known = None if again is None else again.folder
    listing = user_files(path, config.glob, None if again is None or again.num_bytes is None else MOST_ENTRIES)
    if again is not None and again.num_bytes is not None:
        sizes = [file.stat().st_size for file in listing.files if file.is_file()]
        if known != (len(listing.files), sum(sizes)):
            raise UsageError("{path}: has files of another number or size", path=shown(path))
    refuse_own(path, listing)
    if config.glob is not None and not listing.files:
        raise no_match(path, config.glob, user_files(path))
    name = path.resolve().name or shown(path)
    return replace(_of_files(name, path, config, listing), path=os.path.abspath(path))


def from_shards(path: Path) -> Corpus:
    """A text from the tokens that another program made of it, decoded where it is needed.

    Raises:
        UsageError: a file cannot be read, or does not belong to the tokenizer.
    """
    found = Shards(path)
    name = path.resolve().name or shown(path)
    return Corpus(name, found.text, found.num_bytes, found.sha256, path=os.path.abspath(path), shards=found)


def joined(name: str, texts: Iterable[Corpus], config: CorpusConfig) -> Corpus:
    """Several texts as one corpus."""
    texts = list(texts)
    listing = "".join(f"{corpus.sha256}  {corpus.name}\n" for corpus in texts)
    return Corpus(
        name=name,
        text=joined_text([corpus.text for corpus in texts], config.separator),
        num_bytes=sum(corpus.num_bytes for corpus in texts),
        sha256=hashlib.sha256(listing.encode()).hexdigest(),
        notes=tuple(note for corpus in texts for note in corpus.notes),
        files=_begins([(corpus.name, len(corpus.text)) for corpus in texts], config),
    )


def _begins(lengths: Iterable[tuple[str, int]], config: CorpusConfig) -> tuple[tuple[str, int], ...]:
    """Where each of several texts begins in all of them together."""
    begins, place = list[tuple[str, int]](), 0
    for name, length in lengths:
        begins.append((name, place))
        place += length + len(config.separator)
    return tuple(begins)


def _of_files(name: str, root: Path, config: CorpusConfig, listing: Listing) -> Corpus:
    encoding = config.encoding or "UTF-8"
    documents: list[tuple[str, Document]] = []
    skipped: list[tuple[str, str]] = []
    total = 0
    may_be_long = sum(path.stat().st_size for path in listing.files if path.is_file()) > LONG
    for relative, size, document in _documents(root, listing.files, Reading.of(config), on_the_disk=may_be_long):
        total += size
        if isinstance(document, str) or not document.text:
            skipped.append((relative, document if isinstance(document, str) else ""))
        else:
            documents.append((relative, document))
    if not documents:
        why = next((f"; {why}" for _, why in skipped if why), "")
        raise UsageError(
            "{root}: no {encoding} text in this folder ({skipped} files skipped){why}",
            root=shown(root),
            encoding=encoding,
            skipped=len(skipped),
            why=why,
        )
    read = [document for _, document in documents]
    if may_be_long and sum(document.num_bytes for document in read) <= LONG:  # the others are images and the like
        read = [replace(document, text="".join(pieces(document.text))) for document in read]
    listed = "".join(f"{document.sha256}  {relative}\n" for relative, document in documents)
    notes = [
        N_("{files:,} files were joined with {separator!r} between them.").format(
            files=len(read), separator=config.separator
        )
    ]
    if skipped:
        named = ", ".join(shown(relative) for relative, _ in skipped[:_NAMED_AT_MOST])
        more = ", …" if len(skipped) > _NAMED_AT_MOST else ""
        notes.append(
            N_("{files:,} files were skipped, empty or not {encoding} text: {names}.").format(
                files=len(skipped), encoding=encoding, names=named + more
            )
        )
    if listing.own:
        with in_language("en"):
            notes.append(N_("Left out: {folders}.").format(folders=own_named(root, listing)))
    return Corpus(
        name=shown(name),
        text=joined_text([document.text for document in read], config.separator),
        num_bytes=sum(document.num_bytes for document in read),
        sha256=hashlib.sha256(listed.encode("utf-8", "surrogateescape")).hexdigest(),
        notes=(*notes, *reading_notes(read)),
        folder=(len(listing.files), total),
        files=_begins([(shown(relative), len(document.text)) for relative, document in documents], config),
    )


def _documents(
    root: Path, files: list[Path], reading: Reading, *, on_the_disk: bool
) -> Iterator[tuple[str, int, Document | str]]:
    """The relative path, size in bytes and text of each file; for a file that is not text, the reason or nothing.

    With `on_the_disk`, what is yielded does not hold its characters.

    Raises:
        UsageError: a file cannot be read, has the suffix of a text file but is none, or has no such field.
    """
    for path in files:
        relative = path.relative_to(root).as_posix()
        if not path.is_file():
            yield relative, 0, ""
            continue
        with opened(path) as file:
            size, _ = stamp = stamp_of(file.fileno())
            try:
                document = read_file(file, path, reading)
            except UsageError as error:
                if is_surely_text(path) or reading.field is not None:
                    raise
                yield relative, size, str(error)
                continue
        # A NUL in a file without a text suffix: an image, an archive or binary data.
        if not is_surely_text(path) and any("\0" in piece for piece in pieces(document.text)):
            yield relative, size, ""
            continue
        yield relative, size, on_disk(document, path, reading, stamp) if on_the_disk else document
