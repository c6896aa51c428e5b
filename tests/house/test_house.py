"""What the house promises about itself: sizes, no pickle, the bundled play."""

import ast
import re
from importlib import resources
from pathlib import Path

import pytest

import vitral
from vitral.lab.examples import find_example, gallery
from vitral.reports.gallery import gallery_pages

PACKAGE = Path(vitral.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_sizes_are_watched(source: Path) -> None:
    text = source.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 500
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 75, f"{node.name} is long (its docstring counted)"


def test_nothing_reads_pickle_or_runs_what_it_reads() -> None:
    forbidden = re.compile(
        r"\bpickle\b|(?<!safetensors\.)torch\.(load|save)\(|(?<![.\w])(eval|exec)\(|yaml\.load|allow_pickle=True"
    )
    for source in SOURCES:
        assert not forbidden.search(source.read_text(encoding="utf-8")), source


def test_the_play_is_as_long_as_promised_and_repeats_nothing() -> None:
    play = (resources.files("vitral.data") / "texts" / "the-window-of-aldermere.txt").read_text(encoding="ascii")
    assert len(play) >= 100_000
    assert [f"ACT {number}" in play for number in ("I", "II", "III", "IV", "V")] == [True] * 5
    long_lines = [line.strip() for line in play.splitlines() if len(line.strip()) > 30]
    assert len(long_lines) == len(set(long_lines))
    speeches = [" ".join(speech.split()) for speech in play.split("\n\n") if len(speech) > 80]
    assert len(speeches) == len(set(speeches))


GALLERY = Path(__file__).parents[2] / "docs" / "gallery"


def test_the_gallerys_pages_are_current() -> None:
    """`make gallery` writes them; whoever changes an example or a phrase runs it."""
    pages = gallery_pages({name: find_example(name) for name in gallery()})
    assert {path.name for path in GALLERY.iterdir()} == set(pages)
    for name, page in pages.items():
        assert (GALLERY / name).read_text(encoding="utf-8") == page, f"{name}: run make gallery"
