"""A student's sheet: the student's numbers on the given numbers of the key, and the given numbers that were changed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

import torch

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.explanation.examples.author_claims import AuthorClaims, part_of
from vitral.explanation.examples.document import Document
from vitral.explanation.examples.example import Example
from vitral.explanation.examples.given import Given, Keys, file_entries
from vitral.explanation.examples.places import KeyPath
from vitral.explanation.examples.schema import NotNumbers, numbers
from vitral.explanation.grading.key import AnswerKey

Entry = tuple[str, Keys, Any]
"""The quantity that a key of a student's file stands for, the key, and the numbers."""


@dataclass(frozen=True)
class AnsweredDocument(Document):
    """The student's claims with the settings and the given numbers of the key.

    Attributes:
        student: the student's document; places and typed numbers are its.
        key: the key's document.
        claimed: the student's claims that are kept.
        moved: those that the student's file has under [given].
    """

    student: Document
    key: Document
    claimed: Mapping[str, Any]
    moved: frozenset[Keys] = frozenset()

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
        return {**self.key.data, "claimed": dict(self.claimed)}

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
        unreadable: a complaint for each number, row or claim that cannot be read.
        edited: the given numbers and settings that differ from the key's, one sentence each.
        unasked: names of claims for which the key does not ask.
    """

    example: Example
    unreadable: tuple[str, ...]
    edited: tuple[str, ...]
    unasked: tuple[str, ...] = ()


def read_answers(student: Document, key: AnswerKey) -> Answers:
    """Read the student's numbers for the quantities that the key asks for, on the key's given numbers.

    Other claims are left out: they would explain later numbers without any credit of their own at stake. What cannot
    be read is an empty box. In notes without headings the first matrix seems given, although the key asks for it.

    Raises:
        UsageError: the file is not a sheet of this kind at all.
    """
    claimed, given = student.data.get("claimed", {}), student.data.get("given", {})
    if not isinstance(claimed, dict):
        raise student.refuse(_("claimed: expected a table of the numbers, [claimed]"), "claimed")
    theirs = list(_entries(key, claimed))
    known = {quantity for quantity, _keys, _value in theirs} | set(key.given_by_quantity)
    under_given = list(_entries(key, given if isinstance(given, dict) else {}))
    moved = [entry for entry in under_given if entry[0] in key.labels and entry[0] not in known]
    asked = [*moved, *(entry for entry in theirs if entry[0] in key.labels)]
    document = AnsweredDocument(
        student,
        key.example.document,
        nested((keys, value) for _quantity, keys, value in asked),
        frozenset(keys for _quantity, keys, _value in moved),
    )
    unreadable: list[str] = []
    claims = {
        claim.name: replace(claim, values=torch.where(key.asked[claim.name], claim.values, torch.nan))
        for claim in AuthorClaims(Given(document), key.example.sheet, {}, complain=unreadable.append).all()
    }
    example = replace(
        key.example,
        path=None,
        document=document,
        claims=tuple(claims[name] for name in key.labels if name in claims),
        decimals=key.decimals,
        states_decimals=True,
    )
    others = [entry for entry in theirs if entry[0] not in key.labels]
    unasked = tuple(".".join(keys) for quantity, keys, _value in others if quantity not in key.given_by_quantity)
    edited = [] if isinstance(given, dict) else [_("[given] is no table of numbers")]
    edited += [*_settings(student, key), *_edited(key, [*under_given, *others])]
    return Answers(example, tuple(unreadable), tuple(edited), unasked)


def _entries(key: AnswerKey, table: Mapping[str, Any]) -> Iterator[Entry]:
    for keys, value in file_entries(table):
        part = None if "rows" in key.example.sheet.values else part_of(keys)
        yield key.quantity(".".join(keys) if part is None else part.name), keys, value


def _settings(student: Document, key: AnswerKey) -> Iterator[str]:
    """The settings that are not the key's; those that are missing change nothing."""
    for name, expected in key.settings.items():
        found = student.data.get(name, expected)
        if found != expected:
            told = {"found": _brief(found), "expected": _brief(expected)}
            yield _("{name} is {found}, in the key {expected}", name=name, **told)


def _edited(key: AnswerKey, entries: Iterable[Entry]) -> Iterator[str]:
    """The given numbers that are not the key's."""
    for quantity, keys, value in entries:
        if quantity not in key.given_by_quantity or quantity in key.labels:
            continue
        expected = key.given_by_quantity[quantity][1]
        if value != expected and not _is_same(key, quantity, value):
            yield _first_difference(".".join(keys), value, expected)


def _is_same(key: AnswerKey, quantity: str, value: Any) -> bool:
    """Whether the numbers are those of the key in another form."""
    sheet = key.example.sheet
    try:
        found = torch.tensor(numbers(value, quantity, may_be_unknown=False), dtype=torch.float64)
    except NotNumbers:
        return False
    return torch.equal(found.flatten(), sheet.conventions.seen(quantity, sheet.values[quantity]).flatten())


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
    """The keys that a sheet may belong to: those with its title, else those whose file name begins that of the sheet.

    A single key is that of every sheet.
    """
    if len(keys) == 1:
        return list(keys)
    title, name = student.data.get("title"), student.name.casefold()
    titled = [key for key in keys if title is not None and key.example.document.data.get("title") == title]
    return titled or [key for key in keys if _stem(key) in name]


def _stem(key: AnswerKey) -> str:
    """The name of the exercise in that of its file: attention-7 of attention-7-key.toml."""
    return PurePath(key.example.document.name).stem.casefold().removesuffix("-key").removesuffix("-gabarito")
