"""The rule by which verdicts become points."""

from typing import Annotated, Literal

from pydantic import Field

from vitral.core.config import Config
from vitral.explanation.checks.report import Verdict

Credit = Annotated[float, Field(ge=0, le=1)]
Points = Annotated[float, Field(ge=0, le=1e6)]


class GradingRule(Config):
    """Points for each step, and the credit of each verdict.

    A number has the credit of its verdict; a step has its points times the mean credit of its numbers.

    Attributes:
        points: of steps, by name; 1 for a step that is not named.
        total: points of a sheet without fault; None: the sum of the steps' points.
        per: "number": a step counts in proportion to its numbers; "step": it has all its points, or none if a number
            has less than full credit.
        right: credit of a right number.
        rounding: credit of a number that a habit of rounding explains.
        doubtful: credit of a number that is shown but not accused.
        unclear: credit of rounding by an unknown habit.
        follows: credit of a number that follows from an earlier wrong one.
        wrong: credit of a wrong number.
        blank: credit of an empty box.
    """

    points: dict[str, Points] = Field(default_factory=dict)
    total: Points | None = None
    per: Literal["number", "step"] = "number"
    right: Credit = 1.0
    rounding: Credit = 1.0
    doubtful: Credit = 1.0
    unclear: Credit = 1.0
    follows: Credit = 1.0
    wrong: Credit = 0.0
    blank: Credit = 0.0

    def credit(self, verdict: Verdict) -> float:
        """The credit of a verdict."""
        return self.blank if verdict is Verdict.unknown else float(getattr(self, verdict.value))

    def of_step(self, counts: dict[str, int]) -> float:
        """The share of a step's points that its numbers have.

        Args:
            counts: the numbers of each verdict.
        """
        credits = [self.credit(Verdict(name)) for name, count in counts.items() for _place in range(count)]
        if self.per == "step":
            return float(all(credit == 1 for credit in credits))
        return sum(credits) / len(credits) if credits else 0.0
