"""A study in Portuguese: the page has no English word, the numbers and the data are the same."""

import re
from typing import Any, NamedTuple

import pytest

from vitral.core.language import in_language
from vitral.report.study import StudyPage, write_report
from vitral.studies import StudyResult, run_study, study_named, study_names
from vitral.studies.study_file import TEXTS, translated
from vitral.training import RunConfig

ENGLISH = set(
    """the of and is are was were with without from not this that these its by at to than which each only where between
    over under against what how does has have they there loss losses seed seeds step steps mean means share head heads
    layer weight weights attention interval verdict better worse higher lower expected undecided comparison""".split()  # noqa: SIM905
)
"""Words that no Portuguese sentence of a study has."""
TERMS = ("attention sinks",)
PROBES = ("attention-sinks", "by-position", "gradients", "head-patterns", "relevance", "saturation", "text-units")
PROBES += ("uses", "meaning")


def english_words(markdown: str) -> set[str]:
    """English words in the prose of a page: not in fenced texts, assignments, file names and quoted identifiers."""
    text = re.sub(r"^```.*?^```", " ", markdown, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)|\S*(?:[./_=]|\\_)\S*|[‘“\"'`][a-z-]+[’”\"'`]", " ", text)
    for term in TERMS:
        text = text.replace(term, " ")
    return set(re.findall(r"[^\W\d_]+", text.lower())) & ENGLISH


@pytest.fixture(scope="module")
def probed(tiny: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    """A tiny study with two arms and probes."""
    study = study_named("no-attention")
    study = study.model_copy(update={"arms": study.arms[:2], "probes": PROBES})
    return run_study(study, tiny, tmp_path_factory.mktemp("probed"), seeds=[1, 2], budget="quick")


class Written(NamedTuple):
    """A page in one language, its files and its claims as sentences."""

    page: StudyPage
    markdown: str
    html: str
    table: bytes
    comparisons: bytes
    plain: dict[str, Any]
    claims: list[str]


@pytest.fixture(scope="module")
def pages(probed: StudyResult, only_svg: None) -> dict[str, Written]:
    """The page in each language."""
    measured = {}
    for code in ("en", "pt"):
        with in_language(code):
            page = write_report(probed, command="vitral study no-attention")
            texts = page.markdown.read_text(encoding="utf-8"), page.html.read_text(encoding="utf-8")
            data = page.table.read_bytes(), page.table.with_name("comparisons.csv").read_bytes(), page.plain()
            measured[code] = Written(page, *texts, *data, [claim.text for claim in page.listed])
    return measured


def test_the_page_of_a_study_with_probes_has_no_english_word_in_portuguese(pages: dict[str, Written]) -> None:
    assert english_words(pages["en"].markdown) > {"the", "of", "loss", "seeds"}
    assert english_words(pages["pt"].markdown) == set()
    assert english_words("\n".join(pages["pt"].claims)) == set()
    assert '<html lang="pt-BR"' in pages["pt"].html


def test_figures_and_their_texts_have_no_english_word_in_portuguese(pages: dict[str, Written]) -> None:
    drawn = {code: " ".join(re.findall(r"<text[^>]*>(.*?)</text>", pages[code].html)) for code in pages}
    assert english_words(drawn["en"])
    assert english_words(drawn["pt"]) == set()


def test_what_programs_read_has_no_language(pages: dict[str, Written]) -> None:
    english, portuguese = pages["en"], pages["pt"]
    assert english.table == portuguese.table
    assert english.table.startswith(b"arm,seed,")
    assert english.comparisons == portuguese.comparisons
    assert english.plain == portuguese.plain
    assert len(english.plain["comparisons"]) > 1


@pytest.mark.parametrize("name", study_names())
def test_every_text_of_the_catalogue_is_translated_where_it_is_shown(name: str) -> None:
    study = study_named(name)
    with in_language("pt"):
        shown, questions = translated(study), study_names()
    assert study_named(name) is study
    assert english_words("\n".join(getattr(shown, key) for key in TEXTS if key != "source")) == set()
    assert english_words("\n".join(arm.title for arm in shown.arms)) == set()
    assert shown.question == questions[name] != study.question
    assert [arm.name for arm in shown.arms] == [arm.name for arm in study.arms]
    assert [arm.changes for arm in shown.arms] == [arm.changes for arm in study.arms]
