"""JSON lines: one JSON object on each line, one text of it a document."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from vitral.core.config import nearest, shown
from vitral.core.errors import UsageError
from vitral.core.language import N_, _
from vitral.data.encodings import is_utf8

SUFFIXES = {".jsonl", ".ndjson"}
_KINDS = {
    dict: N_("an object"),
    list: N_("a list"),
    str: N_("a string"),
    bool: N_("true or false"),
    int: N_("a number"),
    float: N_("a number"),
    type(None): "null",
}
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
            yield from _at(_parsed(line, place), field, place)


def text_fields(line: str) -> list[str]:
    """The keys of a JSON object under which there is a string, longest string first; empty if it is no object.

    >>> text_fields('{"id": "7", "text": "one more", "meta": {"by": "me"}}')
    ['text', 'meta.by', 'id']
    """
    try:
        strings = dict(_strings(_parsed(line, "")))
    except UsageError:
        return []
    return sorted(strings, key=lambda key: -len(strings[key]))[:_MOST_NAMED]


def _strings(record: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for key, held in record.items():
        value = held[0] if isinstance(held, list) and held else held
        if isinstance(value, str):
            yield path + key, value
        elif isinstance(value, dict) and not path:
            yield from _strings(cast("dict[str, Any]", value), f"{key}.")


def _parsed(line: str, place: str) -> dict[str, Any]:
    advice = _(
        "each line must be one JSON object (a JSON file of another form becomes one by jq -c '.[]' FILE > FILE.jsonl)"
    )
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        why = getattr(error, "msg", error)
        raise UsageError("{place}: not JSON ({error}); {advice}", place=place, error=why, advice=advice) from None
    if not isinstance(record, dict):
        raise UsageError("{place}: {kind}, not an object; {advice}", place=place, kind=_kind(record), advice=advice)
    return cast("dict[str, Any]", record)


def _at(value: Any, rest: str, place: str, path: str = "") -> Iterator[str]:
    """The strings at a field, `path` and the `rest` of it; of a list, those of each item."""
    if not rest and isinstance(value, str):
        if not is_utf8(value):
            raise UsageError(
                "{place}: {field} contains half of a surrogate pair (\\ud800 to \\udfff); repair it",
                place=place,
                field=shown(path),
            )
        yield value
    elif rest and isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        key, _dot, after = (rest, "", "") if rest in table else rest.partition(".")
        path = f"{path}.{key}" if path else key
        if key not in table:
            raise UsageError("{place}: no key {path}; {hint}", place=place, path=shown(path), hint=nearest(key, table))
        for item in table[key] if isinstance(table[key], list) else [table[key]]:
            yield from _at(item, after, place, path)
    elif rest:
        raise UsageError(
            "{place}: {path} is {kind}, so it has no key {key}",
            place=place,
            path=shown(path),
            kind=_kind(value),
            key=shown(rest),
        )
    else:
        inside = dict(_strings(cast("dict[str, Any]", value))) if isinstance(value, dict) else {}
        texts = ", ".join(shown(f"{path}.{key}") for key in list(inside)[:_MOST_NAMED])
        raise UsageError(
            "{place}: {field} is {kind}, not a string{texts}",
            place=place,
            field=shown(path),
            kind=_kind(value),
            texts=_("; texts: {names}", names=texts) if texts else "",
        )


def _kind(value: Any) -> str:
    return _(_KINDS[type(value)])
