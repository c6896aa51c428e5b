"""The text of a run is found again wherever it lies on this machine, is never another one, and is never downloaded."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from vitral.core.errors import UsageError
from vitral.data import (
    CorpusConfig,
    Dataset,
    char_tokenizer,
    prepare,
    prepare_recorded,
    texts,
)
from vitral.data.dataset import without_folders

Recorded = dict[str, Any]
CHARACTERS = 20_011


def write(path: Path, seed: int = 7, characters: int = CHARACTERS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = random.Random(seed).choices("abcdefgh \n", k=characters)
    path.write_text("".join(drawn), encoding="utf-8", newline="\n")
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run."""
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def train_on(source: str | Path, **options: object) -> tuple[CorpusConfig, Dataset, Recorded]:
    """What a run writes down: configuration, dataset (with the tokenizer), corpus.json."""
    config = CorpusConfig.parse({"source": str(source), **options})
    dataset = prepare(config)
    return config, dataset, json.loads(json.dumps(dataset.describe()))


def again(trained: tuple[CorpusConfig, Dataset, Recorded], run: Path, **options: Any) -> Dataset:
    config, dataset, recorded = trained
    result = prepare_recorded(config, recorded, tokenizer=dataset.tokenizer, run_folder=run, **options)
    assert result.fingerprint == dataset.fingerprint
    assert result.name == dataset.name
    assert all((result.splits[name].tokens == dataset.splits[name].tokens).all() for name in dataset.splits)
    return result


def refused(trained: tuple[CorpusConfig, Dataset, Recorded], run: Path, **options: Any) -> str:
    with pytest.raises(UsageError) as error:
        again(trained, run, **options)
    return str(error.value)


SOURCES = {
    "at its place": ("my.txt", None),
    "given as a file": ("other name.dat", "other name.dat"),
    "given as a name": ("own/words.txt", "words"),
}
"""Where a text lies now, and what is given to find it."""


@pytest.mark.parametrize("case", SOURCES)
@pytest.mark.parametrize("long", [False, True])
def test_a_file_is_found_at_its_place_or_where_it_is_given(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch, case: str, long: bool
) -> None:
    (tmp_path / "own").mkdir()
    monkeypatch.setenv("VITRAL_CORPORA", str(tmp_path / "own"))
    trained = train_on(write(tmp_path / "my.txt"))
    if long:
        monkeypatch.setattr(texts, "LONG", 0)
        monkeypatch.setattr(texts, "PIECE", 1009)
    now, given = SOURCES[case]
    shutil.move(tmp_path / "my.txt", tmp_path / now)
    again(trained, run, **{} if given is None else {"corpus": given if given == "words" else str(tmp_path / given)})
    if given is not None:
        assert "--corpus" in refused(trained, run)


def test_another_text_is_refused_and_named(tmp_path: Path, run: Path) -> None:
    trained = train_on(write(tmp_path / "my.txt"))
    write(tmp_path / "my.txt", 8, CHARACTERS)
    for options in ({}, {"corpus": tmp_path / "my.txt"}):
        message = refused(trained, run, **options)
        assert trained[2]["sha256"][:12] in message
        assert f"{CHARACTERS:,} bytes" in message
        assert str(tmp_path / "my.txt") in message
        assert "--corpus" in message


def test_the_same_text_read_in_another_way_is_refused_before_anything_is_stored(
    tmp_path: Path, run: Path, cache: Path
) -> None:
    config, dataset, recorded = train_on(write(tmp_path / "my.txt"))
    before = sorted(cache.rglob("*"))
    for changed in (
        (config.model_copy(update={"split": "tail"}), dataset, recorded),
        (config.model_copy(update={"share": 0.5}), dataset, recorded),
        (config, dataset, {**recorded, "fingerprint": "0" * 32}),
    ):
        refused(changed, run)
    with pytest.raises(UsageError):
        prepare_recorded(config, recorded, tokenizer=char_tokenizer("abcdefgh \nz"), run_folder=run)
    assert sorted(cache.rglob("*")) == before


def folder_of_texts(root: Path) -> Path:
    for number, name in enumerate(("one.txt", "deep/two.md", "three.py")):
        write(root / name, number, 7_001)
    (root / "picture.png").write_bytes(b"\x89PNG\xff" * 101)
    return root


def test_a_folder_is_found_again(tmp_path: Path, run: Path) -> None:
    trained = train_on(folder_of_texts(tmp_path / "books"))
    again(trained, run)
    (tmp_path / "books").rename(tmp_path / "moved")
    refused(trained, run)
    again(trained, run, corpus=tmp_path / "moved")
    write(tmp_path / "moved" / "one.txt", 99, 7_001)
    refused(trained, run, corpus=tmp_path / "moved")


def test_a_text_is_read_again_from_where_it_was_found(tmp_path: Path, run: Path) -> None:
    trained = train_on(write(tmp_path / "my.txt"))
    shutil.move(tmp_path / "my.txt", tmp_path / "other name.dat")
    result = again(trained, run, corpus=tmp_path / "other name.dat")
    assert result.load_text().sha256 == result.text.sha256
    write(tmp_path / "other name.dat", 8)
    with pytest.raises(UsageError):
        result.load_text()
    bundled = train_on("sample")
    assert bundled[1].load_text().name == "sample"
    assert "path" not in bundled[2]
    again(bundled, run)


WRONG: list[dict[str, Any]] = [
    *({"bytes": value} for value in (None, -1, True, "7", 1 << 70)),
    {"sha256": "G" * 64},
    {"fingerprint": "é" * 32},
    {"path": 7},
    {"trained_on": {"also": [7]}},
    {"trained_on": {"also": 5}},
]


@pytest.mark.parametrize("wrong", WRONG, ids=ascii)
def test_a_malformed_document_is_one_line(tmp_path: Path, run: Path, wrong: dict[str, Any]) -> None:
    config, dataset, recorded = train_on(write(tmp_path / "my.txt"))
    assert "corpus.json" in refused((config, dataset, recorded | wrong), run)
    for key in wrong:
        if key in ("bytes", "sha256", "fingerprint", "characters", "name"):
            del recorded[key]
            assert f"{key}" in refused((config, dataset, recorded), run)


def test_a_published_record_names_files_without_their_folders() -> None:
    record = {
        "path": "/home/someone/texts/play.txt",
        "notes": ["Read from /home/someone/texts/play.txt.", "Newlines were changed (3)."],
        "trained_on": {"also": [{"name": "other", "path": "C:\\texts\\other.txt"}]},
        "split": {"tokens": {"train": 7}},
    }
    assert without_folders(record) == {
        "path": "play.txt",
        "notes": ["Read from play.txt.", "Newlines were changed (3)."],
        "trained_on": {"also": [{"name": "other", "path": "other.txt"}]},
        "split": {"tokens": {"train": 7}},
    }
