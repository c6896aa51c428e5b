"""Where a text comes from: a name, a file, or a folder of files."""

import hashlib
import os
import re
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.data.config import CorpusConfig
from vitral.data.download import SOURCES, Source, cache_folder, fetch
from vitral.data.longtext import Text, pieces
from vitral.data.reading import Document, decode_document, read_bytes, read_document, reading_notes, shown

SAMPLE = "the-window-of-aldermere.txt"
"""The bundled text, under `data/texts`."""

_BUILT_IN = {
    "sample": "The Window of Aldermere, an original play in five acts, bundled with Vitral",
    "python": "the source of this Python's standard library: a large text without a download",
}
COLLECTIONS = {"machado": ("dom-casmurro", "bras-cubas")}
"""Name -> the texts it stands for, one after the other."""
_NAME = re.compile(r"\w[\w .-]*")
_NOT_THE_LIBRARY = {"site-packages", "dist-packages", "__pycache__"}
_SURELY_TEXT = {".txt", ".md"}
_NAMED_AT_MOST = 3


@dataclass(frozen=True)
class Corpus:
    r"""A text and where it came from.

    Attributes:
        name: the corpus's name, or the file's or folder's.
        text: the text, never empty.
        num_bytes: bytes read, before anything was changed.
        sha256: SHA-256 of these bytes, in hexadecimal; of a folder, that of the lines `<sha256>  <path>\n` of its
            files in order, as `sha256sum` prints them.
        notes: what reading did, a sentence each: newlines changed, licence stripped, files skipped.
    """

    name: str
    text: Text
    num_bytes: int
    sha256: str
    notes: tuple[str, ...] = ()


def corpus_names() -> dict[str, str]:
    """Every name that `load_corpus` knows here and now, each with one line about it."""
    own = {}
    if folder := _own_folder():
        own = {path.stem: f"your own {shown(path)}" for path in sorted(folder.glob("*.txt")) if path.is_file()}
    collections = {name: f"{' and '.join(parts)}, one after the other" for name, parts in COLLECTIONS.items()}
    return {**own, **_BUILT_IN, **collections, **{name: source.description for name, source in SOURCES.items()}}


def load_corpus(config: CorpusConfig, *, sources: Mapping[str, Source] = SOURCES, cache: Path | None = None) -> Corpus:
    """Read the text a configuration names.

    A name is looked for in the folder VITRAL_CORPORA first (as `NAME.txt`, whatever the name), then among the built-in
    and the known ones, which are downloaded once. What is not a name is a file or a folder: of a folder, every file
    that is UTF-8 text, at any depth, sorted by path, hidden ones left out, with `config.separator` between them.

    Args:
        config: says what to read, and how.
        sources: the names that can be downloaded.
        cache: folder for downloads, see `cache_folder`.

    Raises:
        UsageError: there is no such name, file or folder, or it cannot be read, is not UTF-8, or is empty.
        StorageError: a download cannot be stored.
    """
    corpus = _find(config, sources, cache)
    if not len(corpus.text):
        raise UsageError(f"{corpus.name}: empty, there is no text to train on")
    return corpus


def _find(config: CorpusConfig, sources: Mapping[str, Source], cache: Path | None) -> Corpus:
    name = config.source
    if own := _own_file(name, sources):
        return _from_file(name, own, config, told=True)
    if name == "sample":
        return _sample(config)
    if name == "python":
        return _python(config)
    if name in sources:
        return _from_file(name, fetch(name, sources[name], cache_folder(cache) / "corpora"), config, told=True)
    if name in COLLECTIONS:
        return _collection(name, config, sources, cache)
    path = Path(os.path.expanduser(name))
    if os.path.isdir(path):
        return _from_folder(path.resolve().name or shown(path), path, config, _user_files(path))
    if os.path.lexists(path):
        return _from_file(path.name, path, config)
    known = {*corpus_names(), *sources, *COLLECTIONS}
    raise UsageError(f"corpus {shown(name)!r}: no such name, file or folder; {nearest(name, known)}")


def _own_folder() -> Path | None:
    """The folder VITRAL_CORPORA, if it is set.

    Raises:
        UsageError: it is set to something that is not a folder.
    """
    chosen = os.environ.get("VITRAL_CORPORA")
    if not chosen:
        return None
    if not os.path.isdir(chosen):
        raise UsageError(f"VITRAL_CORPORA is {shown(chosen)}, which is not a folder")
    return Path(chosen)


def _own_file(name: str, sources: Mapping[str, Source]) -> Path | None:
    """The file of this name in the folder VITRAL_CORPORA."""
    folder = _own_folder() if _NAME.fullmatch(name) else None
    if folder is None:
        return None
    others = sources[name].files if name in sources else ()
    candidates = (folder / file for file in (*others, f"{name}.txt"))
    return next((path for path in candidates if path.is_file()), None)


def _from_file(name: str, path: Path, config: CorpusConfig, *, told: bool = False) -> Corpus:
    """One file as a corpus; `told`: note which file it was, since the user gave a name."""
    document = read_document(path, config.newlines)
    where = (f"Read from {shown(path)}.",) if told else ()
    return _corpus(name, document, where)


def _sample(config: CorpusConfig) -> Corpus:
    try:
        raw = resources.files("vitral.data").joinpath("texts", SAMPLE).read_bytes()
    except OSError:
        raise UsageError(f"the bundled text {SAMPLE} is missing; install Vitral again") from None
    return _corpus("sample", decode_document(raw, SAMPLE, config.newlines))


def _corpus(name: str, document: Document, notes: tuple[str, ...] = ()) -> Corpus:
    return Corpus(shown(name), document.text, document.num_bytes, document.sha256, (*notes, *reading_notes([document])))


def _python(config: CorpusConfig) -> Corpus:
    root = Path(sysconfig.get_paths()["stdlib"])
    files = _walk(root, lambda folder: folder not in _NOT_THE_LIBRARY)
    return _from_folder("python", root, config, [path for path in files if path.suffix == ".py"])


def _user_files(root: Path) -> list[Path]:
    visible = _walk(root, lambda folder: not folder.startswith("."))
    return [path for path in visible if not path.name.startswith(".")]


def _walk(root: Path, enter: Callable[[str], bool]) -> list[Path]:
    """All files under `root`, sorted by path; links to folders are not followed.

    Raises:
        UsageError: a folder cannot be read.
    """
    files: list[Path] = []
    try:
        for folder, subfolders, names in os.walk(root, onerror=_refuse):
            subfolders[:] = [name for name in subfolders if enter(name)]
            files += [Path(folder, name) for name in names]
    except OSError as error:
        raise UsageError(f"{shown(error.filename or root)}: cannot be read ({error.strerror})") from None
    return sorted(files, key=lambda path: path.relative_to(root).parts)


def _refuse(error: OSError) -> None:
    raise error


def _collection(name: str, config: CorpusConfig, sources: Mapping[str, Source], cache: Path | None) -> Corpus:
    """Several named texts as one."""
    texts = [_find(config.model_copy(update={"source": part}), sources, cache) for part in COLLECTIONS[name]]
    listing = "".join(f"{corpus.sha256}  {corpus.name}\n" for corpus in texts)
    return Corpus(
        name=name,
        text=config.separator.join("".join(pieces(corpus.text)) for corpus in texts),
        num_bytes=sum(corpus.num_bytes for corpus in texts),
        sha256=hashlib.sha256(listing.encode()).hexdigest(),
        notes=tuple(note for corpus in texts for note in corpus.notes),
    )


def _from_folder(name: str, root: Path, config: CorpusConfig, files: list[Path]) -> Corpus:
    documents: list[tuple[str, Document]] = []
    skipped: list[str] = []
    for relative, document in _documents(root, files, config.newlines):
        if document is None or not document.text:
            skipped.append(relative)
        else:
            documents.append((relative, document))
    if not documents:
        raise UsageError(f"{shown(root)}: no UTF-8 text in this folder ({len(skipped)} files skipped)")
    read = [document for _, document in documents]
    listing = "".join(f"{document.sha256}  {relative}\n" for relative, document in documents)
    notes = [f"{len(read):,} files were joined with {config.separator!r} between them."]
    if skipped:
        named = ", ".join(shown(relative) for relative in skipped[:_NAMED_AT_MOST])
        more = ", …" if len(skipped) > _NAMED_AT_MOST else ""
        notes.append(f"{len(skipped):,} files were skipped, empty or not UTF-8 text: {named}{more}.")
    return Corpus(
        name=shown(name),
        text=config.separator.join("".join(pieces(document.text)) for document in read),
        num_bytes=sum(document.num_bytes for document in read),
        sha256=hashlib.sha256(listing.encode("utf-8", "surrogateescape")).hexdigest(),
        notes=(*notes, *reading_notes(read)),
    )


def _documents(root: Path, files: list[Path], newlines: str) -> Iterator[tuple[str, Document | None]]:
    """Each file's path under `root` and its text, None if it is no text.

    Raises:
        UsageError: a file cannot be read, or is not UTF-8 although its name says that it is text.
    """
    for path in files:
        relative = path.relative_to(root).as_posix()
        if not path.is_file():
            yield relative, None
            continue
        raw = read_bytes(path)
        try:
            document = decode_document(raw, shown(path), newlines)
        except UsageError:
            if path.suffix.lower() in _SURELY_TEXT:
                raise
            document = None
        # A byte of zero in a file that does not claim to be text: a picture, an archive, a table of numbers.
        binary = (
            document is not None and "\0" in "".join(pieces(document.text)) and path.suffix.lower() not in _SURELY_TEXT
        )
        yield relative, None if binary else document
