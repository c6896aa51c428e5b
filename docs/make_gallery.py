"""Write the pages of docs/gallery from the worked examples, and those for a course: make gallery."""

from collections.abc import Mapping
from pathlib import Path

from vitral import grade
from vitral.core.language import in_language
from vitral.explanation import CheckReport, Example, Verdict, check, exercise_of, walk_example
from vitral.explanation.checks.report import first_wrong
from vitral.explanation.examples.by_name import find_example, gallery
from vitral.explanation.exercises.sheets import ExerciseSheet
from vitral.explanation.phrasebook import phrases
from vitral.report.checked_sheet import check_sections
from vitral.report.graded_class import GradedClass
from vitral.report.markdown import markdown
from vitral.report.sections import Heading, Paragraph, Preformatted
from vitral.report.walkthrough import to_sections

FOLDER = Path(__file__).parent / "gallery"
CLASS, KEY = FOLDER / "class", FOLDER / "class-key.toml"
COMMANDS = (
    "vitral exercise attention --seed 7 --out week-3\n"
    "vitral grade docs/gallery/class --key docs/gallery/class-key.toml --out class.html"
)

SAY = phrases("en")
INDEX = "README.md"
COURSE = {
    "exercise.md": "An exercise with its key",
    "graded-class.md": "A graded class of twelve invented sheets",
}
"""Pages for a course, and their titles."""


def pages() -> dict[str, str]:
    """Every page by its file name."""
    with in_language("en"):
        graded = grade(CLASS, KEY)
        sheet = ExerciseSheet(exercise_of("attention", seed=7))
    examples = {name: find_example(name) for name in gallery()}
    return {**gallery_pages(examples), **course_pages(sheet, graded, COMMANDS)}


def gallery_pages(examples: Mapping[str, Example]) -> dict[str, str]:
    """The pages of these examples and their index, as Markdown by file name, in English like the documentation."""
    with in_language("en"):
        reports = {name: check(example) for name, example in examples.items()}
        pages = {f"{name}.md": _example_page(name, report) for name, report in reports.items()}
        return {INDEX: _index(reports), **pages}


def _index(reports: dict[str, CheckReport]) -> str:
    own = [(name, report) for name, report in reports.items() if not report.example.source]
    others = [(name, report) for name, report in reports.items() if report.example.source]
    lines = ["# Gallery of worked examples", ""]
    lines += [
        "Each can be shown (`vitral explain NAME`) and checked (`vitral check NAME`); the numbers are the tests', too."
    ]
    for heading, listed in (
        ("Ours, to be done by hand", own),
        ("From course notes, with what is wrong in them", others),
    ):
        lines += ["", f"## {heading}", "", "| example | what it is | verdict |", "| --- | --- | --- |"]
        lines += [f"| [{name}]({name}.md) | {report.example.title} | {_verdict(report)} |" for name, report in listed]
    lines += ["", "## For a course", "", *(f"- [{title}]({file})" for file, title in COURSE.items())]
    return "\n".join(lines) + "\n"


def course_pages(sheet: ExerciseSheet, graded: GradedClass, key: str) -> dict[str, str]:
    """The pages of an exercise with its key and of a class that did it, as Markdown by file name, in English.

    Args:
        sheet: the exercise.
        graded: the class.
        key: the command line that made the exercise, and that graded the class, one below the other.
    """
    with in_language("en"):
        made, _newline, command = key.partition("\n")
        sections = [
            Paragraph("The same as .tex, .html to print and .xlsx is written by the command below."),
            Preformatted(made),
            Heading("The sheet"),
            Preformatted(sheet.toml),
            Heading("The key"),
            Preformatted(sheet.key_toml),
            Heading("Every step"),
            *to_sections(sheet.walkthrough),
        ]
        exercise = markdown(COURSE["exercise.md"], sections, lead=sheet.key.title, footer=made)
        title = COURSE["graded-class.md"]
        class_ = markdown(title, graded.sections(), lead=graded.title, footer=command)
    return {"exercise.md": exercise, "graded-class.md": class_}


def _verdict(report: CheckReport) -> str:
    return SAY(f"check.{report.worst}") if report.worst is not Verdict.wrong else first_wrong(report, SAY)


def _example_page(name: str, report: CheckReport) -> str:
    example = report.example
    sections = check_sections(report, SAY)
    sections += [Heading("The file"), Preformatted(example.text), Heading("Every step")]
    sections += to_sections(walk_example(example))
    lead = " ".join(part for part in (example.note, SAY("explain.source", source=example.source)) if part)
    return markdown(
        example.title, sections, lead=lead if example.source else example.note, footer=f"vitral check {name}"
    )


def main() -> None:
    """Write every page; pages of examples that are no more go."""
    made = pages()
    FOLDER.mkdir(exist_ok=True)
    for stale in {path.name for path in FOLDER.glob("*.md")} - set(made):
        (FOLDER / stale).unlink()
    for name, page in made.items():
        (FOLDER / name).write_text(page, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
