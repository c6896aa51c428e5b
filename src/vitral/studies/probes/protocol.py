"""What a probe is: something a study measures besides the loss, as plain data kept beside its runs.

A probe measures and a probe shows, and the two never mix: what was measured is a JSON file that anybody can read, and
sections, figures and findings are made from it alone. So an interrupted study measures nothing twice, and a report
can be drawn again without a model.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vitral.core.errors import UsageError
from vitral.data import Dataset
from vitral.runs import LoadedRun
from vitral.studies.design import BudgetName
from vitral.training import RunConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vitral.figures.sections import Section
    from vitral.studies.results import StudyResult
    from vitral.studies.verdict import Finding

Plain = dict[str, Any]
"""JSON-ready data: string keys, lists, finite numbers, None where there is no number."""
ByRun = Mapping[str, Mapping[int, Plain]]
"""Arm -> seed -> what a run probe measured there; arms and seeds that did not finish are missing."""


@dataclass(frozen=True)
class Trained:
    """A finished run, as a run probe is given it.

    Attributes:
        arm: its name.
        seed: of the run.
        run: model in evaluation mode, tokenizer, configuration.
        dataset: the arm's text.
        budget: of the study; a smaller one asks for fewer samples.
    """

    arm: str
    seed: int
    run: LoadedRun
    dataset: Dataset
    budget: BudgetName


def is_causal_lm(config: Mapping[str, Any]) -> bool:
    """Whether a run of this plain configuration tells next tokens from what stands before them, and nothing else."""
    training = config["training"]
    return training.get("objective", "next-token") == "next-token" and not training["allow_leak"]


def require_next_tokens(trained: Trained) -> None:
    """Refuse a run whose loss of next tokens would mean nothing.

    Raises:
        UsageError: the run fills blanks, or was shown its answers.
    """
    if not is_causal_lm(trained.run.config):
        raise UsageError(f"{trained.arm} is not trained to tell the next token from what stands before it")


@dataclass(frozen=True)
class Setting:
    """What a probe that needs no trained model is given.

    Attributes:
        base: the configuration of the study's base arm.
        dataset: the base arm's text.
        seed: the study's first, for what is drawn.
        budget: of the study.
    """

    base: RunConfig
    dataset: Dataset
    seed: int
    budget: BudgetName


@dataclass(frozen=True)
class Plot:
    """A figure that the report is to write and show.

    Attributes:
        figure: drawn by `vitral.figures`.
        name: of its files; small letters and hyphens.
        caption: what it shows and how to read it.
        alt: the finding, for a reader who cannot see it.
    """

    figure: "Figure"
    name: str
    caption: str
    alt: str


@dataclass(frozen=True)
class Exhibit:
    """What a probe has to show.

    Attributes:
        sections: pieces of the report in order, figures among them.
        findings: sentences for the verdict, derived from the numbers by stated rules.
    """

    sections: "tuple[Section | Plot, ...]" = ()
    findings: "tuple[Finding, ...]" = ()


@dataclass(frozen=True)
class RunProbe:
    """Measures every finished run.

    Attributes:
        name: small letters and hyphens; its files lie at `measures/NAME/ARM-seed-N.json`.
        measure: gives plain data, a function of the run alone; raises `UsageError`, saying why, for a run that it
            cannot measure, which is then left out.
        show: from the study and what was measured to what is shown.
        seconds: by budget, about how long one measurement takes where a second holds 1e11 operations of training.
    """

    name: str
    measure: Callable[[Trained], Plain]
    show: "Callable[[StudyResult, ByRun], Exhibit]"
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyProbe:
    """Measures once for a whole study, without any of its trained models.

    Attributes:
        name: small letters and hyphens; its file is `measures/NAME.json`.
        measure: gives plain data.
        show: from the study and what was measured to what is shown.
        seconds: by budget, about how long the measurement takes where a second holds 1e11 operations of training.
    """

    name: str
    measure: Callable[[Setting], Plain]
    show: "Callable[[StudyResult, Plain], Exhibit]"
    seconds: Mapping[str, float] = field(default_factory=dict)


Probe = RunProbe | StudyProbe
