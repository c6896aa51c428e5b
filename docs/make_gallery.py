"""Write the pages of docs/gallery from the worked examples, and those for a course: make gallery."""

from pathlib import Path

from vitral.core.language import in_language
from vitral.explanation import exercise_of
from vitral.explanation.exercises.sheets import ExerciseSheet
from vitral.lab import grade
from vitral.lab.examples import find_example, gallery
from vitral.reports.gallery import course_pages, gallery_pages

FOLDER = Path(__file__).parent / "gallery"
CLASS, KEY = FOLDER / "class", FOLDER / "class-key.toml"
COMMANDS = (
    "vitral exercise attention --seed 7 --out week-3\n"
    "vitral grade docs/gallery/class --key docs/gallery/class-key.toml --out class.html"
)


def pages() -> dict[str, str]:
    """Every page by its file name."""
    with in_language("en"):
        graded = grade(CLASS, KEY)
        sheet = ExerciseSheet(exercise_of("attention", seed=7))
    examples = {name: find_example(name) for name in gallery()}
    return {**gallery_pages(examples), **course_pages(sheet, graded, COMMANDS)}


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
