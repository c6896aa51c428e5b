"""Texts as bytes: whatever a file holds, it comes back whole or is refused in one line."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.reliability.children import ON_LINUX
from tests.reliability.conftest import Tally, scaled
from vitral.core.errors import UsageError
from vitral.data import CorpusConfig, load_corpus, prepare, texts
from vitral.data.long_texts import pieces

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
