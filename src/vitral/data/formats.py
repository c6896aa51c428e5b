"""Files that are no plain text, recognised by their first bytes, and how to get the text out of them.

The suffix only tells apart what begins alike: a Word document, a book and an archive all begin as ZIP files.
"""

import codecs
import shlex
from pathlib import Path

from vitral.core.language import N_, _

_READ = N_("get its text with: {command}")
_UNPACK = N_("unpack it, and give the folder or a file of it: {command}")
_OFFICE = N_("save it as text in your office program, or soffice --headless --convert-to txt:Text {file}")
_TABLE = N_("save it as CSV in your office program, or soffice --headless --convert-to csv {file}")
_PICTURE = N_("a text in it must be recognised first, for example with tesseract {file} {stem}")
_SOUND = N_("speech in it must be transcribed first")
_ROWS = N_(
    "write its text column as JSON lines, for example pandas.read_parquet({name!r}).to_json({lines!r}, "
    "orient='records', lines=True), and give --field COLUMN"
)
_PANDOC = "pandoc --to plain --wrap none {file} --output {text}"

_PLAIN = (
    (0, b"%PDF-1.", N_("a PDF"), _READ, "pdftotext {file} {text}"),
    (0, b"{\\rtf1", N_("an RTF document"), _OFFICE, ""),
)
"""Formats that may be UTF-8 themselves: offset and bytes, the name after "is", the remedy and its command."""
_ZIPPED = {
    ".docx": (N_("a Word document"), _READ, _PANDOC),
    ".odt": (N_("an OpenDocument text"), _READ, _PANDOC),
    ".epub": (N_("an EPUB book"), _READ, _PANDOC),
    ".xlsx": (N_("an Excel workbook"), _TABLE, ""),
    ".pptx": (N_("a PowerPoint presentation"), _OFFICE, ""),
}
_ARCHIVE = (N_("a ZIP archive"), _UNPACK, "unzip {file} -d {stem}")
_ZIP = b"PK\x03\x04"
_OTHERS = (
    (0, b"\x1f\x8b\x08", N_("compressed with gzip"), _UNPACK, "gunzip --keep {file}"),
    (0, b"BZh", N_("compressed with bzip2"), _UNPACK, "bunzip2 --keep {file}"),
    (0, b"\xfd7zXZ\0", N_("compressed with xz"), _UNPACK, "unxz --keep {file}"),
    (0, b"\x28\xb5\x2f\xfd", N_("compressed with Zstandard"), _UNPACK, "unzstd {file}"),
    (257, b"ustar", N_("a tar archive"), _UNPACK, "tar --extract --file {file}"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", N_("an old Word document"), _OFFICE, ""),
    (0, b"PAR1", N_("a Parquet table"), _ROWS, ""),
    (60, b"BOOKMOBI", N_("a Kindle book"), _READ, "ebook-convert {file} {text}"),
    (0, b"\x89PNG\r\n\x1a\n", N_("a PNG picture"), _PICTURE, ""),
    (0, b"\xff\xd8\xff", N_("a JPEG picture"), _PICTURE, ""),
    (0, b"ID3", N_("an MP3 recording"), _SOUND, ""),
)


def foreign_format(head: bytes, where: str) -> str:
    """The end of a message about a file that is no plain text: its format, and how to get its text; else empty.

    Args:
        head: its first bytes, a few thousand.
        where: its path, for the suffix and the commands.

    >>> foreign_format(b"%PDF-1.7", "my.pdf")
    'is a PDF, not a text; get its text with: pdftotext my.pdf my.txt'
    """
    path = Path(where)
    known = (
        _PLAIN if _may_be_text(head) else (*_PLAIN, (0, _ZIP, *_ZIPPED.get(path.suffix.lower(), _ARCHIVE)), *_OTHERS)
    )
    found = next((how for place, magic, *how in known if head.startswith(magic, place)), None)
    if found is None:
        return ""
    kind, remedy, command = found
    text = path.with_suffix(".txt")
    places = {
        "file": shlex.quote(where),
        "text": shlex.quote(str(text if text != path else path.with_stem(f"{path.stem}-text"))),
        "stem": shlex.quote(str(path.with_suffix(""))),
        "name": where,
        "lines": str(path.with_suffix(".jsonl")),
    }
    remedy = _(remedy, command=command.format(**places), **places)
    return _("is {kind}, not a text; {remedy}", kind=_(kind), remedy=remedy)


def _may_be_text(head: bytes) -> bool:
    """Whether these bytes may be UTF-8 text that only begins like another format, with `ID3` for example."""
    try:
        return "\0" not in codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
