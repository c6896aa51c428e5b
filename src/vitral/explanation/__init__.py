"""Explanations: a computation narrated step by step, and checks of computations done by hand."""

from vitral.explanation.checks.checker import check
from vitral.explanation.checks.report import CheckReport, Verdict
from vitral.explanation.examples.example import Example
from vitral.explanation.examples.file import load_example, parse_example
from vitral.explanation.exercises.exercise import KINDS, Exercise, exercise_of
from vitral.explanation.exercises.sheets import ExerciseSheet
from vitral.explanation.narration import Choice
from vitral.explanation.phrasebook import phrases
from vitral.explanation.steps import Step
from vitral.explanation.walks import RunView, walk_backward, walk_example, walk_run
from vitral.explanation.walkthrough import Walkthrough, to_plain, to_text

__all__ = [
    "KINDS",
    "CheckReport",
    "Choice",
    "Example",
    "Exercise",
    "ExerciseSheet",
    "RunView",
    "Step",
    "Verdict",
    "Walkthrough",
    "check",
    "exercise_of",
    "load_example",
    "parse_example",
    "phrases",
    "to_plain",
    "to_text",
    "walk_backward",
    "walk_example",
    "walk_run",
]
