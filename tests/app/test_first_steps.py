"""docs/first-steps.md and docs/pt/first-steps.md are transcripts: their commands and their Python run, in their order.

docs/make_first_steps.py reads and compares them, and writes them again. Commands and Python run as they are written,
with the document's text, in a folder each; a training ends after a part of a pass over the text (PASSES) instead of
after its minutes. What depends on the time and the machine is not compared: numbers, except where no training is
involved; text that a model wrote; progress and measured plans; the rank among the n-gram baselines.
"""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from docs.make_first_steps import (
    DOCUMENTS,
    Document,
    Step,
    executed,
    missing,
    prepare,
    rewritten,
    stable,
    steps,
)
from vitral.app.terminal import run
from vitral.training import deadline

PASSES = {"en": 0.1, "pt": 0.05}
COMMANDS = {"corpus", "train", "generate", "continue", "explain", "doctor"}
CALLS = {"vitral.survey(", "vitral.train(", ".generate(", "vitral.continue_(", ".explain("}


def one_now(language: str) -> pytest.MarkDecorator:
    """Every document: this one in the merge tier, the others in a night."""
    marks = {name: pytest.mark.merge if name == language else pytest.mark.full for name in DOCUMENTS}
    return pytest.mark.parametrize("language", [pytest.param(name, marks=mark) for name, mark in marks.items()])


def written(document: Document) -> list[Step]:
    """The steps of a document."""
    return list(steps(document.path.read_text(encoding="utf-8")))


def differs(step: Step, printed: str, document: Document) -> list[str]:
    """The first piece of the document that a step did not print."""
    if not step.is_compared:
        return []
    shown, found = (stable(lines, document, exact=step.is_exact) for lines in (step.shown, printed.split("\n")))
    return missing(shown, found)


@pytest.fixture
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: str) -> Document:
    """A document in whose folder we are; training is short."""
    document = DOCUMENTS[language]
    prepare(document, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("VITRAL_LANG", language)
    monkeypatch.setattr(deadline, "most_passes", lambda model, num_tokens: PASSES[language])
    return document


@one_now("en")
def test_the_commands_print_what_is_shown(short: Document, capsys: pytest.CaptureFixture[str]) -> None:
    commands = [step for step in written(short) if step.kind == "console"]
    assert {shlex.split(step.code)[1] for step in commands} >= COMMANDS
    for step in commands:
        program, *arguments = shlex.split(step.code)
        assert program == "vitral", step.code
        capsys.readouterr()
        assert run(arguments) == 0, step.code
        printed = capsys.readouterr().out
        assert differs(step, printed, short) == [], f"{step.code}\n{printed}"
        for page in re.findall(r"^(?:report|page|relatório|página): +(\S+)$", printed, re.MULTILINE):
            assert Path(page).is_file()


@one_now("")
def test_the_python_prints_what_is_shown(short: Document) -> None:
    blocks, names = [step for step in written(short) if step.kind == "python"], dict[str, Any]()
    assert all(any(call in step.code for step in blocks) for call in CALLS)
    for step in blocks:
        printed = executed(step.code, names, short.language)
        assert differs(step, printed, short) == [], f"{step.code}\n{printed}"


def test_both_documents_do_the_same_work() -> None:
    english, other = (written(document) for document in DOCUMENTS.values())
    names = {document.text: "TEXT" for document in DOCUMENTS.values()}
    names |= {f"runs/{document.text[:-4]}": "RUN" for document in DOCUMENTS.values()}

    def work(step: Step) -> tuple[str, ...]:
        if step.kind == "python":
            return tuple(re.findall(r"(?:vitral|run)\.\w+", step.code))
        code = step.code
        for name, instead in sorted(names.items(), reverse=True):
            code = code.replace(name, instead)
        return tuple(word for word in shlex.split(code) if word.startswith("--") or word.isupper() or word.isalpha())

    assert [work(step)[:3] for step in english] == [work(step)[:3] for step in other]


@pytest.mark.parametrize("language", DOCUMENTS)
def test_a_document_with_todays_outputs_is_itself(language: str) -> None:
    document = DOCUMENTS[language]
    markdown = document.path.read_text(encoding="utf-8")
    assert rewritten(document, lambda step: "\n".join(step.shown)) == markdown
