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
from vitral.explanation.examples.given import Keys, file_entries
from vitral.explanation.examples.names import Names
from vitral.explanation.examples.numerals import most_decimals
from vitral.explanation.examples.parameters import FindModel

NOT_GIVEN = ("title", "source", "note", "decimals", "given", "claimed")
"""Keys at the top of a file that do not change the computation."""
DECIMALS = 2
"""Decimals of a key that neither states nor shows them, as of exercises."""


@dataclass(frozen=True, eq=False)
class AnswerKey:
    """The key of one exercise.

    Attributes:
        example: the key as a worked example, or the exercise with its question marks.
        find_model: returns the configuration of a preset.
    """

    example: Example
    find_model: FindModel

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
    def given(self) -> Mapping[str, Any]:
        """The given numbers as written."""
        return self.example.document.data["given"]

    @cached_property
    def given_by_quantity(self) -> Mapping[str, tuple[Keys, Any]]:
        """The keys in the file, and the numbers as written, of each given quantity."""
        return {self.quantity(".".join(keys)): (keys, value) for keys, value in file_entries(self.given)}

    @cached_property
    def decimals(self) -> int:
        """The decimals that the key asks for: those it states, else the most in its claims."""
        if self.example.states_decimals:
            return self.example.decimals
        typed = (
            self.example.typed(claim, tuple(place))
            for claim in self.example.claims
            for place in claim.values.isfinite().nonzero().tolist()
        )
        return self.example.decimals if most_decimals(typed) else DECIMALS

    @cached_property
    def _names(self) -> Names:
        return Names("resid_pre" if "resid_pre" in self.example.sheet.values else "x")

    def quantity(self, name: str) -> str:
        """The quantity of this computation for which a name stands; the name itself if there is none."""
        return name if name in self.example.sheet.values else self._names(name)

    def is_same(self, other: "AnswerKey") -> bool:
        """Whether another key has the same given numbers and settings, and asks for the same numbers."""
        return (
            self.settings == other.settings
            and {name: value for name, (_keys, value) in self.given_by_quantity.items()}
            == {name: value for name, (_keys, value) in other.given_by_quantity.items()}
            and list(self.labels) == list(other.labels)
            and all(bool((self.asked[name] == other.asked[name]).all()) for name in self.labels)
        )


def _asked(claim: AuthorClaim) -> Tensor:
    known = ~claim.values.isnan()
    return known if bool(known.any()) else ~known
