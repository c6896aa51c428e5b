r"""Reading texts: bytes to characters, and texts too long for memory.

Text is decoded strictly, as UTF-8 unless an encoding is configured: an invalid byte is refused, with the file and the
byte's offset, and so is a file in another format than plain text. A leading byte order mark is dropped, newlines become
`\n` unless configured otherwise, and Project Gutenberg's licence is stripped. Of JSON lines, one field can be read.
Nothing else changes, and every change is recorded in a note. NUL and other control characters are kept.

A UTF-8 file of more than LONG bytes stays on disk and is read piece by piece; its licence is not stripped. A field of
JSON lines is read into memory. A folder with more than LONG bytes of text stays on disk too: its files are read
again whenever they are needed.
"""

import hashlib
import os
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from vitral.core.errors import UsageError
from vitral.core.language import N_, _
from vitral.data.alphabet import by_character, code_point_counts, summed
from vitral.data.config import CorpusConfig
from vitral.data.encodings import SAMPLE, guess, is_utf8, sample_around, unmarked_utf
from vitral.data.formats import foreign_format
from vitral.data.in_order import in_order
from vitral.data.licence import strip_licence
from vitral.data.long_texts import PIECE, LongText, Part, Text, in_lines, pieces
from vitral.data.opening import all_of, changed, opened, shown, stamp_of
from vitral.data.records import SUFFIXES, field_of_lines, text_fields

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


@dataclass(frozen=True)
class Reading:
    """How the bytes of a file become a text.

    Attributes:
        newlines: see `CorpusConfig`.
        encoding: see `CorpusConfig`.
        field: see `CorpusConfig`.
        separator: see `CorpusConfig`.
        refuses_formats: whether other formats than text, and UTF-16 without byte order mark, are refused where the
            bytes happen to be valid; not so for the text of an existing run.
    """

    newlines: str = "lf"
    encoding: str | None = None
    field: str | None = None
    separator: str = "\n\n"
    refuses_formats: bool = True

    @classmethod
    def of(cls, config: CorpusConfig, *, refuses_formats: bool = True) -> "Reading":
        """The reading of a configuration."""
        return cls(config.newlines, config.encoding, config.field, config.separator, refuses_formats)


AS_UTF8 = Reading()


@dataclass(frozen=True)
class Document:
    r"""One file as text, and the changes made while reading it.

    Attributes:
        text: the text.
        num_bytes: size of the file in bytes.
        sha256: SHA-256 of these bytes, in hexadecimal.
        encoding: the encoding, if it is not UTF-8.
        fields: of JSON lines read as they are, fields that could be read instead.
        changes: numbers of what was changed: byte order marks dropped ("marks"), `\r\n` ("crlf") and lone `\r` ("cr")
            changed to `\n`, characters of Project Gutenberg's licence stripped ("licence"), texts of a field of JSON
            lines ("texts"), and those of them that were left out as empty ("empty").
    """

    text: Text
    num_bytes: int
    sha256: str
    encoding: str | None = None
    fields: tuple[str, ...] = ()
    changes: Counter[str] = field(default_factory=Counter[str])


def read_document(path: Path, reading: Reading = AS_UTF8) -> Document:
    """Read one file, applying the rules of this module.

    Raises:
        UsageError: the file cannot be read, is not a regular file, or is not a text in this encoding.
    """
    with opened(path) as file:
        return read_file(file, path, reading)


def read_file(file: BinaryIO, path: Path, reading: Reading = AS_UTF8) -> Document:
    """Read an open regular file, applying the rules of this module.

    Args:
        file: the file, at its beginning.
        path: its path, for error messages, and to read a long text again later.
        reading: how it is read.

    Raises:
        UsageError: the file is not a text in this encoding, has no such field, or changes while it is read.
        OSError: the file cannot be read.
    """
    where = shown(path)
    if os.fstat(file.fileno()).st_size <= LONG:
        return decode_document(all_of(file), where, reading)
    if reading.encoding is not None:
        raise UsageError(
            "{where}: a file of more than {most} MB must be UTF-8; convert it with: iconv -f "
            "{encoding} -t UTF-8 {where} > NEW",
            where=where,
            most=LONG >> 20,
            encoding=reading.encoding,
        )
    _refuse_other_formats(file.read(SAMPLE), where, reading)
    file.seek(0)
    return _survey(file, path, reading.newlines) if reading.field is None else _records(file, where, reading)


def on_disk(document: Document, path: Path, reading: Reading, stamp: tuple[int, int]) -> Document:
    """A file's text without its characters in memory: they are read again whenever they are needed.

    Args:
        document: the file as it was read.
        path: the file.
        reading: how it was read.
        stamp: its size and modification time then.
    """
    if isinstance(document.text, LongText):
        return document
    return replace(document, text=LongText([(len(document.text), partial(_read_again, path, reading, stamp))]))


def _read_again(path: Path, reading: Reading, stamp: tuple[int, int]) -> str:
    with _opened_again(path, stamp) as file:
        return "".join(pieces(read_file(file, path, reading).text))


@contextmanager
def _opened_again(path: Path, stamp: tuple[int, int]) -> Generator[BinaryIO]:
    """A file that was read before, and must not have changed."""
    with opened(path, N_("{path}: can no longer be read ({reason})")) as file:
        if stamp_of(file.fileno()) != stamp:
            raise changed(path)
        yield file


def _survey(file: BinaryIO, path: Path, newlines: str) -> Document:
    """Read a long file once: where its parts begin, its hashes and its characters."""
    stamp, changes, counts, parts = stamp_of(file.fileno()), Counter[str](), np.zeros(0, dtype=np.int64), list[Part]()
    digest, text_digest = hashlib.sha256(), hashlib.sha256()
    changes["marks"] = int(file.read(len(BOM_UTF8)) == BOM_UTF8)
    begin = len(BOM_UTF8) * changes["marks"]
    digest.update(BOM_UTF8[:begin])
    file.seek(begin)
    for piece in in_order(partial(_counted, newlines), _whole_pieces(file, stamp[0] - begin)):
        if piece.counts is None:
            num_lines = int(counts[ord("\n") : ord("\n") + 1].sum()) - changes["cr"]
            _decoded(piece.raw, shown(path), file, offset=begin, line=1 + num_lines)
            break
        digest.update(piece.raw)
        text_digest.update(piece.text)
        parts.append((int(piece.counts.sum()), partial(_part, path, stamp, begin, len(piece.raw), newlines)))
        crlf = len(piece.raw) - len(piece.text)
        changes.update(crlf=crlf, cr=0 if piece.text is piece.raw else piece.raw.count(b"\r") - crlf)
        begin, counts = begin + len(piece.raw), summed(counts, piece.counts)
    if begin != stamp[0]:
        raise changed(path)
    text = LongText(parts, (text_digest.hexdigest(), by_character(counts)))
    return Document(text, stamp[0], digest.hexdigest(), fields=_fields(shown(path), text), changes=changes)


def _part(path: Path, stamp: tuple[int, int], begin: int, size: int, newlines: str) -> str:
    with _opened_again(path, stamp) as file:
        file.seek(begin)
        return in_lines(file.read(size).decode("utf-8"), newlines)


def _whole_pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    r"""The bytes of a file in pieces that split no character and no `\r\n`; ends where the file has grown."""
    held = b""
    while read := file.read(PIECE):
        raw = held + read
        if len(raw) > size:
            return
        end = len(raw) if len(raw) == size else _end_of_whole_characters(raw)
        size -= end
        yield raw[:end]
        held = raw[end:]


class _Piece(NamedTuple):
    """A piece of a file: its bytes, those with newlines changed, its characters (None if it is not UTF-8)."""

    raw: bytes
    text: bytes
    counts: np.ndarray | None


def _counted(newlines: str, raw: bytes) -> _Piece:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return _Piece(raw, raw, None)
    lines = newlines == "lf" and b"\r" in raw
    text = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if lines else raw
    return _Piece(raw, text, code_point_counts(text))


def _end_of_whole_characters(raw: bytes) -> int:
    r"""The last offset that splits no character and no `\r\n`."""
    end = len(raw) - 1
    while end > 0 and raw[end] & 0b1100_0000 == 0b1000_0000 and len(raw) - end < 4:
        end -= 1
    return end - 1 if end > 1 and raw[end - 1 : end + 1] == b"\r\n" else max(end, 1)


def decode_document(raw: bytes, where: str, reading: Reading = AS_UTF8) -> Document:
    r"""Decode the bytes of a file.

    Args:
        raw: the bytes.
        where: their name in error messages.
        reading: how they are read.

    >>> decode_document(b"\xef\xbb\xbfone\r\ntwo", "here").text
    'one\ntwo'

    Raises:
        UsageError: the bytes are not a text in this encoding (names the first invalid offset), or have no such field.
    """
    _refuse_other_formats(raw[:SAMPLE], where, reading)
    if reading.field is not None:
        return _records(BytesIO(raw), where, reading)
    encoding = reading.encoding
    text = _decoded(raw, where, BytesIO(raw)) if encoding is None else _decoded_as(raw, encoding, where)
    changes = Counter(marks=int(text.startswith("\ufeff")))
    text = text.removeprefix("\ufeff")
    changes += _returns(text, reading.newlines)
    text = in_lines(text, reading.newlines)
    body = strip_licence(text)
    changes["licence"] = len(text) - len(body)
    return Document(
        text=body,
        num_bytes=len(raw),
        sha256=hashlib.sha256(raw).hexdigest(),
        encoding=encoding,
        fields=_fields(where, body),
        changes=changes,
    )


def _returns(text: str, newlines: str) -> Counter[str]:
    r"""How many `\r\n` and lone `\r` are changed."""
    crlf = text.count("\r\n")
    return Counter(crlf=crlf, cr=text.count("\r") - crlf) if newlines == "lf" else Counter()


def _fields(where: str, text: Text) -> tuple[str, ...]:
    if Path(where).suffix.lower() not in SUFFIXES:
        return ()
    return tuple(text_fields(text[:PIECE].partition("\n")[0]))


def _records(file: BinaryIO, where: str, reading: Reading) -> Document:
    """One field of JSON lines, its texts joined by the separator."""
    digest, texts, changes = hashlib.sha256(), list[str](), Counter[str]()
    for text in field_of_lines(_lines(file, where, reading, digest.update), reading.field or "", where):
        changes += _returns(text, reading.newlines)
        changes.update(texts=1, empty=not text)
        texts += [in_lines(text, reading.newlines)] if text else []
    body = reading.separator.join(texts)
    return Document(body, file.tell(), digest.hexdigest(), reading.encoding, changes=changes)


def _lines(file: BinaryIO, where: str, reading: Reading, seen: Callable[[bytes], None]) -> Iterator[str]:
    r"""The lines of a file; only `\n` ends a line. `seen` receives every byte read."""
    if reading.encoding is not None:
        raw = all_of(file)
        seen(raw)
        yield from _decoded_as(raw, reading.encoding, where).split("\n")
        return
    offset = 0
    for number, raw in enumerate(file, 1):
        seen(raw)
        line = _decoded(raw, where, file, offset=offset, line=number)
        offset += len(raw)
        yield line


def _refuse_other_formats(head: bytes, where: str, reading: Reading) -> None:
    """Refuse a file by its first bytes: another format or encoding than configured."""
    mark = next((mark for mark in _MARKS if head.startswith(mark)), b"")
    marked = _MARKS.get(mark, "")
    chosen = reading.encoding or "utf-8"
    if marked and not chosen.startswith(marked):
        if marked == "utf-8":
            raise UsageError(
                "{where}: this is UTF-8, not {chosen}, by its byte order mark; leave --encoding out",
                where=where,
                chosen=_named(chosen),
            )
        raise UsageError(
            "{where}: this is {marked}, not {chosen}, by its byte order mark; give --encoding {encoding}",
            where=where,
            marked=marked.upper(),
            chosen=_named(chosen),
            encoding=marked,
        )
    if chosen in ("utf-16", "utf-32") and head and not marked:
        raise UsageError(
            "{where}: has no byte order mark, so {chosen} is not clear; give --encoding {encodings}",
            where=where,
            chosen=_named(chosen),
            encodings=unmarked_utf(head) or _(" or ").join((f"{chosen}-le", f"{chosen}-be")),
        )
    if not reading.refuses_formats:
        return
    if found := foreign_format(head, where):
        raise UsageError(f"{where}: {found}")
    if reading.encoding is None and (name := unmarked_utf(head)):
        raise UsageError(
            "{where}: looks like {format} without a byte order mark; give --encoding {encoding}",
            where=where,
            format=name[:6].upper(),
            encoding=name,
        )


def _named(encoding: str) -> str:
    return encoding.upper() if encoding.startswith("utf") else encoding


def _decoded(raw: bytes, where: str, file: BinaryIO, *, offset: int = 0, line: int = 1) -> str:
    """Decode UTF-8 that starts at `offset` and `line` of a file."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line += raw.count(b"\n", 0, error.start)
        place = offset + error.start
        raise UsageError(
            "{where}: not UTF-8 at byte {place} (0x{byte}, line {line}); {hint}",
            where=where,
            place=str(place),
            byte=f"{raw[error.start]:02x}",
            line=str(line),
            hint=guess(sample_around(file, place)),
        ) from None


def _decoded_as(raw: bytes, encoding: str, where: str) -> str:
    """Decode a whole file in the configured encoding."""
    try:
        text = raw.decode(encoding)
    except UnicodeError as error:
        start = getattr(error, "start", 0)
        line = raw[:start].decode(encoding, "replace").count("\n") + 1
        try:
            raw.decode("utf-8")
            hint = _("it is UTF-8: leave --encoding out")
        except UnicodeDecodeError:
            hint = guess(sample_around(BytesIO(raw), start))
        raise UsageError(
            "{where}: not {encoding} at byte {place} ({byte}line {line}); {hint}",
            where=where,
            encoding=_named(encoding),
            place=str(start),
            byte=f"0x{raw[start]:02x}, " if start < len(raw) else "",
            line=str(line),
            hint=hint,
        ) from None
    if text.startswith("\ufffe") or not is_utf8(text):
        raise UsageError(
            "{where}: is no text in {encoding}; give another --encoding", where=where, encoding=_named(encoding)
        )
    return text


def reading_notes(documents: Sequence[Document]) -> tuple[str, ...]:
    """One sentence for each kind of change made while reading these documents."""
    changes = sum((document.changes for document in documents), Counter[str]())
    fields = next((document.fields for document in documents if document.fields), ())
    encodings = dict.fromkeys(document.encoding for document in documents)
    notes = [N_("Decoded as {encoding}.").format(encoding=name) for name in encodings if name]
    if changes["texts"]:
        sentence = N_("Texts read from JSON lines: {number:,}; left out as empty: {empty:,}.")
        notes.append(sentence.format(number=changes["texts"], empty=changes["empty"]))
    if fields:
        sentence = N_("JSON lines are read as they are; --field NAME reads one field of each line as a text ({names}).")
        notes.append(sentence.format(names=", ".join(map(repr, fields))))
    if changes["marks"]:
        sentence = N_("Byte order marks dropped at the beginning of files: {files:,}.")
        notes.append(sentence.format(files=changes["marks"]))
    if changes["crlf"] or changes["cr"]:
        sentence = N_("Newlines were changed to \\n: {both:,} \\r\\n and {lone:,} lone \\r.")
        notes.append(sentence.format(both=changes["crlf"], lone=changes["cr"]))
    if changes["licence"]:
        sentence = N_("Project Gutenberg's licence was stripped ({number:,} characters).")
        notes.append(sentence.format(number=changes["licence"]))
    return tuple(notes)
