"""The page of a checked example: the verdict, every number that is not right with its arithmetic, and every step."""

from vitral.core.language import language
from vitral.explanation import CheckReport, phrases, walk_example
from vitral.explanation.checks.report import first_wrong, rows, summary
from vitral.explanation.phrasebook import Phrases
from vitral.report.html import page
from vitral.report.notebook import page_of
from vitral.report.sections import Callout, Preformatted, Section, Table
from vitral.report.walkthrough import to_sections


def check_sections(report: CheckReport, say: Phrases) -> list[Section]:
    """The verdict and the rows that are not right, as sections of a page."""
    sections: list[Section] = [Callout(summary(report, say))]
    problems = list(rows(report, say))
    if problems:
        columns = tuple(say(f"check.{key}") for key in ("step", "place", "claimed", "expected", "verdict", "guess"))
        lines = tuple(
            (
                row.step,
                row.where,
                "  ".join(row.claimed),
                "  ".join(row.expected),
                say(f"check.{row.verdict}"),
                row.guess,
            )
            for row in problems
        )
        sections.append(Table(first_wrong(report, say), columns, lines, prose=tuple(range(1, 6))))
        sections += [Preformatted("\n".join(row.working for row in problems if row.working))]
    return sections


@page_of.register
def _check_page(report: CheckReport) -> str:
    say, example = phrases(language()), report.example.told()
    sections = [*check_sections(report, say), *to_sections(walk_example(example, language=language()))]
    return page(example.title, sections, lead=example.note)
