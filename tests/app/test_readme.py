"""The README's commands exist with their options, in both languages, and each language has the same ones."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from vitral.app.terminal import app

ROOT = Path(__file__).parents[2]
PAIRS = [("README.md", "docs/pt/README.md"), ("docs/commands.md", "docs/pt/commands.md")]
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
