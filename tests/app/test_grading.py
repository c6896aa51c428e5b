"""vitral exercise KIND and vitral grade, as a lecturer uses them."""

import csv
import io
import json
import os
import shutil
from pathlib import Path

import pytest

COURSE = Path(__file__).parents[2] / "docs" / "gallery"
KEY = str(COURSE / "class-key.toml")
SHEETS = COURSE / "class"
GRADE = ("grade", "class", "--key", KEY)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three sheets of a class with other things in their folder."""
    made = tmp_path / "class"
    (made / "Ana").mkdir(parents=True)
    for name, number in (("sheet-01.toml", 1), ("sheet-05.toml", 5), ("Ana/sheet.toml", 1)):
        shutil.copy(SHEETS / f"sheet-0{number}.toml", made / name)
    (made / "broken.toml").write_text("title = [")
    (made / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n\xff")
    (made / "deep.toml").write_text("a = " + "[" * 4000)
    (made / "huge.toml").write_bytes(b"#" * (2**20 + 1))
    (made / ".hidden.toml").write_text("no")
    (made / "loop").symlink_to(made)
    return made


def graded(told) -> dict[str, dict]:
    """What is told of each sheet."""
    return {sheet["sheet"]: sheet for sheet in json.loads(told.out)["sheets"]}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_broken_file_does_not_stop_the_others(vitral, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vitral.explanation.grading import sheets as grading

    os.mkfifo(folder / "pipe.toml")
    (folder / "nested.toml").write_text("[given]\n[claimed]\nq = " + "[" * 150 + "]" * 150 + "\n")
    told = vitral(*GRADE, "--format", "json")
    assert (told.code, len(told.err.splitlines())) == (2, 6)
    sheets = graded(told)
    assert sheets["Ana/sheet.toml"]["points"] == sheets["sheet-01.toml"]["points"] == 8
    unread = {"broken.toml", "photo.png", "deep.toml", "huge.toml", "loop", "pipe.toml"}
    assert {name for name, sheet in sheets.items() if "error" in sheet} == unread
    assert len(sheets) == 4 + len(unread)
    grade = grading.grade_document

    def failing(document, key, rule):
        if document.name == "sheet-05.toml":
            raise ZeroDivisionError
        return grade(document, key, rule)

    monkeypatch.setattr(grading, "grade_document", failing)
    sheets = graded(vitral(*GRADE, "--format", "json"))
    assert "ZeroDivisionError" in sheets["sheet-05.toml"]["error"]
    assert sheets["sheet-01.toml"]["points"] == 8


def test_pages_are_written_once_and_in_the_language(vitral, folder: Path, tmp_path: Path) -> None:
    line = (*GRADE, "--out", "page.html", "--marked", "marked", "--lang", "pt")
    assert vitral(*line).code == 2
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert '<html lang="pt-BR"' in page
    assert "<script src" not in page
    marked = {path.name for path in (tmp_path / "marked").rglob("*.html")}
    assert marked == {"sheet.toml.html", "sheet-01.toml.html", "sheet-05.toml.html"}
    again = vitral(*line)
    assert (again.code, again.out) == (2, "")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "sheet-05.toml.html").symlink_to(tmp_path / "nowhere")
    assert vitral(*GRADE, "--marked", "other", "--out", "p.html").code == 2
    assert len(list((tmp_path / "other").iterdir())) == 1
    assert not (tmp_path / "p.html").exists()
    for form in ("html", "markdown"):
        assert "sheet-05" in vitral(*GRADE, "--format", form).out


def test_a_lecturer_makes_exercises_for_a_class_and_grades_them(vitral, tmp_path: Path) -> None:
    made = vitral("exercise", "attention", "--count", "2", "--out", "week", "--lang", "pt")
    assert made.code == 0
    sheets = {path.name for path in (tmp_path / "week").iterdir()}
    assert {"attention-1.toml", "attention-2.tex", "attention-2.html", "gabaritos"} <= sheets
    keys = tmp_path / "week" / "gabaritos"
    assert (keys / "attention-2-gabarito.html").is_file()
    assert vitral("exercise", "attention", "--seed", "2,9", "--out", "week", "--lang", "pt").code == 2
    assert not (tmp_path / "week" / "attention-9.toml").exists()
    answers = tmp_path / "answers"
    answers.mkdir()
    for number in (1, 2):
        shutil.copy(keys / f"attention-{number}-gabarito.toml", answers / f"ana {number}.toml")
    shutil.copy(tmp_path / "week" / "attention-1.toml", answers / "blank.toml")
    if (tmp_path / "week" / "attention-1.xlsx").exists():
        shutil.copy(keys / "attention-2-gabarito.xlsx", answers / "eva.xlsx")
    # One exercise and its key in a folder are one key.
    (tmp_path / "both").mkdir()
    for path in (*keys.glob("*.toml"), *(tmp_path / "week").glob("*.toml")):
        shutil.copy(path, tmp_path / "both" / f"{len(path.stem)}-{path.name}")  # the exercise before its key
    for key in ("week/gabaritos", "both"):
        told = vitral("grade", "answers", "--key", key, "--format", "json")
        points = {name: sheet["points"] / sheet["most"] for name, sheet in graded(told).items()}
        assert points.pop("blank.toml") == 0
        assert set(points.values()) == {1}
        assert len({sheet["exercise"] for sheet in graded(told).values()}) == 2


def test_one_form_is_written_with_its_key_beside_it(vitral, tmp_path: Path) -> None:
    assert vitral("exercise", "loss", "--seed", "4", "--out", "mine.html").code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"mine.html", "mine-key.html"}
    assert vitral("exercise", "choice", "--out", "all", "--practice").code == 0
    assert [path.name for path in (tmp_path / "all" / "practice").iterdir()] == ["choice-1.html"]
    assert vitral("exercise", "loss", "mine.toml", "--seed", "4").code == 0
    assert '"?"' in (tmp_path / "mine.toml").read_text(encoding="utf-8")
    for wrong in (
        ("atention",),
        ("choice", "--positions", "2"),
        ("loss", "--seed", "x"),
        ("loss", "--seed", "1,2", "--out", "x.html"),
        ("loss", "--seed", "1,2"),
        ("loss", "--count", "0", "--out", "x"),
        ("loss", "--practice"),
        ("loss", "--practice", "--out", "x.html"),
        ("loss", "--seed", "1,2", "--count", "2", "--out", "x"),
    ):
        told = vitral("exercise", *wrong)
        assert (told.code, told.out, told.err.count("\n")) == (2, "", 1), wrong


def test_names_of_files_never_stop_the_class_and_never_leak(vitral, tmp_path: Path) -> None:
    sheet = (SHEETS / "sheet-01.toml").read_bytes()
    made = tmp_path / "class"
    (made / "a").mkdir(parents=True)
    bad = os.fsencode(made) + b"/caf\xe9.toml"
    try:
        Path(os.fsdecode(bad)).write_bytes(sheet)
    except OSError:
        pytest.skip("names are UTF-8 here")
    for name in ("a/b.toml", "a--b.toml", "=cmd.toml", "'@x.toml"):
        (made / name).write_bytes(sheet)
    plain = json.loads(vitral(*GRADE, "--format", "json", "--marked", "marked").out)
    assert len(list((tmp_path / "marked").rglob("*.html"))) == plain["graded"]
    rows = list(csv.reader(io.StringIO(vitral(*GRADE, "--format", "csv").out)))
    assert {row[0][0] for row in rows} & {"=", "@"} == set()
    assert "'=cmd.toml" in {row[0] for row in rows}


@pytest.mark.parametrize(("language", "told"), [("en", "1 sheet graded, mean"), ("pt", "1 folha corrigida, média")])
def test_a_key_is_found_by_its_name_in_either_language(vitral, tmp_path: Path, language: str, told: str) -> None:
    for made in ("en", "pt"):
        vitral("exercise", "loss", "--out", str(tmp_path / made / "you.toml"), "--lang", made)
        for key in ("you-key.toml", "you-gabarito.toml"):
            graded = vitral("grade", str(tmp_path / made), "--key", str(tmp_path / made / key), "--lang", language)
            assert graded.out.startswith(told)
