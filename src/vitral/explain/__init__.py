"""Explaining: a computation told step by step, and a computation done by hand, checked."""

from vitral.explain.checking import Report, Verdict, check
from vitral.explain.correcting import corrected
from vitral.explain.example import Example
from vitral.explain.phrases import LANGUAGES, phrases
from vitral.explain.reading import load_example, parse_example
from vitral.explain.renderers import to_latex, to_markdown, to_page, to_plain, to_sections, to_text
from vitral.explain.telling import Choice
from vitral.explain.tiny import Tiny, tiny_example
from vitral.explain.walking import View, walk_example, walk_run
from vitral.explain.walkthrough import Arithmetic, Chapter, Panel, Step, Walkthrough

__all__ = [
    "LANGUAGES",
    "Arithmetic",
    "Chapter",
    "Choice",
    "Example",
    "Panel",
    "Report",
    "Step",
    "Tiny",
    "Verdict",
    "View",
    "Walkthrough",
    "check",
    "corrected",
    "load_example",
    "parse_example",
    "phrases",
    "tiny_example",
    "to_latex",
    "to_markdown",
    "to_page",
    "to_plain",
    "to_sections",
    "to_text",
    "walk_example",
    "walk_run",
]
