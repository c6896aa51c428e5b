"""Files that are no plain text, recognised by their first bytes, and what gets the text out of them.

The suffix only tells apart what begins alike: a Word document, a book and an archive all begin as ZIP files.
"""

import codecs

from vitral.core.language import N_, _

_OFFICE, _AS_CSV = N_("your office program"), N_("your office program, as CSV")
_AS_LINES = N_("pandas, as JSON lines whose text --field NAME reads")
_RECOGNITION = N_("tesseract, which recognises it")
_FORMATS = (
    (0, b"%PDF-1.", N_("a PDF"), "pdftotext"),
    (0, b"{\\rtf1", N_("an RTF document"), _OFFICE),
    (0, b"PK\x03\x04", N_("a ZIP archive"), "unzip"),
    (0, b"\x1f\x8b\x08", N_("compressed with gzip"), "gunzip --keep"),
    (0, b"BZh", N_("compressed with bzip2"), "bunzip2 --keep"),
    (0, b"\xfd7zXZ\0", N_("compressed with xz"), "unxz --keep"),
    (0, b"\x28\xb5\x2f\xfd", N_("compressed with Zstandard"), "unzstd"),
    (257, b"ustar", N_("a tar archive"), "tar --extract"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", N_("an old Word document"), _OFFICE),
    (0, b"PAR1", N_("a Parquet table"), _AS_LINES),
    (60, b"BOOKMOBI", N_("a Kindle book"), "ebook-convert"),
    (0, b"\x89PNG\r\n\x1a\n", N_("a PNG picture"), _RECOGNITION),
    (0, b"\xff\xd8\xff", N_("a JPEG picture"), _RECOGNITION),
)
"""Offset and bytes, the name after "is", and the remedy; the first two may be UTF-8 themselves."""
_ZIPPED = {
    ".docx": (N_("a Word document"), "pandoc --to plain"),
    ".odt": (N_("an OpenDocument text"), "pandoc --to plain"),
    ".epub": (N_("an EPUB book"), "pandoc --to plain"),
    ".xlsx": (N_("an Excel workbook"), _AS_CSV),
    ".pptx": (N_("a PowerPoint presentation"), _OFFICE),
}


def foreign_format(head: bytes, suffix: str) -> str:
    """The end of a message about a file that is no plain text: its format, and how to get its text; else empty.

    Args:
        head: its first bytes, a few thousand.
        suffix: of its name.

    >>> foreign_format(b"%PDF-1.7", ".pdf")
    'is a PDF, not a text; get its text first, with pdftotext'
    """
    for place, magic, kind, remedy in _FORMATS[:2] if _may_be_text(head) else _FORMATS:
        if head.startswith(magic, place):
            kind, remedy = _ZIPPED.get(suffix.lower(), (kind, remedy)) if remedy == "unzip" else (kind, remedy)
            return _("is {kind}, not a text; get its text first, with {remedy}", kind=_(kind), remedy=_(remedy))
    return ""


def _may_be_text(head: bytes) -> bool:
    """Whether these bytes may be UTF-8 text that only begins like another format, with `BZh` for example."""
    try:
        return "\0" not in codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
