r"""Reading texts: bytes to characters, and texts too long for memory.

Text is decoded strictly, as UTF-8 unless an encoding is configured: an invalid byte is refused, with the file and the
byte's offset, and so is a file in another format than plain text. A leading byte order mark is dropped, newlines become
`\n` unless configured otherwise, and Project Gutenberg's licence is stripped. Of JSON lines, one field can be read.
Nothing else changes, and every change is recorded in a note. NUL and other control characters are kept.

A UTF-8 file of more than LONG bytes stays on disk and is read piece by piece; its licence is not stripped. A field of
JSON lines is read into memory. A folder with more than LONG bytes of text stays on disk too: its files are read
again whenever they are needed, those of some megabytes piece by piece.
"""

import hashlib
import os
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
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
from vitral.data.licence import may_have_licence, strip_licence
from vitral.data.long_texts import PIECE, FileText, LongText, Text, bytes_in_lines, in_lines, pieces
from vitral.data.opening import all_of, changed, opened, shown, stamp_of
from vitral.data.records import SUFFIXES, field_of_lines, text_fields

LONG = 1 << 28
"""Maximum size in bytes of a file that is read into memory."""
STREAMED = 1 << 22
"""Maximum size in bytes of a file of a large folder that is read into memory when it is needed."""

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
        had_mark: whether a byte order mark was dropped.
        num_crlf: number of `\r\n` changed to `\n`.
        num_cr: number of lone `\r` changed to `\n`.
        num_licence: number of characters of Project Gutenberg's licence stripped.
        encoding: the encoding, if it is not UTF-8.
        num_texts: of a field of JSON lines, number of texts, empty ones included.
        num_empty: number of those that are empty, and were left out.
        fields: of JSON lines read as they are, fields that could be read instead.
    """

    text: Text
    num_bytes: int
    sha256: str
    had_mark: bool = False
    num_crlf: int = 0
    num_cr: int = 0
    num_licence: int = 0
    encoding: str | None = None
    num_texts: int = 0
    num_empty: int = 0
    fields: tuple[str, ...] = ()


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
    if reading.field is None:
        return read_long(file, path, reading)
    _refuse_other_formats(file.read(SAMPLE), where, reading)
    file.seek(0)
    return _records(file, where, reading)


def read_long(file: BinaryIO, path: Path, reading: Reading = AS_UTF8) -> Document:
    """Read an open UTF-8 file once and leave its text on disk, however short it is.

    Raises:
        UsageError: the file is not a text in UTF-8, or changes while it is read.
        OSError: the file cannot be read.
    """
    _refuse_other_formats(file.read(SAMPLE), shown(path), reading)
    file.seek(0)
    return _survey(file, path, reading.newlines)


def read_streamed(file: BinaryIO, path: Path, reading: Reading = AS_UTF8) -> Document:
    """Read a file of a large folder, one of some megabytes as `read_long` does; the text is that of `read_file`.

    Raises:
        UsageError: as `read_file`.
        OSError: the file cannot be read.
    """
    if os.fstat(file.fileno()).st_size > STREAMED and reading.encoding is None and reading.field is None:
        document = read_long(file, path, reading)
        if not may_have_licence(document.text):
            return document
        file.seek(0)
    return read_file(file, path, reading)


def on_disk(document: Document, path: Path, reading: Reading, stamp: tuple[int, int]) -> Document:
    """A file's text without its characters in memory: they are read again whenever they are needed.

    Args:
        document: the file as it was read.
        path: the file.
        reading: how it was read.
        stamp: its size and modification time then.
    """

    def read() -> str:
        with opened(path, N_("{path}: can no longer be read ({reason})")) as file:
            if stamp_of(file.fileno()) != stamp:
                raise changed(path)
            return "".join(pieces(read_file(file, path, reading).text))

    return replace(document, text=FileText(read, len(document.text))) if isinstance(document.text, str) else document


def _survey(file: BinaryIO, path: Path, newlines: str) -> Document:
    """Read a long file once: where its pieces begin, its hashes and its characters."""
    stamp, num_crlf, num_cr, counts = stamp_of(file.fileno()), 0, 0, np.zeros(0, dtype=np.int64)
    read = _Pieces(file, stamp[0], newlines)
    marks = [(read.mark, 0)]
    for piece in in_order(_counted, read):
        begin, characters = marks[-1]
        if piece.counts is None:
            num_lines = int(counts[ord("\n") : ord("\n") + 1].sum()) - num_cr
            _decoded(piece.raw, shown(path), file, offset=begin, line=1 + num_lines)
            break
        marks.append((begin + len(piece.raw), characters + int(piece.counts.sum())))
        num_crlf, num_cr, counts = num_crlf + piece.num_crlf, num_cr + piece.num_cr, summed(counts, piece.counts)
    if marks[-1][0] != stamp[0]:
        raise changed(path)
    text_hash, found = read.text_digest.hexdigest(), by_character(counts)
    text = LongText(path, marks, newlines=newlines, stamp=stamp, sha256=text_hash, counts=found)
    fields = _fields(shown(path), text)
    return Document(text, stamp[0], read.digest.hexdigest(), read.mark > 0, num_crlf, num_cr, fields=fields)


class _Pieces:
    """The pieces of a file, each as it is and as it becomes part of the text; hashes both meanwhile."""

    def __init__(self, file: BinaryIO, size: int, newlines: str) -> None:
        self._file, self._size, self._newlines = file, size, newlines
        head = file.read(len(BOM_UTF8))
        self.mark = len(BOM_UTF8) if head == BOM_UTF8 else 0
        file.seek(self.mark)
        self.text_digest = hashlib.sha256()
        self.digest = hashlib.sha256(head) if self.mark else self.text_digest

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        place, held = self.mark, b""
        while read := self._file.read(PIECE):
            raw = held + read
            if place + len(raw) > self._size:  # the file has grown
                return
            end = len(raw) if place + len(raw) == self._size else _end_of_whole_characters(raw)
            raw, held, place = raw[:end], raw[end:], place + end
            text = bytes_in_lines(raw, self._newlines)
            self._hash(raw, text)
            yield raw, text

    def _hash(self, raw: bytes, text: bytes) -> None:
        if self.digest is self.text_digest and text is not raw:
            self.text_digest = self.digest.copy()
        self.digest.update(raw)
        if self.digest is not self.text_digest:
            self.text_digest.update(text)


class _Piece(NamedTuple):
    """A piece of a file: its bytes, the characters of its text (None if it is not UTF-8), and the newlines changed."""

    raw: bytes
    counts: np.ndarray | None
    num_crlf: int = 0
    num_cr: int = 0


def _counted(piece: tuple[bytes, bytes]) -> _Piece:
    raw, text = piece
    if not raw.isascii():
        try:
            raw.decode("utf-8")
        except UnicodeDecodeError:
            return _Piece(raw, None)
    num_crlf = len(raw) - len(text)
    return _Piece(raw, code_point_counts(text), num_crlf, 0 if text is raw else raw.count(b"\r") - num_crlf)


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
    had_mark = text.startswith("\ufeff")
    text = text[1:] if had_mark else text
    num_crlf, num_cr = _returns(text, reading.newlines)
    text = in_lines(text, reading.newlines)
    body = strip_licence(text)
    return Document(
        text=body,
        num_bytes=len(raw),
        sha256=hashlib.sha256(raw).hexdigest(),
        had_mark=had_mark,
        num_crlf=num_crlf,
        num_cr=num_cr,
        num_licence=len(text) - len(body),
        encoding=encoding,
        fields=_fields(where, body),
    )


def _returns(text: str, newlines: str) -> tuple[int, int]:
    r"""How many `\r\n` and lone `\r` are changed."""
    num_crlf = text.count("\r\n") if newlines == "lf" else 0
    return num_crlf, text.count("\r") - num_crlf if newlines == "lf" else 0


def _fields(where: str, text: Text) -> tuple[str, ...]:
    if Path(where).suffix.lower() not in SUFFIXES:
        return ()
    return tuple(text_fields(text[:PIECE].partition("\n")[0]))


def _records(file: BinaryIO, where: str, reading: Reading) -> Document:
    """One field of JSON lines, its texts joined by the separator."""
    digest, texts = hashlib.sha256(), list[str]()
    num_crlf = num_cr = num_texts = 0
    for text in field_of_lines(_lines(file, where, reading, digest.update), reading.field or "", where):
        num_texts += 1
        crlf, cr = _returns(text, reading.newlines)
        num_crlf, num_cr = num_crlf + crlf, num_cr + cr
        if text:
            texts.append(in_lines(text, reading.newlines))
    return Document(
        text=reading.separator.join(texts),
        num_bytes=file.tell(),
        sha256=digest.hexdigest(),
        num_crlf=num_crlf,
        num_cr=num_cr,
        encoding=reading.encoding,
        num_texts=num_texts,
        num_empty=num_texts - len(texts),
    )


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
    num_marks = sum(document.had_mark for document in documents)
    num_crlf = sum(document.num_crlf for document in documents)
    num_cr = sum(document.num_cr for document in documents)
    num_licence = sum(document.num_licence for document in documents)
    num_texts = sum(document.num_texts for document in documents)
    num_empty = sum(document.num_empty for document in documents)
    fields = next((document.fields for document in documents if document.fields), ())
    encodings = dict.fromkeys(document.encoding for document in documents)
    notes = [N_("Decoded as {encoding}.").format(encoding=name) for name in encodings if name]
    if num_texts:
        sentence = N_("Texts read from JSON lines: {number:,}; left out as empty: {empty:,}.")
        notes.append(sentence.format(number=num_texts, empty=num_empty))
    if fields:
        sentence = N_("JSON lines are read as they are; --field NAME reads one field of each line as a text ({names}).")
        notes.append(sentence.format(names=", ".join(map(repr, fields))))
    if num_marks:
        notes.append(N_("Byte order marks dropped at the beginning of files: {files:,}.").format(files=num_marks))
    if num_crlf or num_cr:
        sentence = N_("Newlines were changed to \\n: {both:,} \\r\\n and {lone:,} lone \\r.")
        notes.append(sentence.format(both=num_crlf, lone=num_cr))
    if num_licence:
        sentence = N_("Project Gutenberg's licence was stripped ({number:,} characters).")
        notes.append(sentence.format(number=num_licence))
    return tuple(notes)
