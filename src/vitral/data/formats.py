"""Files that are no plain text: JSON lines, one text of which is a document; others are recognised and refused.

They are recognised by their first bytes. The suffix only tells apart what begins alike: a Word document, a book and an
archive all begin as ZIP files.
"""

import codecs
import json
from collections.abc import Iterable, Iterator
from typing import Any, cast

from vitral.core.config import nearest, shown
from vitral.core.errors import UsageError
from vitral.core.language import N_, _
from vitral.data.alphabet import is_utf8

_OFFICE, _AS_CSV = N_("your office program"), N_("your office program, as CSV")
_AS_LINES = N_("pandas, as JSON lines whose text --field NAME reads")
_RECOGNITION = N_("tesseract, which recognises it")
_FORMATS = (
    (0, b"%PDF-1.", N_("a PDF"), "pdftotext"),
    (0, b"{\\rtf1", N_("an RTF document"), _OFFICE),
    (0, b"PK\x03\x04", N_("a ZIP archive"), "unzip"),
    (0, b"\x1f\x8b\x08", N_("compressed with gzip"), "gunzip --keep"),
    (0, b"BZh", N_("compressed with bzip2"), "bunzip2 --keep"),
    (0, b"\xfd7zXZ\0", N_("compressed with xz"), "unxz --keep"),
    (0, b"\x28\xb5\x2f\xfd", N_("compressed with Zstandard"), "unzstd"),
    (257, b"ustar", N_("a tar archive"), "tar --extract"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", N_("an old Word document"), _OFFICE),
    (0, b"PAR1", N_("a Parquet table"), _AS_LINES),
    (60, b"BOOKMOBI", N_("a Kindle book"), "ebook-convert"),
    (0, b"\x89PNG\r\n\x1a\n", N_("a PNG picture"), _RECOGNITION),
    (0, b"\xff\xd8\xff", N_("a JPEG picture"), _RECOGNITION),
)
"""Offset and bytes, the name after "is", and the remedy; the first two may be UTF-8 themselves."""
_ZIPPED = {
    ".docx": (N_("a Word document"), "pandoc --to plain"),
    ".odt": (N_("an OpenDocument text"), "pandoc --to plain"),
    ".epub": (N_("an EPUB book"), "pandoc --to plain"),
    ".xlsx": (N_("an Excel workbook"), _AS_CSV),
    ".pptx": (N_("a PowerPoint presentation"), _OFFICE),
}


def foreign_format(head: bytes, suffix: str) -> str:
    """The end of a message about a file that is no plain text: its format, and how to get its text; else empty.

    Args:
        head: its first bytes, a few thousand.
        suffix: of its name.

    >>> foreign_format(b"%PDF-1.7", ".pdf")
    'is a PDF, not a text; get its text first, with pdftotext'
    """
    for place, magic, kind, remedy in _FORMATS[:2] if _may_be_text(head) else _FORMATS:
        if head.startswith(magic, place):
            kind, remedy = _ZIPPED.get(suffix.lower(), (kind, remedy)) if remedy == "unzip" else (kind, remedy)
            return _("is {kind}, not a text; get its text first, with {remedy}", kind=_(kind), remedy=_(remedy))
    return ""


def _may_be_text(head: bytes) -> bool:
    """Whether these bytes may be UTF-8 text that only begins like another format, with `BZh` for example."""
    try:
        return "\0" not in codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False


SUFFIXES = {".jsonl", ".ndjson"}


def field_of_lines(lines: Iterable[str], field: str, where: str) -> Iterator[str]:
    r"""The text of a field in each line; empty lines are skipped.

    Args:
        lines: the lines of a file.
        field: the key, or several joined by dots for objects inside objects. A key that itself has dots is found too.
            Each item of a list is read.
        where: the file, for error messages.

    >>> list(field_of_lines(['{"a": {"b": "one"}}', "", '{"a": [{"b": "two"}, {"b": "three"}]}'], "a.b", "here"))
    ['one', 'two', 'three']

    Raises:
        UsageError: a line is not a JSON object, or has no such string; names the line.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            place = _("{where}: line {number}", where=where, number=str(number))
            record = _parsed(line, place)
            for text in _at(record, field):
                if not isinstance(text, str):
                    others = [key for key in record if key != field]
                    hint = nearest(field, others) if others else _("it has no texts")
                    raise UsageError("{place}: no text in {field}; {hint}", place=place, field=shown(field), hint=hint)
                if not is_utf8(text):
                    raise UsageError(
                        "{place}: {field} contains half of a surrogate pair (\\ud800 to \\udfff); repair it",
                        place=place,
                        field=shown(field),
                    )
                yield text


def _at(value: Any, field: str) -> Iterator[Any]:
    """What is at a field; of a list, that of each item; None where there is no such key."""
    for item in value if isinstance(value, list) else [value]:
        if not field:
            yield item
        elif isinstance(item, dict):
            table = cast("dict[str, Any]", item)
            key, _dot, rest = (field, "", "") if field in table else field.partition(".")
            yield from _at(table.get(key), rest)
        else:
            yield None


def text_fields(line: str) -> list[str]:
    """The keys of a JSON object under which there is a string; empty if it is no object.

    >>> text_fields('{"id": "7", "text": "one more"}')
    ['id', 'text']
    """
    try:
        return [key for key, value in _parsed(line, "").items() if isinstance(value, str)]
    except UsageError:
        return []


def _parsed(line: str, place: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise UsageError(
            "{place}: not a JSON object; each line must be one (a JSON file of another form becomes such lines by "
            "jq -c '.[]' FILE > FILE.jsonl)",
            place=place,
        )
    return cast("dict[str, Any]", record)
