r"""Reading texts: bytes to characters, and texts too long for memory.

Text is decoded strictly, as UTF-8 unless an encoding is configured: an invalid byte is refused, with the file and the
byte's offset, and so is a file in another format than plain text. A leading byte order mark is dropped, newlines become
`\n` unless configured otherwise, and Project Gutenberg's licence is stripped. Of JSON lines, one field can be read.
Nothing else changes, and every change is recorded in a note. A file with a NUL in its beginning is no text.

A UTF-8 file of more than LONG bytes stays on disk and is read piece by piece; its licence is not stripped. A field of
JSON lines, and a text in another encoding, are read into memory.
"""

import hashlib
import os
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Self

from pydantic import Field

from vitral.core.config import Config
from vitral.core.errors import UsageError
from vitral.core.files import open_regular, readable, sha256
from vitral.core.language import N_, _
from vitral.data.answers import KNOWN_KEYS, records_of
from vitral.data.config import CorpusConfig
from vitral.data.formats import FORMATS, SAMPLE, SUFFIXES, field_of_lines, guess, keys_of
from vitral.data.long_texts import PIECE, LongText, Part, Text, in_lines
from vitral.data.shards import Shards
from vitral.data.split import Blocks, Work, in_a_row

LONG = 1 << 28
"""Maximum size in bytes of a file that is read into memory."""

# The 32-bit marks come first, since the little-endian one starts with the 16-bit one.
_MARKS = {
    BOM_UTF32_LE: "utf-32",
    BOM_UTF32_BE: "utf-32",
    BOM_UTF16_LE: "utf-16",
    BOM_UTF16_BE: "utf-16",
    BOM_UTF8: "utf-8",
}
_DEFAULT = CorpusConfig()
_Count = Annotated[int, Field(gt=0, lt=1 << 62)]
_Stamp = tuple[int, int]
"""Size and modification time of a file."""


class TextRecord(Config):
    """A text as a run records it: its identity, and a hint where it was.

    Attributes:
        name: see `Corpus.name`.
        bytes: its size.
        characters: its length.
        sha256: see `Corpus.sha256`.
        path: a hint: the absolute path it was read from.
    """

    name: str
    bytes: _Count
    characters: _Count
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    path: str | None = None

    @classmethod
    def of(cls, recorded: Mapping[str, Any], where: str) -> Self:
        """The text of a document.

        Raises:
            UsageError: an entry is missing or malformed.
        """
        entries = recorded.items() if isinstance(recorded, Mapping) else ()
        return cls.parse({key: value for key, value in entries if key in cls.model_fields}, where)


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
        files: of several texts, each.
        shards: the tokens that another program made of the text.
        records: of records and the sequences of a task, each; a question again as often as it was drawn.
        changes: numbers of what was changed while reading: byte order marks dropped ("marks"), `\r\n` ("crlf") and lone
            `\r` ("cr") changed to `\n`, and both ("returns"), characters of Project Gutenberg's licence stripped
            ("licence"), texts of a field of JSON lines ("texts"), those of them that were left out as empty ("empty"),
            records ("records"), and those left out as equal to an earlier one ("equal").
    """

    name: str
    text: Text
    num_bytes: int
    sha256: str
    notes: tuple[str, ...] = ()
    path: str | None = None
    files: tuple[Work, ...] = ()
    shards: Shards | None = None
    records: Blocks | None = None
    changes: Counter[str] = field(default_factory=Counter[str])

    @property
    def each_record(self) -> list[str]:
        """The text of each of its records."""
        return [self.text[begin:end] for begin, end in self.records or ()]

    @property
    def record(self) -> TextRecord:
        """What a run records of it."""
        return TextRecord.model_construct(
            name=self.name, bytes=self.num_bytes, characters=len(self.text), sha256=self.sha256, path=self.path
        )


def read_file(file: BinaryIO, path: Path, config: CorpusConfig) -> Corpus:
    """Read an open regular file, applying the rules of this module; its name is the path.

    Args:
        file: the file, at its beginning.
        path: its path, for error messages, and to read its text again later.
        config: how it is read.

    Raises:
        UsageError: the file is not a text in this encoding, or has no such field.
        OSError: the file cannot be read.
    """
    stamp, where = _stamp_of(file), str(path)
    if stamp[0] <= LONG or not (config.field is config.records is config.encoding is None):
        return decode_document(file.read(), where, config)
    begin, line, digest, changes, parts = 0, 1, hashlib.sha256(), Counter[str](), list[Part]()
    while raw := b"".join(file.readlines(PIECE)):  # whole lines
        text, piece_changes, _records = _read(raw, where, config, begin, line)
        parts.append((len(text), partial(_again, path, config, stamp, begin, len(raw))))
        changes += piece_changes
        digest.update(raw)
        begin, line = begin + len(raw), line + raw.count(b"\n")
    return Corpus(where, LongText(parts), begin, digest.hexdigest(), changes=changes)


@contextmanager
def opened(path: Path) -> Generator[BinaryIO]:
    """A regular file for reading inside the block; links are followed.

    Raises:
        UsageError: the file cannot be opened or read, or is not regular.
    """
    with readable(path), open_regular(path) as file:
        yield file


def _stamp_of(file: BinaryIO) -> _Stamp:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def _again(path: Path, config: CorpusConfig, stamp: _Stamp, begin: int, size: int) -> str:
    """A piece of a file that was read before, and must not have changed."""
    with opened(path) as file:
        if _stamp_of(file) != stamp:
            raise UsageError("{path}: has changed while it was read; try again when nothing writes to it", path=path)
        file.seek(begin)
        return _read(file.read(size), str(path), config, begin)[0]


def decode_document(raw: bytes, where: str, config: CorpusConfig = _DEFAULT) -> Corpus:
    r"""Decode the bytes of a file.

    Args:
        raw: the bytes.
        where: their name in error messages.
        config: how they are read.

    >>> decode_document(b"\xef\xbb\xbfone\r\ntwo", "here").text
    'one\ntwo'

    Raises:
        UsageError: the bytes are not a text in this encoding (names the first invalid offset), or have no such field.
    """
    text, changes, records = _read(raw, where, config)
    if config.field is config.records is None:
        whole, text = text, strip_licence(text)
        changes["licence"] = len(whole) - len(text)
    return Corpus(where, text, len(raw), sha256(raw), records=in_a_row(map(len, records)), changes=changes)


def _read(
    raw: bytes, where: str, config: CorpusConfig, begin: int = 0, line: int = 1
) -> tuple[str, Counter[str], list[str]]:
    """The text of bytes that begin at a byte and a line of a file, what was changed, and the records."""
    encoding = config.encoding or "utf-8"
    if begin == 0:
        _refuse_other_formats(raw[:SAMPLE], where, encoding)
    text = _decoded(raw, where, encoding, begin, line)
    changes = Counter(marks=int(begin == 0 and text.startswith("\ufeff")))
    texts = [text[changes["marks"] :]]
    if config.field is not None:
        texts = list(field_of_lines(texts[0].split("\n"), config.field, where))
        changes.update(texts=len(texts), empty=texts.count(""))
    if config.records is not None:
        texts = list(records_of(texts[0].split("\n"), config.records, where))
        changes["records"] = len(texts)
    if config.newlines == "lf":
        crlf, returns = (sum(one.count(ending) for one in texts) for ending in ("\r\n", "\r"))
        changes.update(returns=returns, crlf=crlf, cr=returns - crlf)
        texts = list(map(in_lines, texts))
    if config.records is not None:
        return "".join(texts), changes, texts
    return config.separator.join(filter(None, texts)), changes, []


def _refuse_other_formats(head: bytes, where: str, chosen: str) -> None:
    """Refuse a file by its first bytes: another format or encoding than the chosen one."""
    marked = next((name for mark, name in _MARKS.items() if head.startswith(mark)), "")
    is_swapped = head[:4].decode(chosen, "replace").startswith("\ufffe")
    if marked and (is_swapped or not chosen.startswith(marked)):
        raise UsageError(
            "{where}: this is {marked}, not {chosen}, by its byte order mark; {advice}",
            where=where,
            marked=marked.upper(),
            chosen=chosen.upper(),
            advice=_("leave --encoding out") if marked == "utf-8" else _("give --encoding {encoding}", encoding=marked),
        )
    for begin, kind in FORMATS.items():
        if head.startswith(begin):
            raise UsageError("{where}: is {kind}", where=where, kind=kind)
    has_nul = b"\0" in head and not chosen.startswith(("utf-16", "utf-32"))
    if not marked and head and (chosen == "utf-16" or has_nul):
        raise UsageError(
            "{where}: no plain text, or UTF-16 without a byte order mark; for that give --encoding utf-16-le or "
            "utf-16-be",
            where=where,
        )


def _decoded(raw: bytes, where: str, encoding: str, offset: int, line: int) -> str:
    """Decode bytes that start at `offset` and `line` of a file."""
    try:
        return raw.decode(encoding)
    except UnicodeError as error:
        start = getattr(error, "start", 0)
        raise UsageError(
            "{where}: not {encoding} at byte {place} ({byte}line {line}); {hint}",
            where=where,
            encoding=encoding.upper(),
            place=str(offset + start),
            byte=f"0x{raw[start]:02x}, " if start < len(raw) else "",
            line=str(line + raw[:start].decode(encoding, "replace").count("\n")),
            hint=guess(raw, start),
        ) from None


def reading_notes(files: Sequence[Corpus], config: CorpusConfig) -> Iterator[str]:
    """One sentence for each kind of change made while reading these files."""
    changes = sum((one.changes for one in files), Counter[str]())
    if config.encoding is not None:
        yield N_("Decoded as {encoding}.").format(encoding=config.encoding)
    as_they_are = files if config.field is config.records is None else ()
    lines = (one.text[:PIECE].partition("\n")[0] for one in as_they_are if Path(one.name).suffix.lower() in SUFFIXES)
    if fields := next(filter(None, map(keys_of, lines)), None):
        yield N_(
            "JSON lines are read as they are, with the keys {names}: --field NAME reads one of them as a text; {known}."
        ).format(names=", ".join(map(repr, fields)), known=KNOWN_KEYS)
    for change, sentence in NOTES.items():
        if changes[change]:
            yield sentence.format(**{name: changes[name] for name in _CHANGES})


_CHANGES = ("texts", "empty", "records", "equal", "marks", "returns", "crlf", "cr", "licence")
NOTES = {
    "texts": N_("Texts read from JSON lines: {texts:,}; left out as empty: {empty:,}."),
    "equal": N_("Records read: {records:,}; left out as equal to an earlier one: {equal:,}."),
    "marks": N_("Byte order marks dropped at the beginning of files: {marks:,}."),
    "returns": N_("Newlines were changed to \\n: {crlf:,} \\r\\n and {cr:,} lone \\r."),
    "licence": N_("Project Gutenberg's licence was stripped ({licence:,} characters)."),
}
"""What is said of each kind of change."""


_MARKER = re.compile(r"^\*\*\* (START|END) OF TH[^\r\n]*(?:\r\n|\r|\n)?", re.MULTILINE)


def strip_licence(text: str) -> str:
    r"""The text between Project Gutenberg's markers; a text without both of them is returned unchanged.

    A book begins after the line that starts with `*** START OF TH` and ends before the line that starts with
    `*** END OF TH`. Of a file of several books, all are kept; so is the rest of one that the beginning or the end of
    the file cuts off.

    >>> strip_licence("licence\n*** START OF THE EBOOK ***\nthe work\n*** END OF THE EBOOK ***\nmore")
    'the work\n'
    """
    first, *others = _MARKER.split(text)
    kinds, parts = others[::2], others[1::2]
    if "START" not in kinds or "END" not in kinds[kinds.index("START") :]:
        return text
    books = [part for kind, part in zip(kinds, parts, strict=True) if kind == "START"]
    return "".join([first, *books] if kinds[0] == "END" else books)
