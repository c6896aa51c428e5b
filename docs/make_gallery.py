"""Write the pages of docs/gallery from the worked examples, and those for a course: make gallery."""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import safetensors.torch
from safetensors import safe_open

from vitral import grade, train
from vitral.core.language import in_language
from vitral.data.answers import ANSWER, END
from vitral.data.tokenizers import char_tokenizer, with_special_tokens
from vitral.explanation import CheckReport, Example, RunView, Verdict, check, exercise_of, walk_example, walk_run
from vitral.explanation.checks.report import ReportText
from vitral.explanation.examples.by_name import find_example, gallery
from vitral.explanation.exercises.sheets import ExerciseSheet
from vitral.explanation.phrasebook import phrases
from vitral.model import ModelConfig, Transformer
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
REVERSES = "reverse.md", "A trained encoder–decoder reverses three letters"
TRAINED = FOLDER / "reverse.safetensors"
"""The weights of its page; `make gallery` trains the model anew where the file is missing."""
TASK = {"source": "task:reverse", "task": {"symbols": 5, "shortest": 3, "length": 3, "sequences": 100}}
SIZES = {"d_model": 6, "num_layers": 1, "num_heads": 1, "d_ff": 12, "bias": False, "shape": "encoder-decoder"}
ASKED = "vitral explain RUN --source abc --text cb --layer all --block --ending"


def pages() -> dict[str, str]:
    """Every page by its file name."""
    with in_language("en"):
        graded = grade(CLASS, KEY)
        sheet = ExerciseSheet(exercise_of("attention", seed=7))
    examples = {name: find_example(name) for name in gallery()}
    return {**gallery_pages(examples), **course_pages(sheet, graded, COMMANDS), REVERSES[0]: trained_page()}


def trained_page() -> str:
    """A whole step of a trained encoder-decoder, as Markdown in English."""
    if not TRAINED.exists():
        _train()
    with safe_open(TRAINED, "pt") as file:
        config = ModelConfig.parse(json.loads(file.metadata()["model"]), str(TRAINED))
    tokenizer = with_special_tokens(char_tokenizer("abcde"), (ANSWER, END))
    model = Transformer(config, tokenizer.vocab_size)
    model.load_state_dict(safetensors.torch.load_file(TRAINED))
    with in_language("en"):
        view = RunView(layers=None, block=True, ending=True)
        walkthrough = walk_run(model, tokenizer, f"{ANSWER}cb", view, "reverse", source="abc")
        lead = (
            "The encoder has read abc, the decoder has written cb; the next letter is a. In cross-attention each "
            "position looks at the letter that comes next: the weights are an anti-diagonal. The numbers are those of "
            f"a model that `vitral train task:reverse` has trained, with {config.d_model} features."
        )
        return markdown(REVERSES[1], to_sections(walkthrough), lead=lead, footer=ASKED)


def _train() -> None:
    with TemporaryDirectory() as folder:
        run = train(
            "task:reverse", Path(folder, "run"), corpus=TASK, seed=1, threads=1, model=SIZES, training={"steps": 400}
        )
        weights = {name: value.detach().clone() for name, value in run.model.state_dict().items()}
        model = json.dumps(run.model.config.plain())
    safetensors.torch.save_file(weights, TRAINED, {"model": model})


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
    lines += ["", "## From a trained model", "", f"- [{REVERSES[1]}]({REVERSES[0]})"]
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
    return SAY(f"check.{report.worst}") if report.worst is not Verdict.wrong else ReportText(report, SAY).first_wrong()


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
