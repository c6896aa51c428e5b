"""Files that are no plain text, recognised by their first bytes, and how to get the text out of them.

The suffix only tells apart what begins alike: a Word document, a book and an archive all begin as ZIP files.
"""

import codecs
import shlex
from pathlib import Path

from vitral.core.language import N_, _

_PANDOC = "pandoc --to plain --wrap none {file} --output {text}"
_OFFICE = N_("save it as text in your office program, or soffice --headless --convert-to txt:Text {file}")
_TABLE = N_("save it as CSV in your office program, or soffice --headless --convert-to csv {file}")
_PICTURE = N_("a text in it must be recognised first, for example with tesseract {file} {stem}")
_SOUND = N_("speech in it must be transcribed first")
_UNPACK = N_("unpack it, and give the folder or a file of it: {command}")

_UNPACKERS = ("gunzip", "unxz", "unzstd", "unlz4", "7z", "unrar", "tar", "unzip", "bunzip2")
_READERS = ("pandoc", "pdftotext", "ebook-convert", "djvutxt")

_ZIPPED = {
    "docx": (N_("a Word document"), _PANDOC),
    "odt": (N_("an OpenDocument text"), _PANDOC),
    "epub": (N_("an EPUB book"), _PANDOC),
    "xlsx": (N_("an Excel workbook"), _TABLE),
    "ods": (N_("an OpenDocument spreadsheet"), _TABLE),
    "pptx": (N_("a PowerPoint presentation"), _OFFICE),
    "odp": (N_("an OpenDocument presentation"), _OFFICE),
}
_ZIP_MARKS: dict[str, bytes] = {
    "docx": b"word/document.xml",
    "xlsx": b"xl/workbook.xml",
    "pptx": b"ppt/presentation.xml",
    "odt": b"application/vnd.oasis.opendocument.text",
    "ods": b"application/vnd.oasis.opendocument.spreadsheet",
    "odp": b"application/vnd.oasis.opendocument.presentation",
    "epub": b"application/epub+zip",
}
_OLE = {
    "xls": (N_("an old Excel workbook"), _TABLE),
    "ppt": (N_("an old PowerPoint presentation"), _OFFICE),
    "msg": (N_("an Outlook message"), N_("save it as text in Outlook")),
}
_PARQUET = N_(
    "write its text column as JSON lines, for example pandas.read_parquet({name!r}).to_json({lines!r}, "
    "orient='records', lines=True), and give --field COLUMN"
)

_PLAIN: tuple[tuple[bytes, str, str], ...] = (
    (b"%PDF-1.", N_("a PDF"), "pdftotext {file} {text}"),
    (b"{\\rtf1", N_("an RTF document"), _OFFICE),
)
"""Formats that may be UTF-8 themselves: the first bytes, the name after "is", and the remedy."""
_MAGIC: tuple[tuple[int, bytes, str, str], ...] = (
    (0, b"\x1f\x8b\x08", N_("compressed with gzip"), "gunzip --keep {file}"),
    (0, b"\xfd7zXZ\0", N_("compressed with xz"), "unxz --keep {file}"),
    (0, b"\x28\xb5\x2f\xfd", N_("compressed with Zstandard"), "unzstd {file}"),
    (0, b"\x04\x22\x4d\x18", N_("compressed with LZ4"), "unlz4 {file}"),
    (0, b"7z\xbc\xaf\x27\x1c", N_("a 7-Zip archive"), "7z x {file}"),
    (0, b"Rar!\x1a\x07", N_("a RAR archive"), "unrar x {file}"),
    (257, b"ustar", N_("a tar archive"), "tar --extract --file {file}"),
    (
        0,
        b"SQLite format 3\0",
        N_("an SQLite database"),
        N_("write its text to a file: sqlite3 {file} 'SELECT …' > {text}"),
    ),
    (0, b"PAR1", N_("a Parquet table"), _PARQUET),
    (0, b"ARROW1\0\0", N_("an Arrow table"), N_("write its text column as JSON lines, and give --field COLUMN")),
    (0, b"\x89HDF\r\n\x1a\n", N_("an HDF5 file"), N_("write its text to a file")),
    (0, b"\x93NUMPY", N_("a NumPy array"), N_("write its text to a file")),
    (60, b"BOOKMOBI", N_("a Kindle book"), N_("ebook-convert {file} {text} (of Calibre)")),
    (0, b"AT&TFORM", N_("a DjVu book"), "djvutxt {file} {text}"),
    (0, b"\x89PNG\r\n\x1a\n", N_("a PNG picture"), _PICTURE),
    (0, b"\xff\xd8\xff", N_("a JPEG picture"), _PICTURE),
    (0, b"GIF87a", N_("a GIF picture"), _PICTURE),
    (0, b"GIF89a", N_("a GIF picture"), _PICTURE),
    (0, b"II*\0", N_("a TIFF picture"), _PICTURE),
    (0, b"MM\0*", N_("a TIFF picture"), _PICTURE),
    (8, b"WEBP", N_("a WebP picture"), _PICTURE),
    (4, b"ftyp", N_("a film, a recording or a HEIC picture"), _SOUND),
    (0, b"OggS", N_("an Ogg recording"), _SOUND),
    (0, b"fLaC", N_("a FLAC recording"), _SOUND),
    (0, b"ID3", N_("an MP3 recording"), _SOUND),
    (8, b"WAVE", N_("a WAV recording"), _SOUND),
    (0, b"\x7fELF", N_("a program"), N_("give a text")),
)
"""Others: offset, bytes, the name, and the remedy."""
_OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_BZIP2 = (b"1AY&SY", b"\x17rE8P\x90")


def foreign_format(head: bytes, where: str) -> str:
    """The end of a message about a file that is no plain text: its format, and how to get its text; else empty.

    Args:
        head: its first bytes, a few thousand.
        where: its path, for the suffix and the commands.

    >>> foreign_format(b"%PDF-1.7", "my.pdf")
    'is a PDF, not a text; get its text with: pdftotext my.pdf my.txt'
    """
    found = _found(head, Path(where).suffix.lower().removeprefix("."))
    if found is None:
        return ""
    kind, remedy = found
    path = Path(where)
    text = path.with_suffix(".txt")
    places = {
        "file": shlex.quote(where),
        "text": shlex.quote(str(text if text != path else path.with_stem(f"{path.stem}-text"))),
        "stem": shlex.quote(str(path.with_suffix(""))),
        "name": where,
        "lines": str(path.with_suffix(".jsonl")),
    }
    if remedy.startswith(_UNPACKERS):
        return _("is {kind}, not a text; {remedy}", kind=_(kind), remedy=_(_UNPACK, command=remedy.format(**places)))
    if remedy.startswith(_READERS):
        return _("is {kind}, not a text; get its text with: {command}", kind=_(kind), command=_(remedy, **places))
    return _("is {kind}, not a text; {remedy}", kind=_(kind), remedy=_(remedy, **places))


def _is_plain(head: bytes) -> bool:
    """Whether these bytes may be UTF-8 text that only begins like another format, with `ID3` for example."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return 0 not in head


def _found(head: bytes, suffix: str) -> tuple[str, str] | None:
    if _is_plain(head):
        return next(((name, how) for magic, name, how in _PLAIN if head.startswith(magic)), None)
    if head.startswith(_ZIP_MAGIC):
        inside = next((kind for kind, mark in _ZIP_MARKS.items() if mark in head), suffix)
        return _ZIPPED.get(inside, (N_("a ZIP archive"), "unzip {file} -d {stem}"))
    if head.startswith(_OLE_MAGIC):
        return _OLE.get(suffix, (N_("an old Word document"), _OFFICE))
    if head.startswith(b"BZh") and head[4:10] in _BZIP2:
        return N_("compressed with bzip2"), "bunzip2 --keep {file}"
    if head.startswith(b"BM") and head[6:10] == bytes(4):
        return N_("a BMP picture"), _PICTURE
    known = (*((0, *found) for found in _PLAIN), *_MAGIC)
    return next(((name, how) for place, magic, name, how in known if head.startswith(magic, place)), None)
