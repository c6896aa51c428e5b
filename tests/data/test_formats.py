"""Files that are no plain text are named as what they are, with how to get the text out of them."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.data.conftest import refusal
from vitral.data import texts
from vitral.data.texts import decode_document


def zipped(**files: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


def tarred() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        inside = tarfile.TarInfo("a.txt")
        inside.size = 5
        archive.addfile(inside, io.BytesIO(b"hello"))
    return made.getvalue()


FILES: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "x.docx": (lambda: zipped(**{"[Content_Types].xml": "<x/>", "word/document.xml": "<x/>"}), "Word", "pandoc"),
    "x.xlsx": (lambda: zipped(**{"[Content_Types].xml": "<x/>", "xl/workbook.xml": "<x/>"}), "Excel", "CSV"),
    "x.odt": (lambda: zipped(mimetype="application/vnd.oasis.opendocument.text"), "OpenDocument text", "pandoc"),
    "x.epub": (lambda: zipped(mimetype="application/epub+zip"), "EPUB", "pandoc"),
    "x.zip": (lambda: zipped(**{"a.txt": "hello"}), "ZIP", "unzip"),
    "x.txt.gz": (lambda: gzip.compress(b"hello"), "gzip", "gunzip"),
    "x.bz2": (lambda: bz2.compress(b"hello"), "bzip2", "bunzip2"),
    "x.xz": (lambda: lzma.compress(b"hello"), "xz", "unxz"),
    "x.tar": (tarred, "tar archive", "tar --extract"),
    "x.pdf": (lambda: b"%PDF-1.4\n1 0 obj\n<< >>\nendobj\n%%EOF\n", "PDF", "pdftotext"),
    "x.rtf": (lambda: rb"{\rtf1\ansi Hello}", "RTF", "soffice"),
    "x.doc": (lambda: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "old Word", "soffice"),
    "x.parquet": (lambda: b"PAR1\x15\x04\x15\x00" + bytes(40) + b"PAR1", "Parquet", "--field"),
    "x.jpg": (lambda: b"\xff\xd8\xff\xe0\0\x10JFIF\0", "JPEG", "tesseract"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_format_is_named_with_its_remedy(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, kind, remedy = FILES[name]
    (tmp_path / name).write_bytes(make())
    message = refusal(tmp_path / name)
    assert kind in message
    assert remedy in message
    assert name in message
    assert refusal(tmp_path / name, encoding="latin_1") == message  # which decodes any bytes
    spaced = tmp_path / f"my {name}"
    spaced.write_bytes(make())
    assert "'" in refusal(spaced)  # the name has a space, and is quoted in the command
    monkeypatch.setattr(texts, "LONG", 0)
    assert refusal(tmp_path / name) == message


@pytest.mark.parametrize(
    "text", ["ID3 is a tag.", "PAR1 and PAR2", "The new WEBP format", "BM25 ranks", "%PDF is a mark", "GIF89a", "PK"]
)
def test_a_text_that_begins_like_another_format_is_a_text(text: str) -> None:
    assert decode_document(text.encode(), "x.txt").text == text
