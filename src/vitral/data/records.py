"""JSON lines: one JSON object on each line, one text of it a document."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from vitral.core.config import closest, shown
from vitral.core.errors import UsageError
from vitral.core.language import N_, _
from vitral.data.encodings import is_utf8

SUFFIXES = {".jsonl", ".ndjson"}
_KINDS = {
    dict: N_("an object"),
    list: N_("a list"),
    str: N_("a string"),
    bool: N_("true or false"),
    float: N_("a number"),
}
_MOST_KEYS = 12
_MOST_COMPARED = 1000
_MOST_NAMED = 3


class _Doubled(dict[str, Any]):
    """An object of JSON in which keys occur twice."""

    keys_given_twice: frozenset[str] = frozenset()


def field_of_lines(lines: Iterable[str], field: str, where: str) -> Iterator[str]:
    r"""The text of a field in each line; empty lines are skipped.

    Args:
        lines: the lines of a file; a byte order mark at their beginning is dropped.
        field: the key, or several joined by dots for objects inside objects. A key that itself has dots is found too.
            Each item of a list is read.
        where: the file, for error messages.

    >>> list(field_of_lines(['{"a": {"b": "one"}}', "", '{"a": [{"b": "two"}, {"b": "three"}]}'], "a.b", "here"))
    ['one', 'two', 'three']

    Raises:
        UsageError: a line is not a JSON object, or has no such string; names the line.
    """
    for number, line in enumerate(lines, 1):
        line = line.removeprefix("\ufeff")  # of each file, where several were put together
        if line.strip():
            place = _("{where}: line {number}", where=where, number=str(number))
            yield from _at(_parsed(line, place, whole_file=number == 1), field, place)


def text_fields(line: str) -> list[str]:
    """The keys of a JSON object under which there is a string, longest string first; empty if it is no object.

    >>> text_fields('{"id": "7", "text": "one more", "meta": {"by": "me"}}')
    ['text', 'meta.by', 'id']
    """
    try:
        record = _parsed(line, "")
    except UsageError:
        return []
    strings = dict(_strings(record))
    return sorted(strings, key=lambda key: -len(strings[key]))[:_MOST_NAMED]


def _strings(record: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for key, held in record.items():
        value = held[0] if isinstance(held, list) and held else held
        if isinstance(value, str):
            yield path + key, value
        elif isinstance(value, dict) and not path:
            yield from _strings(cast("dict[str, Any]", value), f"{key}.")


def _parsed(line: str, place: str, *, whole_file: bool = False) -> dict[str, Any]:
    advice = _("; each line must be one JSON object")
    if whole_file and line.lstrip()[:1] in ("[", "{"):
        advice += _(" (a JSON file of another form becomes one by jq -c '.[]' FILE > FILE.jsonl)")
    try:
        # No number is needed; as integers they may have too many digits.
        record = json.loads(line, object_pairs_hook=_object, parse_int=float)
    except json.JSONDecodeError as error:
        raise UsageError(
            "{place}: not JSON ({error} at character {column}){advice}",
            place=place,
            error=error.msg,
            column=error.colno,
            advice=advice,
        ) from None
    except RecursionError:
        raise UsageError("{place}: nested too deeply{advice}", place=place, advice=advice) from None
    if not isinstance(record, dict):
        raise UsageError("{place}: {kind}, not an object{advice}", place=place, kind=_kind(record), advice=advice)
    return cast("dict[str, Any]", record)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) == len(pairs):
        return record
    doubled, seen = _Doubled(record), set[str]()
    doubled.keys_given_twice = frozenset(key for key, _ in pairs if key in seen or seen.add(key))
    return doubled


def _at(value: Any, rest: str, place: str, path: str = "") -> Iterator[str]:
    """The strings at a field, `path` and the `rest` of it; of a list, those of each item."""
    if rest:
        if not isinstance(value, dict):
            raise UsageError(
                "{place}: {path} is {kind}, so it has no key {key}",
                place=place,
                path=shown(path),
                kind=_kind(value),
                key=shown(rest),
            )
        table = cast("dict[str, Any]", value)
        key, _dot, rest = (rest, "", "") if rest in table else rest.partition(".")
        path = f"{path}.{key}" if path else key
        if key not in table:
            raise UsageError(
                "{place}: no key {path}; {hint}", place=place, path=shown(path), hint=_suggestion(key, table)
            )
        if key in getattr(table, "keys_given_twice", ()):
            raise UsageError("{place}: the key {path} is there twice; keep one", place=place, path=shown(path))
        found = table[key]
        for item in found if isinstance(found, list) else [found]:
            yield from _at(item, rest, place, path)
        return
    if not isinstance(value, str):
        inside = dict(_strings(cast("dict[str, Any]", value))) if isinstance(value, dict) else {}
        texts = ", ".join(shown(f"{path}.{key}") for key in list(inside)[:_MOST_NAMED])
        raise UsageError(
            "{place}: {field} is {kind}, not a string{texts}",
            place=place,
            field=shown(path),
            kind=_kind(value),
            texts=_("; texts: {names}", names=texts) if texts else "",
        )
    if not is_utf8(value):
        raise UsageError(
            "{place}: {field} contains half of a surrogate pair (\\ud800 to \\udfff); repair it",
            place=place,
            field=shown(path),
        )
    yield value


def _suggestion(key: str, table: Mapping[str, Any]) -> str:
    known = sorted(table)[:_MOST_COMPARED]
    if not known:
        return _("the object is empty")
    listed = ", ".join(shown(name) for name in known[:_MOST_KEYS]) + (", …" if len(known) > _MOST_KEYS else "")
    keys = _("the keys are {names}", names=listed)
    hint = closest(key, known)
    return f"{hint} {keys}" if hint else keys


def _kind(value: Any) -> str:
    return "null" if value is None else _(_KINDS[dict if isinstance(value, dict) else type(value)])
