"""JSON lines: one JSON object on each line, one text of it a document."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from vitral.core.config import closest, shown
from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.data.encodings import is_utf8

SUFFIXES = {".jsonl", ".ndjson"}
_MOST_NAMED = 3


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
                    names = _named(record)
                    known = (
                        _("its texts: {names}", names=", ".join(map(shown, names))) if names else _("it has no texts")
                    )
                    hint = closest(field, names) or known
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
    """The keys of a JSON object under which there is a string, longest string first; empty if it is no object.

    >>> text_fields('{"id": "7", "text": "one more", "meta": {"by": "me"}}')
    ['text', 'meta.by', 'id']
    """
    try:
        return _named(_parsed(line, ""))
    except UsageError:
        return []


def _named(record: Mapping[str, Any]) -> list[str]:
    strings = dict(_strings(record))
    return sorted(strings, key=lambda key: -len(strings[key]))[:_MOST_NAMED]


def _strings(record: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for key, held in record.items():
        value = held[0] if isinstance(held, list) and held else held
        if isinstance(value, str):
            yield path + key, value
        elif isinstance(value, dict) and not path:
            yield from _strings(cast("dict[str, Any]", value), f"{key}.")


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
