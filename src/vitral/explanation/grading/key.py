"""A key: the given numbers of an exercise, and the quantities that are asked."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from vitral.core.errors import UsageError
from vitral.explanation.checks.checker import check
from vitral.explanation.checks.report import CheckReport
from vitral.explanation.examples.example import AuthorClaim, Example
from vitral.explanation.examples.given import Given, Keys, entries, label_of
from vitral.explanation.examples.numerals import most_decimals

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
    def reader(self) -> Given:
        """Names and conventions of the key."""
        return Given(self.example.document)

    @cached_property
    def given(self) -> Mapping[str, tuple[Keys, Any]]:
        """The path in the file, and the numbers as written, of each given quantity."""
        table = self.example.document.data["given"]
        return {self.quantity(label_of(path)): (path, value) for path, value in entries("given", table)}

    @cached_property
    def decimals(self) -> int:
        """The decimals that the key asks for: those it states, else the most in its claims."""
        if self.example.states_decimals:
            return self.example.decimals
        document = self.example.document
        typed = (document.typed(path) for claim in self.example.claims for path in claim.paths.values())
        return self.example.decimals if most_decimals(typed) else DECIMALS

    def quantity(self, label: str) -> str:
        """The quantity of this computation for which a name stands; the name itself if there is none."""
        return label if label in self.example.sheet.values else self.reader.name(label)

    def is_same(self, other: "AnswerKey") -> bool:
        """Whether another key has the same given numbers and settings, and asks for the same numbers."""
        return (
            self.settings == other.settings
            and {name: value for name, (_, value) in self.given.items()}
            == {name: value for name, (_, value) in other.given.items()}
            and list(self.labels) == list(other.labels)
            and all(bool((self.asked[name] == other.asked[name]).all()) for name in self.labels)
        )


def _asked(claim: AuthorClaim) -> Tensor:
    known = ~claim.values.isnan()
    return known if bool(known.any()) else ~known
