"""The README's commands exist with their options and run, and both languages have the same ones."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from docs.make_first_steps import DOCUMENTS, prepare
from tests.app.conftest import printed_commands
from vitral.app.terminal import app

ROOT = Path(__file__).parents[2]
PAIRS = [("README.md", "docs/pt/README.md")]
PAIRS += [(f"docs/how-to/{one.name}", f"docs/pt/how-to/{one.name}") for one in ROOT.glob("docs/how-to/*.md")]
LINE = re.compile(r"^(?:\S+=\S+ )?vitral (?P<words>\S.*?)(?:  |$)", re.MULTILINE)


def commands(page: str) -> list[str]:
    """The command lines of a page's blocks."""
    blocks = re.findall(r"^```(?:sh|console)?\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S)
    return [line["words"].split("  ")[0].split(" #")[0].strip() for block in blocks for line in LINE.finditer(block)]


@pytest.mark.parametrize("page", [page for pair in PAIRS for page in pair])
def test_its_commands_exist_with_their_options(page: str) -> None:
    made: Any = get_command(app)
    lines = commands(page)
    assert len(lines) > 9 or "how-to" in page
    for line in lines:
        name, *words = line.split()
        assert name in made.commands, line
        known = {flag for option in made.commands[name].params for flag in option.opts}
        assert {word for word in words if word.startswith("-")} <= known, line


@pytest.mark.parametrize("pair", PAIRS)
def test_both_languages_have_the_same(pair: tuple[str, str]) -> None:
    english, portuguese = (
        sorted((line.split()[0], *re.findall(r" --?\w+", line)) for line in commands(page)) for page in pair
    )
    assert english == portuguese


BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
ELSEWHERE = {"hf:openai-community/gpt2", "resume"}
"""What needs a network (tests/interop/test_document.py) or a stopped run (tests/training/test_resuming.py)."""
IN_A_NIGHT = [pytest.param(language, set[str](), marks=pytest.mark.full) for language in DOCUMENTS]


@pytest.mark.parametrize(
    ("language", "left_out"), [pytest.param("en", {"study"}, marks=pytest.mark.merge), *IN_A_NIGHT]
)
def test_its_commands_and_those_of_the_first_steps_run(
    language: str, left_out: set[str], typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of blocks in their order, then those in sentences; in a night also those that all these print and show."""
    document = DOCUMENTS[language]
    run = f"runs/{document.text[:-4]}"
    stands_for = {"RUN": run, "PASTA": run}
    prepare(document, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("VITRAL_LANG", language)
    monkeypatch.setenv("VITRAL_CORPORA", str(tmp_path / "work" / "texts"))
    Path("texts").mkdir()
    readme = (ROOT / PAIRS[0][language == "pt"]).read_text(encoding="utf-8")
    steps, notes = (page.read_text(encoding="utf-8") for page in (document.path, ROOT / "docs/check-your-notes.md"))
    text = Path(document.text).read_text(encoding="utf-8")[:20_000]
    files = {document.text: text, "texts/shakespeare.txt": text}  # a download
    files |= dict.fromkeys(("notes.toml", "notas.toml"), re.findall(r"```toml\n(.*?)```", notes, re.DOTALL)[0])
    for name, content in files.items():
        Path(name).write_text(content, encoding="utf-8")

    def commands_in(printed: str) -> list[list[str]]:
        found = ([stands_for.get(word, word) for word in words] for words in printed_commands(printed))
        return [words for words in found if {*words}.isdisjoint(ELSEWHERE | left_out)]

    known = commands_in("\n".join([*BLOCK.findall(readme), readme, BLOCK.sub("", steps)]))
    assert {"train", "generate", "open", "exercise", "check", "doctor"} <= {words[0] for words in known}
    printed = [typed(words) for words in known]
    if left_out:
        return
    shown = [page.read_text(encoding="utf-8") for page in Path().rglob("*.html")]
    for page in Path().glob("*.html"):
        page.unlink()  # the same commands are printed again
    further = [words for words in commands_in("\n".join([*printed, *shown])) if words not in known]
    assert {"inspect", "bundle"} <= {words[0] for words in further}
    for words in further:
        typed(words)


CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The addresses that GitHub gives the headings of a page."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r'<a id="([^"]*)"', text))
    heads = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", head) for head in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    return named | {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_the_links_of_all_pages_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    assert len(pages) > 50
    heads = {page: anchors(page) for page in pages}
    for page in pages:
        text = CODE.sub("", page.read_text(encoding="utf-8"))
        for link, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)", text):
            if not link.startswith(("http:", "https:", "mailto:")):
                to = (page.parent / link).resolve() if link else page
                assert to.exists(), (page.name, link)
                assert not anchor or anchor in heads[to], (page.name, link, anchor)
