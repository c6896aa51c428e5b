"""A student's sheet: the student's numbers on the given numbers of the key, and the given numbers that were changed."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.explanation.examples.claims import part_of
from vitral.explanation.examples.document import Document
from vitral.explanation.examples.example import AuthorClaim, Example
from vitral.explanation.examples.file import read_example
from vitral.explanation.examples.given import Keys, file_entries
from vitral.explanation.examples.places import KeyPath
from vitral.explanation.grading.key import AnswerKey

PLAIN = 1e9
"""Smaller numbers are read anywhere; larger ones, and those that are not finite, are tried."""


@dataclass(frozen=True)
class AnsweredDocument(Document):
    """The student's claims with the settings and the given numbers of the key.

    Attributes:
        student: the student's document; places and typed numbers are its.
        key: the key's document.
        claimed: the student's claims that are kept.
        moved: those that the student's file has under [given].
        given: other given numbers than the key's; None for these.
    """

    student: Document
    key: Document
    claimed: Mapping[str, Any]
    moved: frozenset[Keys] = frozenset()
    given: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of the student's file."""
        return self.student.name

    @property
    def text(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of the student's file."""
        return self.student.text

    @property
    def data(self) -> dict[str, Any]:
        """The key's data with the student's claims."""
        given = self.key.data["given"] if self.given is None else dict(self.given)
        return {**self.key.data, "given": given, "claimed": dict(self.claimed)}

    def refuse(self, complaint: str, *path: str | int) -> UsageError:
        """The error, with its place in the student's file."""
        return self.student.refuse(complaint, *self._in_file(path))

    def typed(self, path: KeyPath) -> str | None:
        """The characters in the student's file, and in the key for what is given."""
        return self.student.typed(self._in_file(path)) if path[:1] == ("claimed",) else self.key.typed(path)

    def rewritten(self, changes: Mapping[KeyPath, str]) -> bytes:
        """The student's file with other values."""
        return self.student.rewritten({self._in_file(path): value for path, value in changes.items()})

    def _in_file(self, path: KeyPath) -> KeyPath:
        is_moved = any(path[1 : 1 + len(keys)] == keys for keys in self.moved)
        return ("given", *path[1:]) if path[:1] == ("claimed",) and is_moved else path


@dataclass(frozen=True)
class Answers:
    """A student's sheet, read with the key.

    Attributes:
        example: the student's claims on the key's computation.
        unreadable: the complaints about claims that cannot be read, by quantity.
        edited: the given numbers and settings that differ from the key's, one sentence each.
        unasked: names of claims for which the key does not ask.
    """

    example: Example
    unreadable: Mapping[str, tuple[str, ...]]
    edited: tuple[str, ...]
    unasked: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Entry:
    """One claim of the student's file: the quantity, the keys and the numbers."""

    quantity: str
    keys: Keys
    value: Any
    is_part: bool = False
    is_moved: bool = False


def read_answers(student: Document, key: AnswerKey) -> Answers:
    """Read the student's numbers for the quantities that the key asks for, on the key's given numbers.

    Other claims are left out: they would explain later numbers without any credit of their own at stake.

    Raises:
        UsageError: the file is not a sheet of this kind at all.
    """
    entries = list(_claimed(student, key))
    asked = [entry for entry in entries if entry.quantity in key.labels]
    unasked = [
        ".".join(entry.keys)
        for entry in entries
        if entry.quantity not in key.labels and entry.quantity not in key.given_by_quantity
    ]
    claims, unreadable = _read(student, key, asked)
    example = replace(
        key.example,
        path=None,
        document=_document(student, key, asked),
        claims=tuple(claims[name] for name in key.labels if name in claims),
        decimals=key.decimals,
        states_decimals=True,
    )
    return Answers(example, unreadable, tuple(_edited(student, key, entries)), tuple(unasked))


def _claimed(student: Document, key: AnswerKey) -> Iterator[_Entry]:
    """The student's claims: those under [claimed], and numbers that are asked wherever they stand.

    In notes without headings the first matrix seems given, although the key asks for it.

    Raises:
        UsageError: [claimed] is no table.
    """
    claimed, given = student.data.get("claimed", {}), student.data.get("given", {})
    if not isinstance(claimed, dict):
        raise student.refuse(_("claimed: expected a table of the numbers, [claimed]"), "claimed")
    found = [_entry(key, keys, value) for keys, value in file_entries(claimed)]
    if isinstance(given, dict):
        known = {entry.quantity for entry in found} | set(key.given_by_quantity)
        for keys, value in file_entries(given):
            entry = replace(_entry(key, keys, value), is_moved=True)
            if entry.quantity in key.labels and entry.quantity not in known:
                yield entry
    yield from found


def _entry(key: AnswerKey, keys: Keys, value: Any) -> _Entry:
    part = None if "rows" in key.example.sheet.values else part_of(keys, value)
    return _Entry(key.quantity(".".join(keys) if part is None else part.name), keys, value, part is not None)


def _document(student: Document, key: AnswerKey, entries: Sequence[_Entry]) -> AnsweredDocument:
    claimed = nested((entry.keys, entry.value) for entry in entries)
    moved = frozenset(entry.keys for entry in entries if entry.is_moved)
    return AnsweredDocument(student, key.example.document, claimed, moved)


def _claims(student: Document, key: AnswerKey, entries: Sequence[_Entry]) -> dict[str, AuthorClaim]:
    """The claims on asked cells, by quantity.

    Raises:
        UsageError: one cannot be read.
    """
    read = read_example(_document(student, key, entries), key.find_model).claims
    return {
        claim.name: replace(claim, values=torch.where(key.asked[claim.name], claim.values, math.nan))
        for claim in read
        if claim.name in key.asked
    }


def _read(
    student: Document, key: AnswerKey, entries: Sequence[_Entry]
) -> tuple[dict[str, AuthorClaim], dict[str, tuple[str, ...]]]:
    """The claims, and the complaints about those that cannot be read; one by one if they cannot be read together."""
    try:
        return _claims(student, key, entries), {}
    except UsageError:
        pass
    found: dict[str, AuthorClaim] = {}
    unreadable: dict[str, tuple[str, ...]] = {}
    for entry in entries:
        complaint = ""
        try:
            claims = _claims(student, key, [entry])
        except UsageError as error:
            complaint = str(error)
            claims = _without_faults(student, key, entry)
        for name, claim in claims.items():
            before = found.get(name)
            if before is not None and bool((~before.values.isnan() & ~claim.values.isnan()).any()):
                told = _("{name}: is claimed twice", name=".".join(entry.keys))
                complaint = str(student.refuse(told, "given" if entry.is_moved else "claimed", *entry.keys))
            else:
                found[name] = claim if before is None else _together(before, claim)
        if complaint:
            unreadable[entry.quantity] = (*unreadable.get(entry.quantity, ()), complaint)
    return found, unreadable


def _together(one: AuthorClaim, other: AuthorClaim) -> AuthorClaim:
    """Two claims on different cells of a quantity as one."""
    paths = {
        tuple(place): claim.path(tuple(place))
        for claim in (one, other)
        for place in (~claim.values.isnan()).nonzero().tolist()
    }
    return replace(one, values=torch.where(one.values.isnan(), other.values, one.values), paths=paths)


def _without_faults(student: Document, key: AnswerKey, entry: _Entry) -> dict[str, AuthorClaim]:
    """The claim with "?" for each cell and each row that cannot be read; nothing if it cannot be read even so."""

    def read(value: Any) -> dict[str, AuthorClaim]:
        try:
            return _claims(student, key, [replace(entry, value=value)])
        except UsageError:
            return {}

    def kept(part: Any, place: KeyPath = ()) -> Any:
        if isinstance(part, list):
            return [kept(inner, (*place, index)) for index, inner in enumerate(part)]
        is_plain = isinstance(part, int | float) and not isinstance(part, bool) and abs(part) < PLAIN
        return part if is_plain or part == "?" or read(_alone(value, place)) else "?"

    value = entry.value
    if not isinstance(value, list):
        return {}
    if not entry.is_part:
        value = _in_shape(value, _shape(key, entry.quantity, value))
    elif _size(value) > key.asked[entry.quantity].numel():
        return {}
    return read(kept(value)) if read(_alone(value, None)) else {}


def _shape(key: AnswerKey, name: str, value: list[Any]) -> tuple[int, ...]:
    """The shape of a quantity in a file, with as many axes as the student's list."""
    sheet, depth, part = key.example.sheet, 0, value
    while isinstance(part, list):
        depth, part = depth + 1, next((inner for inner in part if isinstance(inner, list)), None)
    shape = tuple(sheet.conventions.seen(name, sheet.values[name]).shape)
    while len(shape) > depth and shape[0] == 1:
        shape = shape[1:]
    return shape if len(shape) >= depth else (1,) * (depth - len(shape)) + shape


def _in_shape(value: Any, shape: tuple[int, ...]) -> Any:
    """A list with "?" for rows of another length, and at the end for rows or heads that are missing."""
    if not shape:
        return "?" if isinstance(value, list) else value
    blank = "?"
    for size in reversed(shape[1:]):
        blank = [blank] * size
    if not isinstance(value, list) or len(value) > shape[0] or (len(shape) == 1 and len(value) != shape[0]):
        return [blank] * shape[0]
    return [*(_in_shape(part, shape[1:]) for part in value), *[blank] * (shape[0] - len(value))]


def _size(value: Any) -> int:
    """The numbers of a list, those of its lists included."""
    return sum(map(_size, value)) if isinstance(value, list) else 1


def _alone(value: Any, place: KeyPath | None) -> Any:
    """The claim with "?" in all cells but the one at a place."""
    if not isinstance(value, list):
        return value if place == () else "?"
    return [_alone(part, place[1:] if place and place[0] == index else None) for index, part in enumerate(value)]


def _edited(student: Document, key: AnswerKey, claimed: Sequence[_Entry]) -> Iterator[str]:
    """The settings and given numbers that are not the key's; those that are missing change nothing."""
    data = student.data
    for name in key.settings:
        if name in data and data[name] != key.settings[name]:
            found, expected = _brief(data[name]), _brief(key.settings[name])
            yield _("{name} is {found}, in the key {expected}", name=name, found=found, expected=expected)
    given = data.get("given", {})
    if not isinstance(given, dict):
        yield _("[given] is no table of numbers")
        given = {}
    entries = [*(_entry(key, keys, value) for keys, value in file_entries(given)), *claimed]
    for entry in entries:
        if entry.quantity not in key.given_by_quantity or entry.quantity in key.labels:
            continue
        keys, expected = key.given_by_quantity[entry.quantity]
        if entry.value != expected and not _is_given(student, key, entry, keys):
            yield _first_difference(".".join(entry.keys), entry.value, expected)


def _is_given(student: Document, key: AnswerKey, entry: _Entry, keys: Keys) -> bool:
    """Whether the numbers are those of the key in another form."""
    given = {**{name: value for name, value in file_entries(key.given) if name != keys}, keys: entry.value}
    try:
        if entry.is_part:
            claim = read_example(_document(student, key, [entry]), key.find_model).claims[0]
            same = claim.values == key.example.sheet.values[entry.quantity]
            return bool((same | claim.values.isnan()).all())
        document = AnsweredDocument(student, key.example.document, {}, given=nested(given.items()))
        values = read_example(document, key.find_model).sheet.values
        return torch.equal(values[entry.quantity], key.example.sheet.values[entry.quantity])
    except (UsageError, KeyError, IndexError):
        return False


def _first_difference(name: str, found: Any, expected: Any) -> str:
    """The first cell that differs, or the whole where the shapes do."""
    place: list[int] = []
    while isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        index = next((i for i, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1]), None)
        if index is None:
            break
        place.append(index + 1)
        found, expected = found[index], expected[index]
    cell = f"{name}[{','.join(map(str, place))}]" if place else name
    return _("{name} is {found}, in the key {expected}", name=cell, found=_brief(found), expected=_brief(expected))


def _brief(value: Any, most: int = 40) -> str:
    told = str(value)
    return told if len(told) <= most else told[: most - 1] + "…"


def nested(entries: Iterable[tuple[Keys, Any]]) -> dict[str, Any]:
    """The table of a file from its keys and values; the reverse of `file_entries`."""
    made: dict[str, Any] = {}
    for keys, value in entries:
        if len(keys) == 1:
            made[keys[0]] = value
        else:
            made.setdefault(keys[0], {})[keys[1]] = value
    return made


def agreement(student: Document, keys: Sequence[AnswerKey]) -> list[AnswerKey]:
    """The keys that fit a student's sheet best: one, or none, or several that fit equally well.

    A single key is that of every sheet. Otherwise it is the key with the sheet's title, the one with most of its given
    numbers, the only one that asks for most of its quantities, or the only one whose title stands in the sheet.
    """
    if len(keys) == 1:
        return list(keys)
    title = student.data.get("title")
    titled = [key for key in keys if title is not None and key.example.document.data.get("title") == title]
    fitting = titled or list(keys)
    if len(fitting) == 1:
        return fitting
    counts: tuple[tuple[Callable[[AnswerKey], float], float], ...] = (
        (lambda key: _alike(student, key), LEAST_ALIKE),
        (lambda key: _written(student, key), 1),
        (lambda key: key.title in student.text, 1),
    )
    fits = bool(titled)
    for count, least in counts:
        found = [float(count(key)) for key in fitting]
        if max(found) >= least:
            fits, fitting = True, [key for key, value in zip(fitting, found, strict=True) if value == max(found)]
    return fitting if fits else []


def _alike(student: Document, key: AnswerKey) -> float:
    """The share of the key's given quantities that the sheet has."""
    given = student.data.get("given")
    if not isinstance(given, dict) or not key.given_by_quantity:
        return 0.0
    values = {key.quantity(".".join(keys)): value for keys, value in file_entries(given)}
    same = sum(values.get(name) == value for name, (_keys, value) in key.given_by_quantity.items())
    return same / len(key.given_by_quantity)


def _written(student: Document, key: AnswerKey) -> int:
    """The number of asked quantities that the sheet has."""
    return len({entry.quantity for entry in _claimed(student, key)} & set(key.labels))


LEAST_ALIKE = 0.5
"""Share of the given quantities that a sheet has in common with its key, where no key has its title."""
