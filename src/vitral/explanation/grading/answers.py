"""A key, and a student's sheet: the student's numbers on the given numbers of the key, and those that were changed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath
from typing import Any

import torch
from torch import Tensor

from vitral.core.config import shown
from vitral.core.errors import UsageError, reason
from vitral.core.language import _
from vitral.explanation.checks.checker import check
from vitral.explanation.checks.report import CheckReport
from vitral.explanation.examples.claims import AuthorClaims, part_of
from vitral.explanation.examples.document import Document
from vitral.explanation.examples.example import AuthorClaim, Example
from vitral.explanation.examples.faults import Fault, KeyPath, label_of
from vitral.explanation.examples.numerals import most_decimals
from vitral.explanation.examples.reader import Reader
from vitral.explanation.examples.schema import cells, number, shape_of

NOT_GIVEN = ("title", "source", "note", "decimals", "given", "claimed")
"""Keys at the top of a file that do not change the computation."""
DECIMALS = 2
"""Decimals of a key that neither states nor shows them, as of exercises."""


@dataclass(frozen=True, eq=False)
class AnswerKey:
    """The key of one exercise.

    Attributes:
        example: the key as a worked example, or the exercise with its question marks.
    """

    example: Example

    def __post_init__(self) -> None:
        """Refuse a key that asks for nothing.

        Raises:
            UsageError: it claims nothing.
        """
        if not self.example.claims:
            raise UsageError(
                "{key}: asks for nothing; under [claimed] a key has the numbers, or question marks",
                key=self.example.document.name,
            )

    @property
    def title(self) -> str:
        """Of the exercise."""
        return self.example.title

    @cached_property
    def asked(self) -> dict[str, Tensor]:
        """The cells that are asked, by quantity: those with a number; all of them where the key has none."""
        return {claim.name: _asked(claim) for claim in self.example.claims}

    @cached_property
    def labels(self) -> dict[str, str]:
        """The name of each asked quantity in the file, in the order of the computation."""
        return {claim.name: claim.label for claim in self.example.claims}

    @property
    def has_numbers(self) -> bool:
        """Whether it has answers, and not question marks alone."""
        return any(not bool(claim.values.isnan().all()) for claim in self.example.claims)

    @cached_property
    def report(self) -> CheckReport:
        """The check of the key's own numbers."""
        return check(self.example)

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """The keys at the top that change the computation."""
        data = self.example.document.data
        return {name: value for name, value in data.items() if name not in NOT_GIVEN}

    @cached_property
    def reader(self) -> Reader:
        """Names and conventions of the key."""
        return Reader(self.example.document)

    @cached_property
    def given(self) -> Mapping[str, Any]:
        """The numbers of each given quantity as written."""
        return {self.quantity(label): value for label, value in self.example.document.data["given"].items()}

    @cached_property
    def decimals(self) -> int:
        """The decimals that the key asks for: those it states, else the most in its claims."""
        if self.example.states_decimals:
            return self.example.decimals
        document = self.example.document
        typed = (document.typed(path) for claim in self.example.claims for path in claim.paths.values())
        return most_decimals(typed) or DECIMALS

    def quantity(self, label: str) -> str:
        """The quantity of this computation for which a name stands; the name itself if there is none."""
        return label if label in self.example.sheet.values else self.reader.name(label)

    def is_same(self, other: "AnswerKey") -> bool:
        """Whether another key has the same given numbers and settings, and asks for the same numbers."""
        return (
            self.settings == other.settings
            and self.given == other.given
            and list(self.labels) == list(other.labels)
            and all(bool((self.asked[name] == other.asked[name]).all()) for name in self.labels)
        )


def _asked(claim: AuthorClaim) -> Tensor:
    known = ~claim.values.isnan()
    return known if bool(known.any()) else ~known


def read_answers(student: Document, key: AnswerKey) -> tuple[Example, dict[str, tuple[str, ...]]]:
    """Read the student's numbers for the quantities that the key asks for, on the key's given numbers.

    Other claims are left out: they would explain later numbers without any credit of their own at stake. What cannot
    be read is an empty box. In notes without headings the first matrix seems given, although the key asks for it.

    Returns:
        The student's claims on the key's computation; and as in `SheetGrade`, the sentences about what is edited and
        unreadable, and the names that are unasked.

    Raises:
        UsageError: the file is not a sheet of this kind at all.
    """
    claimed, given = student.data.get("claimed", {}), student.data.get("given", {})
    if not isinstance(claimed, dict):
        raise student.refuse(_("claimed: expected a table of the numbers, [claimed]"), "claimed")
    claims = list(_named(key, "claimed", claimed))
    known = {quantity for quantity, _path, _value in claims} | set(key.given)
    under_given = list(_named(key, "given", given if isinstance(given, dict) else {}))
    moved = [entry for entry in under_given if entry[0] not in known]
    asked = [(path, value) for quantity, path, value in [*moved, *claims] if quantity in key.labels]
    reader = copy(key.reader)
    reader.document, reader.moved = student, {}
    faults: list[Fault] = []
    answers = {
        claim.name: replace(claim, values=torch.where(key.asked[claim.name], claim.values, torch.nan))
        for claim in AuthorClaims(reader, key.example.sheet, {}, complain=faults.append).read(asked)
    }
    example = replace(
        key.example,
        path=None,
        document=student,
        claims=tuple(answers[name] for name in key.labels if name in answers),
        decimals=key.decimals,
        states_decimals=True,
    )
    others = [entry for entry in claims if entry[0] not in key.labels]
    unasked = tuple(label_of(path) for quantity, path, _value in others if quantity not in key.given)
    edited = [] if isinstance(given, dict) else [_("[given] is no table of numbers")]
    edited += [*_settings(student, key), *_edited(key, [*under_given, *others])]
    unreadable = (*student.faults, *(reason(reader.refuse(fault)) for fault in faults))
    return example, {"edited": tuple(edited), "unreadable": unreadable, "unasked": unasked}


def _named(key: AnswerKey, section: str, table: Mapping[str, Any]) -> Iterator[tuple[str, KeyPath, Any]]:
    """The quantity of the key for which the name of each entry stands, its path in the file, and its numbers."""
    return ((key.quantity(part_of(label)[0]), (section, label), value) for label, value in table.items())


def _settings(student: Document, key: AnswerKey) -> Iterator[str]:
    """The settings that are not the key's; those that are missing change nothing."""
    for name, expected in key.settings.items():
        if (value := student.data.get(name, expected)) != expected:
            yield _differs(name, value, expected)


def _edited(key: AnswerKey, entries: Iterable[tuple[str, KeyPath, Any]]) -> Iterator[str]:
    """The given numbers that are not the key's."""
    for quantity, path, value in entries:
        if quantity in key.given and quantity not in key.labels:
            expected = key.given[quantity]
            if value != expected and not _is_same(key, quantity, value):
                yield _differs(label_of(path), value, expected)


def _cells(value: Any) -> list[tuple[KeyPath, Any]]:
    return list(cells(value, shape_of(value), (), lambda *_: None))


def _is_same(key: AnswerKey, quantity: str, value: Any) -> bool:
    """Whether the numbers are those of the key in another form."""
    sheet = key.example.sheet
    try:
        numbers = [number(cell, (quantity,)) for _, cell in _cells(value)]
    except UsageError:
        return False
    return numbers == sheet.conventions.seen(quantity, sheet.values[quantity]).flatten().tolist()


def _differs(name: str, value: Any, expected: Any) -> str:
    """The first cell that differs, or the whole where the shapes do."""
    if shape_of(value) == shape_of(expected):
        pairs = zip(_cells(value), _cells(expected), strict=True)
        path, value, expected = next((*cell, wanted) for cell, (_, wanted) in pairs if cell[1] != wanted)
        name += f"[{','.join(str(int(key) + 1) if str(key).isdecimal() else str(key) for key in path)}]" if path else ""
    values = {"found": shown(value).strip("'"), "expected": shown(expected).strip("'")}
    return _("{name} is {found}, in the key {expected}", name=name, **values)


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
