"""Finding the text of a run again: on this machine only, and only if it is the very text that the run recorded.

A run's folder may come from a stranger, so nothing in it starts a download, and nothing but regular files is opened. A
file is read only if its size is the recorded one, a folder only if its files are as many and as large as recorded; and
what was read is used only if its SHA-256 agrees.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO

from vitral.core.errors import UsageError, reason
from vitral.core.guarded import GuardedFolder
from vitral.core.language import _
from vitral.data.config import CorpusConfig
from vitral.data.corpora import (
    BUNDLED,
    COLLECTIONS,
    Corpus,
    as_path,
    bundled,
    downloads,
    from_document,
    from_folder,
    from_shards,
    generated,
    is_name,
    joined,
    own_files,
    own_folder,
    python,
)
from vitral.data.folders import user_files
from vitral.data.opening import opened, shown
from vitral.data.shards import are_shards
from vitral.data.sources import SOURCES
from vitral.data.tasks import Task
from vitral.data.texts import Reading, read_file

MOST_ENTRIES = 100_000
"""Files and folders looked at in a folder that the user has not named just now."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_FINGERPRINT = re.compile(r"[0-9a-f]{32}")
_PARTS = re.compile(r"[\\/]")
_READ_FROM = re.compile(r"^(Read from ).*[\\/]")
_MOST_SHOWN = 120
_MOST_NAME = 300
_MOST_REASONS = 2


def without_folders(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a text for a page that is published: its files without the folders of this machine."""
    return {key: _without_folder(key, value) for key, value in record.items()}


def _without_folder(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return without_folders(value)
    if isinstance(value, list | tuple):
        return [_without_folder(key, item) for item in value]
    if isinstance(value, str) and key == "path":
        return _PARTS.split(value)[-1]
    return _READ_FROM.sub(r"\1", value) if isinstance(value, str) and key == "notes" else value


@dataclass(frozen=True)
class RecordedText:
    """A text as a run recorded it: its identity, and hints where it was.

    Attributes:
        source: the source of the configuration: a name, a file or a folder.
        name: see `Corpus.name`.
        num_bytes: its size.
        num_characters: its length in characters.
        sha256: see `Corpus.sha256`.
        path: a hint: the absolute path it was read from.
        folder: see `Corpus.folder`.
        fingerprint: the fingerprint of the dataset; None for a further training text.
        also: the further training texts.
    """

    source: str
    name: str
    num_bytes: int
    num_characters: int
    sha256: str
    path: str | None = None
    folder: tuple[int, int] | None = None
    fingerprint: str | None = None
    also: tuple["RecordedText", ...] = ()

    @classmethod
    def parse(cls, recorded: Mapping[str, Any], config: CorpusConfig, where: str) -> "RecordedText":
        """The text of a run's `corpus.json` (see `Dataset.describe`).

        Args:
            recorded: the document.
            config: the corpus configuration of the run.
            where: the document's path, for error messages.

        Raises:
            UsageError: an entry is missing or malformed, or the further texts are not those of the configuration.
        """
        fingerprint = recorded.get("fingerprint")
        if not isinstance(fingerprint, str) or not _FINGERPRINT.fullmatch(fingerprint):
            raise _malformed(where, "fingerprint", fingerprint)
        trained_on = recorded.get("trained_on") or {}
        others = trained_on.get("also", []) if isinstance(trained_on, Mapping) else None
        sources = config.also or ()
        if not isinstance(others, list) or not all(isinstance(other, Mapping) for other in others):
            raise _malformed(where, "trained_on", others)
        if len(others) != len(sources):
            raise UsageError(
                "{where}: records {others} further training texts, but corpus.also of config.toml has "
                "{sources}; restore config.toml",
                where=where,
                others=len(others),
                sources=len(sources),
            )
        also = tuple(_parse(other, source, where) for other, source in zip(others, sources, strict=True))
        return replace(_parse(recorded, config.source, where), fingerprint=fingerprint, also=also)

    @property
    def identity(self) -> str:
        """Name, size and the first digits of the SHA-256, for a message."""
        return _(
            "the text {name!r} ({number:,} bytes, SHA-256 {hash}…)",
            name=_short(self.source),
            number=self.num_bytes,
            hash=self.sha256[:12],
        )

    @property
    def file_names(self) -> list[str]:
        """The names under which the text is looked for in other folders."""
        names = (_PARTS.split(path)[-1] for path in (self.source, self.path or ""))
        return [name for name in dict.fromkeys(names) if name not in ("", ".", "..") and "\0" not in name]


def _parse(recorded: Mapping[str, Any], source: str, where: str) -> RecordedText:
    name, sha256, path, folder = (recorded.get(key) for key in ("name", "sha256", "path", "folder"))
    if not isinstance(name, str):
        raise _malformed(where, "name", name)
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise _malformed(where, "sha256", sha256)
    if path is not None and not isinstance(path, str):
        raise _malformed(where, "path", path)
    if folder is not None and not isinstance(folder, Mapping):
        raise _malformed(where, "folder", folder)
    return RecordedText(
        source,
        name,
        _count(recorded, "bytes", where),
        _count(recorded, "characters", where),
        sha256,
        path,
        None if folder is None else (_count(folder, "files", where), _count(folder, "bytes", where)),
    )


def _count(table: Mapping[str, Any], key: str, where: str) -> int:
    value = table.get(key)
    if type(value) is not int or not 0 < value < 1 << 62:
        raise _malformed(where, key, value)
    return value


def _malformed(where: str, key: str, value: Any) -> UsageError:
    if value is None:
        return UsageError("{where}: {key} is missing; restore the file from a copy of the run", where=where, key=key)
    return UsageError(
        "{where}: {key} is malformed ({found!a:.60}); restore the file from a copy of the run",
        where=where,
        key=key,
        found=value,
    )


class _Differs(Exception):
    """A candidate that is not the text; says why."""


@dataclass(frozen=True)
class _Candidate:
    """A place where a text may be: its path, and how to load it (None if nothing is there)."""

    where: str
    load: Callable[[], Corpus | None]

    @property
    def shown(self) -> str:
        """The place for a message."""
        return _short(self.where)


@dataclass(frozen=True)
class Search:
    """Where the texts of one run are looked for.

    Attributes:
        config: the corpus configuration of the run.
        run_folder: the run's folder; None does not look there.
        cache: the cache folder.
        given: the text as the user gives it now: a file, a folder or a name.
        most_entries: files and folders looked at in a folder that is not given now.
    """

    config: CorpusConfig
    run_folder: Path | None
    cache: Path
    given: str | Path | None = None
    most_entries: int | None = MOST_ENTRIES

    def find(self, text: RecordedText) -> Corpus:
        """The text, read from the first place whose SHA-256 agrees.

        Raises:
            UsageError: no place has it, or the main text given now is another one.
        """
        reasons: list[str] = []
        is_main = text.fingerprint is not None
        if self.given is not None:
            found = _first(self._given(str(self.given), text), text, reasons)
            if found is not None:
                return found
            if is_main:
                nothing = _("{path}: no such name, file or folder on this machine", path=_short(self.given))
                wrong = _listed(reasons) or nothing
                raise UsageError(
                    "--corpus {wrong}; {where}{identity} is needed",
                    wrong=wrong,
                    where=self.where,
                    identity=text.identity,
                )
        found = _first(self._places(text), text, reasons)
        if found is not None:
            return found
        others = _("{reasons}; also looked in", reasons=_listed(reasons)) if reasons else _("looked at its place, in")
        inside = "" if self.run_folder is None else _("the run folder, ")
        can_be_fetched = text.source in {*SOURCES, *COLLECTIONS}
        download = _(", or download it with vitral corpus {name}", name=text.source) if can_be_fetched else ""
        raise UsageError(
            "{where}{identity} was not found: {others} {inside}VITRAL_CORPORA and the cache; give it "
            "with --corpus FILE, or set VITRAL_CORPORA to a folder that contains it{download}",
            where=self.where,
            identity=text.identity,
            others=others,
            inside=inside,
            download=download,
        )

    @property
    def _reading(self) -> Reading:
        return Reading.of(self.config, refuses_formats=False)

    @property
    def where(self) -> str:
        """The beginning of an error message."""
        return "" if self.run_folder is None else f"{_short(self.run_folder)}: "

    def _given(self, given: str, text: RecordedText) -> Iterator[_Candidate]:
        path = as_path(given)
        around = path if os.path.isdir(path) else path.parent
        if text.fingerprint is not None:
            yield from self._named(given, text)
        if text.fingerprint is None or around == path:
            yield from (self._at(around / name, text) for name in text.file_names)
        if text.fingerprint is not None:
            yield self._at(path, text, is_chosen=True)

    def _places(self, text: RecordedText) -> Iterator[_Candidate]:
        yield from self._named(text.source, text)
        for path in (text.source, text.path):
            if path and not _is_remote(path):
                yield self._at(as_path(path), text)
        if self.run_folder is not None:
            yield from (self._inside_run(self.run_folder, name, text) for name in text.file_names)
        folders = [folder for folder in (own_folder(), downloads(self.cache)) if folder is not None]
        yield from (self._at(folder / name, text) for folder in folders for name in text.file_names)

    def _named(self, name: str, text: RecordedText) -> Iterator[_Candidate]:
        """The places of a text given by name."""
        if (task := self.config.task) is not None:
            yield _Candidate(_("the task, generated again by this machine"), lambda: _generated(task, text))
        yield from (self._at(path, text) for path in self._files(name))
        if name in BUNDLED or name == "python":
            read = python if name == "python" else partial(bundled, name)
            yield _Candidate(_("the text {name!r} of this machine", name=name), lambda: read(self.config))
        if name in COLLECTIONS:
            choices = [[path for path in self._files(part) if path.is_file()] for part in COLLECTIONS[name]]
            for paths in product(*choices):
                yield _Candidate(_(" and ").join(map(str, paths)), lambda paths=paths: self._joined(name, paths, text))

    def _files(self, name: str) -> list[Path]:
        return [*own_files(name), downloads(self.cache) / f"{name}.txt"] if is_name(name) else []

    def _at(self, path: Path, text: RecordedText, *, is_chosen: bool = False) -> _Candidate:
        def load() -> Corpus | None:
            try:
                mode = os.stat(path).st_mode
            except (FileNotFoundError, NotADirectoryError, ValueError):  # a ValueError: no system has such a name
                return None
            if stat.S_ISDIR(mode):
                return self._folder(path, text, is_chosen)
            if not stat.S_ISREG(mode):
                raise _Differs(_("is not a regular file"))
            with opened(path) as file:
                return self._file(file, path, text)

        return _Candidate(os.path.abspath(path), load)

    def _inside_run(self, run: Path, name: str, text: RecordedText) -> _Candidate:
        def load() -> Corpus | None:
            folder = GuardedFolder(run)
            if folder.kind(name) is None or folder.kind(name) == "folder":
                return None
            with folder.stream(name) as file:
                return self._file(file, run / name, text)

        return _Candidate(os.path.abspath(run / name), load)

    def _file(self, file: BinaryIO, path: Path, text: RecordedText) -> Corpus:
        _require_size(os.fstat(file.fileno()).st_size, text)
        noted = os.path.abspath(path) != os.path.abspath(as_path(text.source))
        return from_document(text.name, read_file(file, path, self._reading), path, noted=noted)

    def _folder(self, path: Path, text: RecordedText, is_chosen: bool) -> Corpus:
        if are_shards(path):
            return from_shards(path)
        if text.path is not None and text.folder is None:
            raise _Differs(_("is a folder, and the text is one file"))
        if not is_chosen:
            files = user_files(path, self.config.glob, self.most_entries).files
            if text.folder != (len(files), sum(map(_size, files))):
                raise _Differs(_("has files of another number or size"))
        return from_folder(path, self.config)

    def _joined(self, name: str, paths: tuple[Path, ...], text: RecordedText) -> Corpus:
        _require_size(sum(_size(path) for path in paths), text)
        parts = []
        for part, path in zip(COLLECTIONS[name], paths, strict=True):
            with opened(path) as file:
                parts.append(from_document(part, read_file(file, path, self._reading), path, noted=True))
        return joined(name, parts, self.config)


def _first(candidates: Iterator[_Candidate], text: RecordedText, reasons: list[str]) -> Corpus | None:
    """The first candidate that is the text; the others' differences are appended to `reasons`."""
    tried = set[str]()
    for candidate in candidates:
        if candidate.where in tried:
            continue
        tried.add(candidate.where)
        try:
            found = candidate.load()
        except _Differs as difference:
            reasons.append(f"{candidate.shown} {difference}")
        except UsageError as error:
            reasons.append(str(error))
        except (OSError, ValueError) as error:
            reasons.append(f"{candidate.shown}: {reason(error) if isinstance(error, OSError) else _('cannot be read')}")
        else:
            if found is not None and found.sha256 == text.sha256:
                return replace(found, name=shown(text.name)[:_MOST_NAME])
            if found is not None:
                reasons.append(_("{path} has another SHA-256", path=candidate.shown))
    return None


def _generated(task: Task, text: RecordedText) -> Corpus:
    _require_size(task.sequences * task.span, text)
    return generated(task)


def _require_size(num_bytes: int, text: RecordedText) -> None:
    if num_bytes != text.num_bytes:
        raise _Differs(_("has another size"))


def _size(path: Path) -> int:
    """Bytes of a regular file, links followed; 0 for anything else."""
    try:
        status = os.stat(path)
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _is_remote(path: str, system: str = os.name) -> bool:
    r"""Whether merely looking at a path would log in to another machine.

    >>> _is_remote("//server/share/x.txt", "nt"), _is_remote("//server/share/x.txt", "posix")
    (True, False)
    """
    return system == "nt" and path.replace("/", "\\").startswith("\\\\")


def _listed(reasons: list[str]) -> str:
    return "; ".join(reasons[:_MOST_REASONS]) + ("; …" if len(reasons) > _MOST_REASONS else "")


def _short(path: str | Path) -> str:
    """A path for a message: one line of at most `_MOST_SHOWN` characters, its end kept."""
    text = shown(path)
    return text if len(text) <= _MOST_SHOWN else f"…{text[-_MOST_SHOWN:]}"
