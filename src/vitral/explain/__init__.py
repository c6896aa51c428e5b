"""Explanations: a computation narrated step by step, and checks of computations done by hand."""

from typing import Any

from vitral.core.renamed import renamed
from vitral.explain.checks.checker import check
from vitral.explain.checks.correction import corrected
from vitral.explain.checks.report import CheckReport, Verdict
from vitral.explain.examples.example import Example
from vitral.explain.examples.exercise import Exercise, exercise_text
from vitral.explain.examples.file import load_example, parse_example
from vitral.explain.narration import Choice
from vitral.explain.phrasebook import LANGUAGES, phrases
from vitral.explain.renderers import to_latex, to_markdown, to_page, to_plain, to_sections, to_text
from vitral.explain.steps import Arithmetic, Chapter, Panel, Step
from vitral.explain.walks import RunView, walk_example, walk_run
from vitral.explain.walkthrough import Walkthrough

__all__ = [
    "LANGUAGES",
    "Arithmetic",
    "Chapter",
    "CheckReport",
    "Choice",
    "Example",
    "Exercise",
    "Panel",
    "RunView",
    "Step",
    "Verdict",
    "Walkthrough",
    "check",
    "corrected",
    "exercise_text",
    "load_example",
    "parse_example",
    "phrases",
    "to_latex",
    "to_markdown",
    "to_page",
    "to_plain",
    "to_sections",
    "to_text",
    "walk_example",
    "walk_run",
]


def __getattr__(name: str) -> Any:
    """The former name `View`, an argument of `vitral.Run.explain`."""
    if name != "View":
        raise AttributeError(f"module 'vitral.explain' has no attribute {name!r}")
    renamed("View", "RunView")
    return RunView
