"""Texts as bytes: whatever a file holds, it comes back whole or is refused in one line."""

import os
import socket
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.reliability.children import ON_LINUX
from tests.reliability.conftest import Tally, scaled
from vitral.core.errors import UsageError
from vitral.data import CorpusConfig, corpora, load_corpus, prepare, prepare_recorded, sources, texts
from vitral.data.long_texts import pieces
from vitral.data.texts import Document, read_file

TOKENIZERS = ("char", "byte", {"name": "bpe", "vocab_size": 300})
MILLION = 10**6
SPECIAL: dict[str, bytes] = {
    "empty": b"",
    "the shortest": b"a" * 20,
    "one less": b"a" * 19,
    "a byte order mark": b"\xef\xbb\xbf" + b"abc" * 30,
    "UTF-16, little": "abc".encode("utf-16") * 30,
    "UTF-16, big": b"\xfe\xff" + "abc".encode("utf-16-be") * 30,
    "mixed newlines": b"one\r\ntwo\rthree\n\r\n\r\r\n" * 30,
    "NUL": b"a\0b" * 30,
    "bad UTF-8 at the end": b"a" * 100 + b"\xff",
    "overlong": b"\xc0\xaf",
    "a surrogate": b"a\xed\xa0\x80",
    "beyond Unicode": b"a\xf4\x90\x80\x80",
    "cut in a character": "é".encode() * 100 + b"\xc3",
    "everything of one byte": bytes(range(128)) * 5,
    "the highest": chr(0x10FFFF).encode() * 100,
    "one long character": "😀".encode() * 50_000,
    "more than 65,535 characters": "".join(
        chr(point) for point in range(0x20, 0x11000) if not 0xD800 <= point < 0xE000
    ).encode(),
    "one line of 20 MB": b"all of this is one line " * (20 * MILLION // 24),
}


def outcome(path: Path, tokenizer: object, newlines: str = "keep") -> str | None:
    """Prepare a text; gives the complaint, None where every character came back."""
    config = CorpusConfig.parse({"source": str(path), "tokenizer": tokenizer, "split": "tail", "newlines": newlines})
    try:
        corpus = load_corpus(config)
        dataset = prepare(config, corpus=corpus, cache=path.parent / "cache")
    except UsageError as error:
        assert str(error).isprintable(), str(error)[:300]
        return str(error)
    tokens = [int(token) for part in ("train", "validation", "test") for token in dataset.splits[part].tokens[:9000]]
    text = "".join(pieces(corpus.text))
    if len(text) <= 9000:
        assert dataset.tokenizer.decode(tokens) == text
    sample = text[:50_000]
    assert dataset.tokenizer.decode(dataset.tokenizer.encode(sample)) == sample
    assert all(part.tokens.max(initial=0) < dataset.tokenizer.vocab_size for part in dataset.splits.values())
    return None


@pytest.mark.parametrize("name", SPECIAL)
def test_special_texts(name: str, tmp_path: Path, tally: Tally) -> None:
    (tmp_path / "x.txt").write_bytes(SPECIAL[name])
    small = len(SPECIAL[name]) < 10 * MILLION
    for tokenizer in TOKENIZERS if small else TOKENIZERS[:1]:
        complaint = outcome(tmp_path / "x.txt", tokenizer)
        try:
            text = SPECIAL[name].decode("utf-8-sig")
        except UnicodeDecodeError:
            assert "UTF-8" in (complaint or "")
        else:
            assert (complaint is None) == (len(text) >= 20), complaint
        tally("texts as bytes", 1)


@settings(max_examples=scaled(30, 6000), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=400), st.sampled_from(TOKENIZERS), st.sampled_from(["lf", "keep"]))
def test_any_bytes(tmp_path: Path, tally: Tally, raw: bytes, tokenizer: object, newlines: str) -> None:
    tally("texts as bytes", 1)
    (tmp_path / "x.txt").write_bytes(raw)
    outcome(tmp_path / "x.txt", tokenizer, newlines)


@settings(max_examples=scaled(30, 14_000), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(min_size=20, max_size=300), st.sampled_from(TOKENIZERS))
def test_any_text_comes_back(tmp_path: Path, tally: Tally, text: str, tokenizer: object) -> None:
    tally("texts as bytes", 1)
    (tmp_path / "x.txt").write_bytes(text.encode("utf-8", "surrogatepass"))
    complaint = outcome(tmp_path / "x.txt", tokenizer)
    surrogate = any(0xD800 <= ord(character) <= 0xDFFF for character in text)
    mark = text.startswith("\ufeff")
    assert (complaint is None) or surrogate or mark, complaint


@ON_LINUX
def test_a_circle_of_links_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert outcome(tmp_path / "loop", "char")


def test_a_file_that_grows_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.txt"
    path.write_text("a line\n" * 1000)
    monkeypatch.setattr("vitral.data.texts.LONG", 0)
    monkeypatch.setattr("vitral.data.texts.PIECE", 1000)
    original = texts._decoded

    def growing(raw: bytes, *where: Any) -> str:
        with path.open("a") as file:
            file.write("more\n")
        return original(raw, *where)

    monkeypatch.setattr(texts, "_decoded", growing)
    assert "has changed while it was read" in (outcome(path, "char") or "")


# A stranger's run names its text; nothing of that may download, wait, or read anything but a file of the recorded size.

PLACES: tuple[str, ...] = (
    "http://127.0.0.1:9/x.txt",
    "file:///etc/passwd",
    "git+ssh://127.0.0.1/x",
    "shakespeare",
    "sample",
    "/dev/zero",
    "/dev/tty",
    "/proc/self/environ",
    "/etc/passwd",
    "/",
    ".",
    "~a\0b",
    "x" * 5000,
    "../" * 40 + "etc/passwd",
    r"\\server\share\x.txt",
    "\x1b[2J\x1b]0;title\x07",
    "a\nb\u202ec",
    "{tmp}/pipe",
    "{tmp}/socket",
    "{tmp}/loop",
    "{tmp}/to zero",
    "{tmp}/to nothing",
    "{tmp}/full of links",
    "{tmp}/full of pipes",
    "{tmp}/secret.txt",
    "{tmp}/sparse",
)
SECRET = b"a secret of the user " * 101
CLAIMS = (1, len(SECRET), 1 << 30, 1 << 61)


def strange_folder(tmp: Path) -> None:
    """Pipes, sockets, links in circles and to devices, a sparse file of a terabyte."""
    os.mkfifo(tmp / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp / "socket"))
    (tmp / "loop").symlink_to(tmp / "loop")
    (tmp / "to zero").symlink_to("/dev/zero")
    (tmp / "to nothing").symlink_to(tmp / "nothing")
    for name in ("full of links", "full of pipes"):
        (tmp / name).mkdir()
    for number in range(5):
        (tmp / "full of links" / f"{number}.txt").symlink_to(("/dev/zero", "/etc/passwd", "/dev/tty")[number % 3])
        os.mkfifo(tmp / "full of pipes" / f"{number}.txt")
    (tmp / "secret.txt").write_bytes(SECRET)
    with (tmp / "sparse").open("wb") as file:
        file.truncate(1 << 40)


@ON_LINUX
@pytest.mark.parametrize("role", ["source", "path", "also"])
def test_a_strangers_source_is_harmless(
    role: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, tally: Tally
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    strange_folder(tmp_path)
    monkeypatch.setenv("VITRAL_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("VITRAL_CORPORA", raising=False)
    monkeypatch.chdir(tmp_path)
    read: list[int] = []

    def watched(file: BinaryIO, path: Path, config: CorpusConfig) -> Document:
        read.append(os.fstat(file.fileno()).st_size)
        return read_file(file, path, config)

    def never(*_: object) -> None:
        raise AssertionError("a download was started, or a folder was read")

    monkeypatch.setattr(corpora, "read_file", watched)
    monkeypatch.setattr(sources, "_download", never)
    monkeypatch.setattr(socket.socket, "connect", never)
    monkeypatch.setattr(socket, "getaddrinfo", never)
    monkeypatch.setattr(corpora, "_of_files", never)
    main = CorpusConfig(source=str(tmp_path / "main.txt"), split="tail")
    (tmp_path / "main.txt").write_text("a text of the stranger\n" * 101)
    known = prepare(main)
    for number, place in enumerate(PLACES):
        place = place.replace("{tmp}", str(tmp_path))
        claim = CLAIMS[number % len(CLAIMS)]
        wrong = {"bytes": claim, "sha256": "0" * 64}
        if number % 2:
            wrong["folder"] = {"files": 5, "bytes": claim}
        document: dict[str, object] = {**known.describe()}
        config = main
        if role == "source":
            config = main.model_copy(update={"source": place})
            document |= {**wrong, "path": None}
        elif role == "path":
            config = main.model_copy(update={"source": "gone.txt"})
            document |= {**wrong, "path": place}
        else:
            config = main.model_copy(update={"also": (place,)})
            other = {"name": "x", "characters": claim, "training_characters": 1, **wrong}
            document["trained_on"] = {"training_characters": 1, "also": [other]}
        read.clear()
        with pytest.raises(UsageError) as error:
            prepare_recorded(config, document, tokenizer=known.tokenizer, run_folder=run)
        assert str(error.value).isprintable(), place
        assert len(str(error.value)) < 1500, place
        assert set(read) <= {claim, known.num_bytes}, place
        tally("hostile sources of a stranger's run", 1)
