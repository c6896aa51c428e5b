"""What a file is: a plain text in some encoding, JSON lines, or another format, which is recognised and refused.

Formats are recognised by their first bytes. Nothing is ever decoded by a guess: a guess of charset-normalizer only
completes the message of a refusal, with a word of the file as each likely encoding reads it, so that the user can see
which is right.
"""

import codecs
import re
from collections.abc import Iterable, Iterator
from encodings.aliases import aliases
from typing import Any

from vitral.core.config import closest, nearest, shown
from vitral.core.errors import UsageError
from vitral.core.files import json_object
from vitral.core.language import N_, _
from vitral.data.alphabet import is_utf8

FORMATS = {
    b"%PDF-1.": N_("a PDF: get its text first, with pdftotext"),
    b"{\\rtf1": N_("an RTF document: save it as plain text"),
    b"PK\x03\x04": N_(
        "an archive, as Word documents, workbooks and e-books are: get their text with pandoc --to plain"
    ),
    b"\x1f\x8b\x08": N_("compressed with gzip: unpack it with gunzip --keep"),
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": N_("an old Word document: save it as plain text"),
    b"PAR1\x15": N_("a Parquet table: save it as JSON lines with pandas; --field NAME reads their text"),
}
"""By its first bytes, another format than plain text, and what gets the text."""


SUFFIXES = {".jsonl", ".ndjson", ".json"}
"""Of files whose lines are JSON."""


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
            location = _("{where}: line {number}", where=where, number=str(number))
            record = parsed_line(line, location)
            for text in _at(record, field):
                if not isinstance(text, str) or not is_utf8(text):
                    others = [key for key in record if key != field]
                    hint = nearest(field, others) if others else _("it has no texts")
                    raise UsageError(
                        "{place}: no text in {field}; {hint}", place=location, field=shown(field), hint=hint
                    )
                yield text


def _at(value: Any, field: str) -> Iterator[Any]:
    """What is at a field; of a list, that of each item; None where there is no such key."""
    for item in value if isinstance(value, list) else [value]:
        if not field:
            yield item
        elif isinstance(item, dict):
            key, _dot, rest = (field, "", "") if field in item else field.partition(".")
            yield from _at(item.get(key), rest)
        else:
            yield None


def keys_of(line: str) -> list[str]:
    """The keys of a JSON object; empty if it is none.

    >>> keys_of('{"id": "7", "text": "one more"}')
    ['id', 'text']
    """
    try:
        return list(parsed_line(line, ""))
    except UsageError:
        return []


def parsed_line(line: str, location: str) -> dict[str, Any]:
    """The JSON object of a line.

    Raises:
        UsageError: it is none.
    """
    try:
        return json_object(line.encode())
    except ValueError:
        raise UsageError(
            "{place}: not a JSON object; each line must be one (a JSON file of another form becomes such lines by "
            "jq -c '.[]' FILE > FILE.jsonl)",
            place=location,
        ) from None


SAMPLE = 1 << 16
"""Bytes by which a format is recognised, and from which an encoding is guessed."""
_MOST_NAMED = 3
_LOST = re.compile("[\udc80-\udcff]")
"""A byte that is not UTF-8, as Python keeps it in a text."""
_BEYOND = re.compile(r"[^ \t\r\n]{0,11}[^\0-\x7f][^ \t\r\n]{0,4}")
"""A word with a character beyond ASCII, or a part of a long one."""


def codec_name(name: str) -> str | None:
    """Python's name of an encoding, None for UTF-8 (the default).

    >>> codec_name("Shift-JIS"), codec_name("latin1"), codec_name("UTF8")
    ('shift_jis', 'iso8859-1', None)

    Raises:
        ValueError: Python has no such encoding, or it is none of text.
    """
    try:
        codec = codecs.lookup(name).name
        "a".encode(codec)
    except (LookupError, ValueError):
        raise ValueError(
            _(
                "{name} is not an encoding of text; {hint}",
                name=shown(name),
                hint=closest(name, aliases.values()) or _("examples are cp1252, shift_jis and utf-16"),
            )
        ) from None
    return None if codec in ("utf-8", "utf-8-sig") else codec


def guess(raw: bytes, offset: int) -> str:
    """The end of a message about bytes that are not in an encoding: what they may be, and what to do.

    Args:
        raw: bytes of the file.
        offset: the byte that is wrong.
    """
    begin = 0 if offset < SAMPLE // 2 else raw.find(b"\n", offset - SAMPLE // 4, offset) + 1 or offset - SAMPLE // 4
    sample = raw[begin : begin + SAMPLE]
    text = sample.decode("utf-8", "surrogateescape")
    lost = len(_LOST.findall(text))
    if not lost:
        return _("it is UTF-8: leave --encoding out")
    if 3 * lost <= 2 * len(re.findall("[^\0-\x7f]", text)):  # a third or more of the characters beyond ASCII
        return _("a part of it is UTF-8, so it is damaged, or in two encodings: repair or convert the other part alone")
    from charset_normalizer import from_bytes

    words = dict[str, str]()
    for match in from_bytes(sample):
        word = _BEYOND.search(str(match))
        words.setdefault("".join(filter(str.isprintable, word[0] if word else "")), match.encoding)
    likely = list(words.items())[:_MOST_NAMED]
    if not likely:
        return _("its encoding is not recognised: save it as UTF-8, or give --encoding NAME")
    return _(
        "it looks like {names}: give --encoding NAME of the one that reads it right",
        names=_(" or ").join(f"{name} (“{word}”)" for word, name in likely),
    )
