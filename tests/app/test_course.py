"""The course: its pages are what the templates make of the measured numbers, its numbers and its commands are right."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from docs.make_class import HAND, PAGE, TRAIN, commands, parts, prepared, slides
from docs.make_course import DOCS, FOLDERS, evaluated, expressions, kept, minutes, names, rendered
from vitral.app.terminal import app, run
from vitral.page.tour import stops_of

LESSONS = [name for name in names() if name[:2].isdigit()]
QUICK = ("check", "exercise", "grade", "explain", "corpus", "count", "list")
WORDS = 1200


def page(name: str, language: str) -> str:
    return (FOLDERS[language] / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", names())
def test_its_pages_are_those_of_the_templates(name: str) -> None:
    for file, text in rendered(name).items():
        assert file.read_text(encoding="utf-8") == text, f"make course writes {file.name} anew"


@pytest.mark.parametrize("name", names())
def test_what_needs_no_training_is_measured_again(name: str) -> None:
    known = kept(name)
    found = evaluated(name, ("values",), {})
    for expression, value in found.items():
        assert _alike(value, known[expression]), expression
    assert set(known) == {each for kind in expressions(name).values() for each in kind.values()}


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    return one == pytest.approx(other, rel=1e-4, abs=1e-6) if isinstance(one, float) else one == other


@pytest.mark.parametrize("language", FOLDERS)
@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_has_its_parts_and_is_short(name: str, language: str) -> None:
    told = parts(page(name, language))
    assert len(told) == 6
    read = re.sub(r"^```.*?^```$|^\|.*?$", "", told[0], flags=re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"\w+(?:['’-]\w+)*", read)) <= WORDS
    assert told[4].count("<details>") == 3
    assert all(any(commands(told[part])) for part in (PAGE, HAND, TRAIN))
    assert (DOCS / "course" / "tours" / f"{name[:2]}.toml").is_file()


@pytest.mark.parametrize("name", LESSONS)
def test_both_languages_have_the_same_commands(name: str) -> None:
    english, portuguese = (
        re.findall(r"^(?:vitral|python) .*?(?=  |$)", page(name, language), re.MULTILINE) for language in FOLDERS
    )
    alike = [re.sub(r"sample-pt", "sample", line).replace("docs/pt/course", "docs/course") for line in portuguese]
    without = [re.sub(r' --text "[^"]*"| --prompt "[^"]*"', "", line) for line in (*english, *alike)]
    assert without[: len(english)] == without[len(english) :]


@pytest.mark.parametrize("language", FOLDERS)
@pytest.mark.parametrize("name", LESSONS)
def test_its_commands_run_or_exist_with_their_options(
    name: str, language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: Any = get_command(app)
    for folder in ("docs", "src"):
        (tmp_path / folder).symlink_to(DOCS.parent / folder)
    monkeypatch.chdir(tmp_path)
    for words in commands(page(name, language)):
        if words[:2] == ["mkdir", "-p"]:
            Path(words[2]).mkdir(parents=True)
            Path(words[-1]).write_bytes(Path(words[-2]).read_bytes())
        if words[0] != "vitral":
            continue
        options = {flag for option in made.commands[words[1]].params for flag in option.opts}
        given = {word for word in words[2:] if re.match(r"--?[a-z]", word)}
        assert given <= options, words
        for tour in words[words.index("--tour") + 1 :][:1] if "--tour" in words else ():
            assert stops_of(Path(tour))
        if words[1] in QUICK and not any(word.startswith("runs/") for word in words):
            assert run(words[1:]) in ((0, 1) if words[1] == "check" else (0,)), capsys.readouterr().err


@pytest.mark.parametrize("language", FOLDERS)
@pytest.mark.parametrize("name", LESSONS)
def test_its_python_prints_what_it_shows(name: str, language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DOCS.parent)
    for code, shown in re.findall(r"^```python\n([^`]*?)^```\n+```text\n(.*?)^```$", page(name, language), re.M | re.S):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, name, "exec"), {})
        assert printed.getvalue().split() == shown.split()


@pytest.mark.parametrize("language", FOLDERS)
def test_a_class_has_a_screen_for_each_heading_and_a_sheet_for_each_student(language: str, tmp_path: Path) -> None:
    name = "02-attention"
    made = slides(FOLDERS[language] / f"{name}.md", language)
    headings = re.findall(r"^#{1,3} ", re.sub(r"^```.*?^```$", "", page(name, language), flags=re.M | re.S), re.M)
    assert made.count("<section>") == len(headings) + 3
    assert not re.findall(r'(?:src|href)="(?!data:|#)[^"]*\.(?:js|css|png|svg)"', made)
    sheets, bundle = prepared(FOLDERS[language] / f"{name}.md", tmp_path, language, 7)
    assert sheets[sheets.index("--count") + 1] == "7"
    assert bundle[-4:] == ["-o", f"{tmp_path / 'page.html'}", "--lang", language]


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_takes_as_long_in_both_languages_as_its_parts(name: str) -> None:
    english, portuguese = (minutes(language, int(name[:2])) for language in FOLDERS)
    (total,) = re.findall(r"^\*\*Time\*\*: (\d+)", page(name, "en"), re.MULTILINE)
    assert english == portuguese
    assert sum(english) == int(total)
