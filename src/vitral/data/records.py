"""JSON lines: one JSON object on each line, one text of it a document."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, cast

from vitral.core.config import nearest, shown
from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.data.encodings import is_utf8

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
