"""A student's sheet: the student's numbers on the given numbers of the key, and the given numbers that were changed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.explanation.examples.document import Document
from vitral.explanation.examples.example import Example
from vitral.explanation.examples.file import read_example
from vitral.explanation.examples.places import KeyPath
from vitral.explanation.grading.key import AnswerKey


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
    moved: frozenset[str] = frozenset()

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
        return ("given", *path[1:]) if len(path) > 1 and path[1] in self.moved else path


@dataclass(frozen=True)
class Answers:
    """A student's sheet, read with the key.

    Attributes:
        example: the student's claims on the key's computation.
        unreadable: for claims that cannot be read, the complaint by the claim's name in the file.
        edited: the given numbers and settings that differ from the key's, one sentence each.
    """

    example: Example
    unreadable: Mapping[str, str]
    edited: tuple[str, ...]


def read_answers(student: Document, key: AnswerKey) -> Answers:
    """Read a student's sheet with the given numbers of the key.

    Raises:
        UsageError: the file is not a sheet of this kind at all.
    """
    claimed = _claimed(student, key)
    edited = tuple(_edited(student, key))
    try:
        return Answers(_example(student, key, claimed), {}, edited)
    except UsageError:
        unreadable = dict(_unreadable(student, key, claimed))
    twice = dict(_twice(student, key, {name: claimed[name] for name in claimed if name not in unreadable}))
    readable: dict[str, Any] = {}
    for name in [name for name in claimed if name not in twice]:
        value = claimed[name]
        kept = value if name not in unreadable else _without_faults(student, key, name, value)
        readable |= {} if kept is None else {name: kept}
    unreadable |= twice
    return Answers(_example(student, key, readable), unreadable, edited)


def _claimed(student: Document, key: AnswerKey) -> dict[str, Any]:
    """The student's claims: what stands under [claimed], and what is asked wherever it stands.

    In notes without headings the first matrix seems given, although the key asks for it.

    Raises:
        UsageError: [claimed] is no table.
    """
    claimed, given = student.data.get("claimed", {}), student.data.get("given", {})
    if not isinstance(claimed, dict):
        raise student.refuse(_("claimed: expected a table of the numbers, [claimed]"), "claimed")
    asked = [name for name in key.labels.values() if isinstance(given, dict) and name in given and name not in claimed]
    return {**{name: given[name] for name in asked if name not in key.given}, **claimed}


def _example(student: Document, key: AnswerKey, claimed: Mapping[str, Any]) -> Example:
    in_file = student.data.get("claimed", {})
    document = AnsweredDocument(student, key.example.document, claimed, frozenset(set(claimed) - set(in_file)))
    read = read_example(document, key.find_model)
    return replace(read, title=key.title)


def _unreadable(student: Document, key: AnswerKey, claimed: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each claim that cannot be read although all others are left out."""
    for name, value in claimed.items():
        try:
            _example(student, key, {name: value})
        except UsageError as error:
            yield name, str(error)


def _twice(student: Document, key: AnswerKey, claimed: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The second of two claims on one quantity."""
    seen: set[str] = set()
    for name, value in claimed.items():
        names = {claim.name for claim in _example(student, key, {name: value}).claims}
        if names & seen:
            complaint = _("{name}: is claimed twice, by two names", name=name)
            yield name, str(student.refuse(complaint, "claimed", name))
        seen |= names


def _without_faults(student: Document, key: AnswerKey, name: str, value: Any) -> Any:
    """A claim with "?" for each cell that is no number; None if it cannot be read even so."""

    def reads(claim: Any) -> bool:
        try:
            return bool(_example(student, key, {name: claim}).claims)
        except UsageError:
            return False

    def kept(part: Any, place: KeyPath = ()) -> Any:
        if isinstance(part, list):
            return [kept(inner, (*place, index)) for index, inner in enumerate(part)]
        is_number = isinstance(part, int | float) and not isinstance(part, bool)
        return part if is_number or reads(_alone(value, place)) else "?"

    if not isinstance(value, list) or not reads(_alone(value, None)):
        return None
    mended = kept(value)
    return mended if reads(mended) else None


def _alone(value: Any, place: KeyPath | None) -> Any:
    """The claim with "?" in all cells but the one at a place."""
    if not isinstance(value, list):
        return value if place == () else "?"
    return [_alone(part, place[1:] if place and place[0] == index else None) for index, part in enumerate(value)]


def _edited(student: Document, key: AnswerKey) -> Iterator[str]:
    """The settings and given numbers that are not the key's; those that are missing change nothing."""
    data = student.data
    for name in key.settings:
        if name in key.settings and name in data and data[name] != key.settings[name]:
            found, expected = _brief(data[name]), _brief(key.settings[name])
            yield _("{name} is {found}, in the key {expected}", name=name, found=found, expected=expected)
    given = data.get("given", {})
    if given == key.given:
        return
    if not isinstance(given, dict):
        yield _("[given] is no table of numbers")
        return
    differing = [name for name in key.given if name in given and given[name] != key.given[name]]
    values = _values_of(student, key) if differing else {}
    for name in differing:
        if name in values and torch.equal(values[name], key.example.sheet.values[name]):
            continue
        yield _first_difference(name, given[name], key.given[name])


def _values_of(student: Document, key: AnswerKey) -> Mapping[str, Any]:
    """The student's given numbers by the names of quantities; empty if they cannot be read."""
    try:
        document = AnsweredDocument(key.example.document, student, {})
        return read_example(document, key.find_model).sheet.values
    except UsageError:
        return {}


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


def agreement(student: Document, keys: Sequence[AnswerKey]) -> AnswerKey | None:
    """The key of a student's sheet; None if it belongs to none.

    A single key is that of every sheet. Otherwise it is the key with the sheet's title, the one whose title stands in
    the sheet, the one with most of its given numbers, or the only one that asks for most of its quantities.
    """
    if len(keys) == 1:
        return keys[0]
    data = student.data
    titled = [key for key in keys if key.example.document.data.get("title") == data.get("title")]
    titled = titled or [key for key in keys if key.title in student.text]
    if len(titled) == 1:
        return titled[0]
    given = data.get("given")
    given = given if isinstance(given, dict) else {}
    alike: list[float] = [
        sum(given.get(name) == value for name, value in key.given.items()) / len(key.given) for key in keys
    ]
    written: list[float] = [len(set(key.labels.values()) & set(_claimed(student, key))) for key in keys]
    for counts, least in ((alike, LEAST_ALIKE), (written, 1)):
        best = max(counts)
        if best >= least and counts.count(best) == 1:
            return keys[counts.index(best)]
    return None


LEAST_ALIKE = 0.5
"""Share of the given quantities that a sheet has in common with its key, where no key has its title."""
