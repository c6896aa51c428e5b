r"""From bytes to text, by one stated policy.

Text is UTF-8, decoded strictly: a byte that is not UTF-8 is refused with the file and the byte's offset. A byte order
mark at the beginning is dropped, newlines become `\n` unless they are to be kept, and Project Gutenberg's licence is
stripped. Nothing else changes, and whatever did change is noted. NUL and other control characters are left in place.

A file of more than LONG bytes stays on the disk and is read piece by piece; a licence is not looked for in it.
"""

import hashlib
import os
import re
import stat
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vitral.core.errors import UsageError
from vitral.data.longtext import PIECE, LongText, Text, in_lines, stamp_of

LONG = 1 << 28
"""Bytes of the longest file that is held in memory."""

# The 32-bit marks come first: the little-endian one begins with the 16-bit one.
_FOREIGN_MARKS = {BOM_UTF32_LE: "UTF-32", BOM_UTF32_BE: "UTF-32", BOM_UTF16_LE: "UTF-16", BOM_UTF16_BE: "UTF-16"}
_LICENCE_BEFORE = re.compile(r"^\*\*\* START OF TH[^\r\n]*(?:\r\n|\r|\n)", re.MULTILINE)
_LICENCE_AFTER = re.compile(r"^\*\*\* END OF TH", re.MULTILINE)


@dataclass(frozen=True)
class Document:
    r"""One file as text, and what reading it did.

    Attributes:
        text: the text.
        num_bytes: bytes of the file, before anything was changed.
        sha256: SHA-256 of these bytes, in hexadecimal.
        had_mark: whether a UTF-8 byte order mark was dropped.
        num_crlf: `\r\n` that became `\n`.
        num_cr: lone `\r` that became `\n`.
        num_licence: characters of Project Gutenberg's licence that were stripped.
    """

    text: Text
    num_bytes: int
    sha256: str
    had_mark: bool = False
    num_crlf: int = 0
    num_cr: int = 0
    num_licence: int = 0


def shown(path: str | os.PathLike[str]) -> str:
    """A path for a message: one line, without control characters or undecodable bytes."""
    text = os.fspath(path)
    return text if text.isprintable() else ascii(text)


def read_document(path: Path, newlines: str = "lf") -> Document:
    """Read one file by the policy of this module.

    Raises:
        UsageError: it cannot be read, is not a regular file, or is not UTF-8.
    """
    if _size(path) > LONG:
        return _survey(path, newlines)
    return decode_document(read_bytes(path), shown(path), newlines)


def _size(path: Path) -> int:
    """Bytes of a regular file, 0 where there is none; `read_bytes` says what is wrong with it."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _survey(path: Path, newlines: str) -> Document:
    """Read a long file once from beginning to end, and remember where its pieces begin."""
    digest, marks, num_lines, num_crlf, num_cr = hashlib.sha256(), [(0, 0)], 0, 0, 0
    try:
        with path.open("rb") as file:
            stamp, held = stamp_of(file.fileno()), b""
            while read := file.read(PIECE):
                digest.update(read)
                raw = held + read
                if marks == [(0, 0)]:
                    _refuse_other_encodings(raw, shown(path))
                    marks = [(len(BOM_UTF8), 0)] if raw.startswith(BOM_UTF8) else marks
                    raw = raw.removeprefix(BOM_UTF8)
                begin, characters = marks[-1]
                end = len(raw) if begin + len(raw) == stamp[0] else _end_of_whole_characters(raw)
                if begin + len(raw) > stamp[0]:
                    break
                raw, held = raw[:end], raw[end:]
                text = _decoded(raw, shown(path), offset=begin, line=num_lines + 1)
                crlf = text.count("\r\n")
                num_crlf, num_cr, num_lines = (
                    num_crlf + crlf,
                    num_cr + text.count("\r") - crlf,
                    num_lines + text.count("\n"),
                )
                marks.append((begin + end, characters + len(in_lines(text, newlines))))
    except OSError as error:
        raise UsageError(f"{shown(path)}: cannot be read ({error.strerror})") from None
    if marks[-1][0] != stamp[0]:
        raise UsageError(f"{shown(path)}: has changed while it was read; try again when it is at rest")
    changed = (num_crlf, num_cr) if newlines == "lf" else (0, 0)
    text = LongText(path, marks, newlines=newlines, stamp=stamp)
    return Document(text, stamp[0], digest.hexdigest(), marks[0][0] > 0, *changed)


def _end_of_whole_characters(raw: bytes) -> int:
    r"""Where to cut so that no character and no `\r\n` is cut in two: before the last character, or the two last."""
    end = len(raw) - 1
    while end > 0 and raw[end] & 0b1100_0000 == 0b1000_0000 and len(raw) - end < 4:
        end -= 1
    return end - 1 if end > 1 and raw[end - 1 : end + 1] == b"\r\n" else max(end, 1)


def read_bytes(path: Path) -> bytes:
    """The bytes of a regular file.

    Raises:
        UsageError: it cannot be read, is not a regular file (a pipe would block), or does not fit into memory.
    """
    try:
        if stat.S_ISREG(path.stat().st_mode):
            return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{shown(path)}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise UsageError(f"{shown(path)}: cannot be read ({error})") from None
    except MemoryError:
        raise UsageError(f"{shown(path)}: too large for this machine's memory; give a part of it") from None
    raise UsageError(f"{shown(path)}: not a regular file; give a text file or a folder of text files")


def decode_document(raw: bytes, where: str, newlines: str = "lf") -> Document:
    r"""Turn the bytes of a file into text.

    Args:
        raw: the bytes.
        where: what to call them in an error.
        newlines: `"lf"` or `"keep"`, see `CorpusConfig`.

    >>> decode_document(b"\xef\xbb\xbfone\r\ntwo", "here").text
    'one\ntwo'

    Raises:
        UsageError: the bytes are not UTF-8; the first offset that is not is named.
    """
    _refuse_other_encodings(raw, where)
    text = _decoded(raw, where)
    had_mark = raw.startswith(BOM_UTF8)
    text = text[1:] if had_mark else text
    num_crlf = num_cr = 0
    if newlines == "lf" and "\r" in text:
        num_crlf = text.count("\r\n")
        num_cr = text.count("\r") - num_crlf
        text = in_lines(text, newlines)
    body = strip_licence(text)
    return Document(
        text=body,
        num_bytes=len(raw),
        sha256=hashlib.sha256(raw).hexdigest(),
        had_mark=had_mark,
        num_crlf=num_crlf,
        num_cr=num_cr,
        num_licence=len(text) - len(body),
    )


def _refuse_other_encodings(raw: bytes, where: str) -> None:
    for mark, encoding in _FOREIGN_MARKS.items():
        if raw.startswith(mark):
            raise UsageError(f"{where}: this is {encoding}, not UTF-8; save it as UTF-8 and try again")


def _decoded(raw: bytes, where: str, *, offset: int = 0, line: int = 1) -> str:
    """These bytes of a file, which begin at `offset` and in `line`, as text."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line += raw.count(b"\n", 0, error.start)
        byte = f"0x{raw[error.start]:02x}"
        raise UsageError(
            f"{where}: not UTF-8 at byte {offset + error.start} ({byte}, line {line}); save it as UTF-8 and try again"
        ) from None


def strip_licence(text: str) -> str:
    r"""The part of a Project Gutenberg text between its two markers; a text without both is returned whole.

    The text begins after the line that starts with `*** START OF TH` and ends before the line that starts with
    `*** END OF TH`; nothing else is stripped.

    >>> strip_licence("licence\n*** START OF THE EBOOK ***\nthe work\n*** END OF THE EBOOK ***\nmore")
    'the work\n'
    """
    before = _LICENCE_BEFORE.search(text)
    after = _LICENCE_AFTER.search(text, before.end()) if before else None
    return text[before.end() : after.start()] if before and after else text


def reading_notes(documents: Sequence[Document]) -> tuple[str, ...]:
    """What reading these documents changed, one sentence for each kind of change, nothing where nothing changed."""
    num_marks = sum(document.had_mark for document in documents)
    num_crlf = sum(document.num_crlf for document in documents)
    num_cr = sum(document.num_cr for document in documents)
    num_licence = sum(document.num_licence for document in documents)
    notes = []
    if num_marks:
        where = "at the beginning" if len(documents) == 1 else f"at the beginning of {num_marks} files"
        notes.append(f"A byte order mark {where} was dropped.")
    if num_crlf or num_cr:
        notes.append(f"Newlines were changed to \\n: {num_crlf:,} \\r\\n and {num_cr:,} lone \\r.")
    if num_licence:
        notes.append(f"Project Gutenberg's licence was stripped ({num_licence:,} characters).")
    return tuple(notes)
