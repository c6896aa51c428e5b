"""The commands of docs/page.md are commands."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import vitral
from vitral.cli import app
from vitral.lab.pages import Bundle

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "page.md", DOCS / "pt" / "page.md"]


@pytest.mark.parametrize("page", PAGES, ids=["en", "pt"])
def test_its_commands_and_its_line_of_python_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Any, ...]] = []

    def bundle(run: Any, out: Any = None, **options: Any) -> Bundle:
        given.append((str(run), out, options))
        return Bundle(Path("page.html"), 1)

    monkeypatch.setattr("vitral.lab.bundle", bundle)
    text = page.read_text(encoding="utf-8")
    commands = re.findall(r"^(vitral bundle .*)$", text, re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        done = CliRunner().invoke(app, shlex.split(command, comments=True)[1:])
        assert done.exit_code == 0, done.output
    assert [str(out) for _, out, _ in given] == ["None", "lecture.html", "other.html", "whole.html"]
    assert {run for run, _, _ in given} == {"runs/mine"}
    assert [given[1][2]["checkpoint"], given[2][2]["corpus"], given[3][2]["ablations"]] == ["last", "my.txt", True]
    assert "vitral.bundle(" in text
    assert callable(vitral.bundle)
