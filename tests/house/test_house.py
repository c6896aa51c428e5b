"""Rules of the package itself: sizes, no pickle, the bundled texts."""

import ast
import hashlib
import re
import unicodedata
from importlib import resources
from pathlib import Path

import pytest

import vitral
from docs import make_gallery
from vitral.data.corpora import BUNDLED

PACKAGE = Path(vitral.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
WATCHED = 600
"""Lines of a file above which its size is printed (pytest -rP shows it); cut by subject, not by length."""


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_sizes_are_watched(source: Path) -> None:
    text = source.read_text(encoding="utf-8")
    if (length := len(text.splitlines())) > WATCHED:
        print(f"{source.relative_to(PACKAGE)} has {length} lines: is it still one subject?")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 75, f"{node.name} is long (its docstring counted)"


def test_nothing_reads_pickle_or_runs_what_it_reads() -> None:
    forbidden = re.compile(
        r"\bpickle\b|(?<!safetensors\.)torch\.(load|save)\(|(?<![.\w])(eval|exec)\(|yaml\.load|allow_pickle=True"
    )
    tensors_only = 'torch.load(path, map_location="cpu", weights_only=True, mmap=True)'
    for source in SOURCES:
        text = source.read_text(encoding="utf-8")
        allowed = tensors_only if source.name == "nanogpt.py" else ""
        assert not forbidden.search(text.replace(allowed, "") if allowed else text), source


def test_the_play_is_as_long_as_promised_and_repeats_nothing() -> None:
    play = (resources.files("vitral.data") / "texts" / "the-window-of-aldermere.txt").read_text(encoding="ascii")
    assert len(play) >= 100_000
    assert [f"ACT {number}" in play for number in ("I", "II", "III", "IV", "V")] == [True] * 5
    long_lines = [line.strip() for line in play.splitlines() if len(line.strip()) > 30]
    assert len(long_lines) == len(set(long_lines))
    speeches = [" ".join(speech.split()) for speech in play.split("\n\n") if len(speech) > 80]
    assert len(speeches) == len(set(speeches))


def test_the_novel_is_whole_and_clean() -> None:
    texts = resources.files("vitral.data") / "texts"
    raw = (texts / "dom-casmurro.txt").read_bytes()
    novel = raw.decode("utf-8")
    assert len(raw) <= 400_000
    assert novel.startswith("DOM CASMURRO\n\nMachado de Assis\n\nI\n\nDO TÍTULO\n\n")
    assert novel.endswith("Vamos à História dos Subúrbios.\n\nFIM\n")
    assert len(re.findall(r"^[IVXLC]+$", novel, re.MULTILINE)) == 148
    assert unicodedata.is_normalized("NFC", novel)
    assert not re.search(
        r"[\r\t\f\ufeff]|  | $|\n{3}|^\W*\d+\W*$|gutenberg|https?:", novel, re.MULTILINE | re.IGNORECASE
    )


def test_the_sources_of_the_bundled_texts_are_named() -> None:
    texts = resources.files("vitral.data") / "texts"
    sources = (texts / "README.md").read_text(encoding="utf-8")
    files = {file.name for file in texts.iterdir()} - {"README.md"}
    assert files == set(BUNDLED.values())
    for name, file in BUNDLED.items():
        row = next(line for line in sources.splitlines() if f"`{name}`" in line)
        assert file in row
        assert hashlib.sha256((texts / file).read_bytes()).hexdigest() in row


GALLERY = Path(__file__).parents[2] / "docs" / "gallery"


def test_the_gallerys_pages_are_current() -> None:
    """`make gallery` writes them; whoever changes an example or a phrase runs it."""
    pages = make_gallery.pages()
    assert {path.name for path in GALLERY.glob("*.md")} == set(pages)
    for name, page in pages.items():
        assert (GALLERY / name).read_text(encoding="utf-8") == page, f"{name}: run make gallery"
