"""Worked examples, a run and checks in Portuguese: no English word but names, decimal commas, and the same data."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import unescape

import pytest
import torch
from tiers import few

from vitral.core.language import in_language
from vitral.data import CorpusConfig
from vitral.data.tokenizers import build_tokenizer
from vitral.explanation import (
    Choice,
    Example,
    Exercise,
    ExerciseSheet,
    RunView,
    Walkthrough,
    check,
    parse_example,
    to_plain,
    to_text,
    walk_example,
    walk_run,
)
from vitral.explanation.checks.report import ReportText
from vitral.explanation.examples.by_name import find_example, gallery
from vitral.explanation.phrasebook import phrases
from vitral.model import ModelConfig, Transformer
from vitral.report.walkthrough import to_latex, to_markdown, to_page

ENGLISH = frozenset(
    re.findall(
        r"\w+",
        """the of and is are to each every by with from for not its it this that which has have there one than more less
        into between below above only all other another same was were be been can may must if so also after before
        their they these those nothing number numbers row rows column columns wrong right should copied weighted sum""",
    )
)
"""Words that English sentences have and Portuguese ones have not."""
NAME = re.compile(r"\b[a-z]+(?:[._][\w.]+)+|\brows\b(?=\s+i\b|\s*\n|[\s}\d]*[=\[_])|\bsum\b(?=[\s}\u2061]*\()")
"""Names: mlp.hidden, resid_mid, temperature_0.5; `rows` before an equals sign or alone; the function `sum`."""
OPTION = re.compile(r"-(?:\{\})?-[a-z]+")
"""The name of an option."""
SHAPE = re.compile(r"\[[a-z_]+ \d+(?:, [a-z_]+ \d+)*\]")
"""The axes of a quantity with their sizes: [time 4, d_model 8]."""


def page_text(told: Walkthrough) -> str:
    """What a page shows or reads out."""
    page = re.sub(r"<(script|style)\b.*?</\1>", " ", to_page(told), flags=re.DOTALL)
    spoken = re.findall(r'\b(?:aria-label|title|alt)="([^"]*)"', page)
    return unescape("\n".join([*spoken, re.sub(r"<[^>]*>", " ", page)]))


def latex_text(told: Walkthrough) -> str:
    body = to_latex(told).partition(r"\begin{document}")[2]
    body = re.sub(r"\\begin\{\w+\}(\{[^}]*\})?|\\end\{\w+\}", " ", body.replace("{,}", ","))
    return re.sub(r"\\[a-zA-Z]+|\\,", " ", body.replace("\\_", "_"))


def markdown_text(told: Walkthrough) -> str:
    joined = to_markdown(told).replace(r"}\_\text{", "_")
    mathematics = re.sub(r"\$\$.*?\$\$", lambda found: re.sub(r"\\[a-zA-Z]+", " ", found[0]), joined, flags=re.DOTALL)
    return mathematics.replace("{,}", ",").replace("\\", "")


FORMS: dict[str, Callable[[Walkthrough], str]] = {
    "text": to_text,
    "markdown": markdown_text,
    "html": page_text,
    "latex": latex_text,
}


def english(written: str) -> set[str]:
    """English words, names of quantities and axes left aside."""
    return set(ENGLISH) & set(re.findall(r"[^\W\d_]+", NAME.sub(" ", SHAPE.sub(" ", OPTION.sub(" ", written))).lower()))


def points(written: str) -> list[str]:
    """Numbers with a decimal point."""
    return re.findall(r"\d+\.\d+", NAME.sub(" ", written))


def without_words(example: Example) -> Example:
    """The example without its author's text: title, note, source, tokens, words."""
    sheet = example.sheet
    tokens, words = (tuple(f"p{place}" for place in range(len(each))) for each in (sheet.tokens, sheet.vocabulary))
    return replace(example, title="t", note="", source="f", sheet=replace(sheet, tokens=tokens, vocabulary=words))


def arithmetic(data: dict) -> Iterator[tuple[str, str]]:
    """The equations in the plain data of a walkthrough; words for what is left out, and the sine, are English."""
    for chapter in data["chapters"]:
        for step in chapter["steps"]:
            for panel in step["panels"]:
                written = re.sub(r"… \(.*?(\S+)\)|… .*?\)", r"\1", panel["arithmetic"])
                for word, english_word in {"sen(": "sin(", "mantidas": "kept", "média": "mean"}.items():
                    written = written.replace(word, english_word)
                yield step["name"], written


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", few(gallery()))
def test_a_worked_example_is_told_in_portuguese(name: str, form: str) -> None:
    written = FORMS[form](walk_example(without_words(find_example(name)), language="pt"))
    assert english(written) == set()
    assert points(written) == []


def trained() -> tuple[Transformer, str]:
    parts = {"positions": "rotary", "attention": {"scale": "adaptive"}, "norm_type": "rmsnorm", "num_kv_heads": 1}
    sizes = {"d_model": 12, "num_layers": 2, "num_heads": 2, "context_length": 13}
    return Transformer(ModelConfig.parse({**sizes, **parts}), 5, seed=3), "abcda"


@pytest.mark.parametrize("form", FORMS)
def test_a_run_is_told_in_portuguese(form: str) -> None:
    model, text = trained()
    letters = build_tokenizer(CorpusConfig(), "abcd", [])
    view = RunView(None, Choice(), block=True, ending=True, language="pt")
    written = FORMS[form](walk_run(model, letters, text, view))
    assert english(written) == set()
    assert points(written) == []


@pytest.mark.parametrize("name", few(gallery()))
def test_the_data_of_a_walkthrough_are_the_same_in_every_language(name: str) -> None:
    example = find_example(name)
    one, other = (to_plain(walk_example(example, language=language)) for language in ("en", "pt"))
    for key in ("title", "chapters"):
        assert type(one[key]) is type(other[key])
    assert list(arithmetic(one)) == list(arithmetic(other))
    for mine, yours in zip(one["chapters"][0]["steps"], other["chapters"][0]["steps"], strict=True):
        assert mine["name"] == yours["name"]
        assert [panel["matrix"] for panel in mine["panels"]] == [panel["matrix"] for panel in yours["panels"]]


@pytest.mark.parametrize("name", few(gallery()))
def test_a_check_is_reported_in_portuguese_and_its_data_are_the_same(name: str) -> None:
    report = check(without_words(find_example(name)))
    plain = report.plain()
    written = ReportText(report, phrases("pt")).text()
    assert english(written) == set()
    assert points(written) == []
    with in_language("pt"):
        assert str(report) == written
        assert report.plain() == plain


def test_an_exercise_is_in_the_language_and_its_numbers_are_not() -> None:
    sheets = []
    for language in ("en", "pt"):
        with in_language(language):
            sheets.append(ExerciseSheet(Exercise(seed=7)).toml)
    title, comment = ([line for line in sheet.splitlines() if line[:1] in ("t", "#")] for sheet in sheets)
    assert not set(title) & set(comment)
    one, other = (
        [line.split(" = ")[-1] for line in each.splitlines() if line[:1] not in ("t", "#")] for each in sheets
    )
    assert one == other
    examples = [parse_example(sheet) for sheet in sheets]
    assert torch.equal(examples[0].sheet.values["out"], examples[1].sheet.values["out"])
