"""The commands of docs/page.md are commands."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

import vitral
from vitral.app.terminal import app

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "page.md", DOCS / "pt" / "page.md"]


@pytest.mark.parametrize("page", PAGES, ids=["en", "pt"])
def test_its_commands_and_its_line_of_python_run(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    commands = re.findall(r"^vitral bundle (.*)$", text, re.MULTILINE)
    bundle = get_command(app).commands["bundle"]  # pyright: ignore[reportAttributeAccessIssue]
    given = [bundle.make_context("bundle", shlex.split(words, comments=True)).params for words in commands]
    assert [str(one["out"]) for one in given] == ["None", "lecture.html", "other.html", "whole.html"]
    assert {str(one["run"]) for one in given} == {"runs/mine"}
    assert [given[1]["checkpoint"], given[2]["corpus"], given[3]["ablations"]] == ["last", "my.txt", True]
    assert "vitral.bundle(" in text
    assert callable(vitral.bundle)
