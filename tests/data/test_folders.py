"""Which files of a folder are read: those that match a pattern, and none that Vitral wrote."""

from pathlib import Path

import pytest

from tests.data.conftest import refusal
from vitral.core.errors import UsageError
from vitral.data import CorpusConfig, load_corpus
from vitral.data.long_texts import pieces

RUN = ("config.toml", "run.json", "metrics.jsonl", "steps/step-1/state.json")
STUDY = ("study.json", "arms/base-seed-1/config.toml", "arms/base-seed-1/metrics.jsonl", "report/study.html")
REPORT = ("report.html", "MANIFEST.json", "figures/x.svg")


def write(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.rpartition("/")[2].encode())
    return folder


def load(folder: Path, *glob: str) -> str:
    return str(load_corpus(CorpusConfig.parse({"source": str(folder), "separator": " ", "glob": list(glob)})).text)


@pytest.mark.parametrize(
    ("pattern", "result"),
    [
        ("*.py", "a.py b.py c.py"),
        ("src/*.py", "b.py"),
        ("src/**", "b.py b.txt c.py"),
        ("src/**/*.py", "b.py c.py"),
        ("**/*.py", "a.py b.py c.py"),
        ("**/in/*", "c.py"),
        ("[ab].py", "a.py b.py"),
        ("?.txt", "b.txt"),
        ("**", "a.py b.py b.txt c.py"),
    ],
)
def test_patterns(tmp_path: Path, pattern: str, result: str) -> None:
    write(tmp_path, "a.py", "src/b.py", "src/b.txt", "src/in/c.py", ".hidden.py", ".git/d.py")
    assert sorted(load(tmp_path, pattern).split()) == sorted(result.split())


def test_one_of_several_patterns_is_enough(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "b.txt", "c.md")
    assert load(tmp_path, "*.py", "*.md") == "a.py c.md"
    assert load(tmp_path) == "a.py b.txt c.md"
    assert CorpusConfig.parse({"glob": []}) == CorpusConfig()


@pytest.mark.parametrize("pattern", ["../*", "a/../*", "./*", "", "src/", "\ud800"])
def test_a_pattern_that_matches_nothing_is_refused(tmp_path: Path, pattern: str) -> None:
    write(tmp_path, "a.txt", "in/a.txt")
    with pytest.raises(UsageError, match="glob"):
        load(tmp_path / "in", pattern)


def test_patterns_are_for_folders(tmp_path: Path) -> None:
    write(tmp_path, "a.txt")
    assert "--glob" in refusal(tmp_path / "a.txt", glob=["*.txt"])
    assert "--glob" in refusal("sample", glob=["*.txt"])
    assert "--glob" in refusal("sample-pt", glob=["*.txt"])
    python = load_corpus(CorpusConfig(source="python", glob=("json/*.py",)))
    assert "class JSONDecoder" in "".join(pieces(python.text))
    assert python.num_bytes < 200_000


@pytest.mark.parametrize(("kind", "names"), [("run", RUN), ("study", STUDY), ("report", REPORT)])
def test_what_vitral_wrote_is_no_text(tmp_path: Path, kind: str, names: tuple[str, ...]) -> None:
    mine = write(tmp_path / "mine", *names)
    message = refusal(mine)
    assert f"mine: is a {kind}, not a text; " in message
    assert str(mine) in message.partition(";")[2] or kind == "report"
    assert "no UTF-8 text" in refusal(tmp_path)  # a folder of nothing else
    write(tmp_path, "a.txt")
    corpus = load_corpus(CorpusConfig(source=str(tmp_path)))
    assert corpus.text == "a.txt"


def test_folders_that_only_look_similar_are_text(tmp_path: Path) -> None:
    for names in (("config.toml", "a.txt"), ("study.json", "a.txt"), ("MANIFEST.json", "a.txt"), ("a.html", "b.txt")):
        folder = write(tmp_path / names[0].partition(".")[0], *names)
        assert load(folder) == " ".join(sorted(names))
