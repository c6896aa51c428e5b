"""Files that are no plain text are named as what they are, with what gets the text out of them."""

from pathlib import Path

import pytest

from tests.data.conftest import refusal
from vitral.data import texts
from vitral.data.texts import decode_document

REST = b"\0\xff" * 40
FILES = {
    "x.docx": (b"PK\x03\x04\x14\0", "pandoc"),
    "x.txt.gz": (b"\x1f\x8b\x08", "gunzip"),
    "x.pdf": (b"%PDF-1.4\n", "pdftotext"),
    "x.parquet": (b"PAR1\x15", "--field"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_format_is_named_with_its_remedy(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, remedy = FILES[name]
    file = tmp_path / name
    file.write_bytes(begin + REST)
    message = refusal(file)
    assert name in message
    assert remedy in message
    assert refusal(file, encoding="latin_1") == message  # which decodes any bytes
    monkeypatch.setattr(texts, "LONG", 0)
    assert refusal(file) == message


@pytest.mark.parametrize("text", ["%PDF is a mark", "PK"])
def test_a_text_that_begins_like_another_format_is_a_text(text: str) -> None:
    assert decode_document(text.encode(), "x.txt").text == text
