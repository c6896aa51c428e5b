"""Files that are no plain text, recognised by their first bytes, and how to get the text out of them.

The suffix only tells apart what begins alike: a Word document, a book and an archive all begin as ZIP files.
"""

import codecs
import shlex
from pathlib import Path

_PANDOC = "pandoc --to plain --wrap none {file} --output {text}"
_OFFICE = "save it as text in your office program, or soffice --headless --convert-to txt:Text {file}"
_TABLE = "save it as CSV in your office program, or soffice --headless --convert-to csv {file}"
_PICTURE = "a text in it must be recognised first, for example with tesseract {file} {stem}"
_SOUND = "speech in it must be transcribed first"
_UNPACK = "unpack it, and give the folder or a file of it: {command}"

_ZIPPED = {
    "docx": ("a Word document", _PANDOC),
    "odt": ("an OpenDocument text", _PANDOC),
    "epub": ("an EPUB book", _PANDOC),
    "xlsx": ("an Excel workbook", _TABLE),
    "ods": ("an OpenDocument spreadsheet", _TABLE),
    "pptx": ("a PowerPoint presentation", _OFFICE),
    "odp": ("an OpenDocument presentation", _OFFICE),
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
    "xls": ("an old Excel workbook", _TABLE),
    "ppt": ("an old PowerPoint presentation", _OFFICE),
    "msg": ("an Outlook message", "save it as text in Outlook"),
}
_PARQUET = "write its text column as JSON lines, for example pandas.read_parquet({name!r}).to_json({lines!r}, "
_PARQUET += "orient='records', lines=True), and give --field COLUMN"

_PLAIN = ((b"%PDF-1.", "a PDF", "pdftotext {file} {text}"), (b"{\\rtf1", "an RTF document", _OFFICE))
"""Formats that may be UTF-8 themselves: the first bytes, the name after "is", and the remedy."""
_MAGIC: tuple[tuple[int, bytes, str, str], ...] = (
    (0, b"\x1f\x8b\x08", "compressed with gzip", _UNPACK.format(command="gunzip --keep {file}")),
    (0, b"\xfd7zXZ\0", "compressed with xz", _UNPACK.format(command="unxz --keep {file}")),
    (0, b"\x28\xb5\x2f\xfd", "compressed with Zstandard", _UNPACK.format(command="unzstd {file}")),
    (0, b"\x04\x22\x4d\x18", "compressed with LZ4", _UNPACK.format(command="unlz4 {file}")),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", _UNPACK.format(command="7z x {file}")),
    (0, b"Rar!\x1a\x07", "a RAR archive", _UNPACK.format(command="unrar x {file}")),
    (257, b"ustar", "a tar archive", _UNPACK.format(command="tar --extract --file {file}")),
    (0, b"SQLite format 3\0", "an SQLite database", "write its text to a file: sqlite3 {file} 'SELECT …' > {text}"),
    (0, b"PAR1", "a Parquet table", _PARQUET),
    (0, b"ARROW1\0\0", "an Arrow table", "write its text column as JSON lines, and give --field COLUMN"),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file", "write its text to a file"),
    (0, b"\x93NUMPY", "a NumPy array", "write its text to a file"),
    (60, b"BOOKMOBI", "a Kindle book", "ebook-convert {file} {text} (of Calibre)"),
    (0, b"AT&TFORM", "a DjVu book", "djvutxt {file} {text}"),
    (0, b"\x89PNG\r\n\x1a\n", "a PNG picture", _PICTURE),
    (0, b"\xff\xd8\xff", "a JPEG picture", _PICTURE),
    (0, b"GIF87a", "a GIF picture", _PICTURE),
    (0, b"GIF89a", "a GIF picture", _PICTURE),
    (0, b"II*\0", "a TIFF picture", _PICTURE),
    (0, b"MM\0*", "a TIFF picture", _PICTURE),
    (8, b"WEBP", "a WebP picture", _PICTURE),
    (4, b"ftyp", "a film, a recording or a HEIC picture", _SOUND),
    (0, b"OggS", "an Ogg recording", _SOUND),
    (0, b"fLaC", "a FLAC recording", _SOUND),
    (0, b"ID3", "an MP3 recording", _SOUND),
    (8, b"WAVE", "a WAV recording", _SOUND),
    (0, b"\x7fELF", "a program", "give a text"),
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
    name, remedy = found
    path = Path(where)
    text = path.with_suffix(".txt")
    command = remedy.format(
        file=shlex.quote(where),
        text=shlex.quote(str(text if text != path else path.with_stem(f"{path.stem}-text"))),
        stem=shlex.quote(str(path.with_suffix(""))),
        name=where,
        lines=str(path.with_suffix(".jsonl")),
    )
    ready = remedy.startswith(("pandoc", "pdftotext", "ebook", "djvutxt"))
    return f"is {name}, not a text; {'get its text with: ' if ready else ''}{command}"


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
        return _ZIPPED.get(inside, ("a ZIP archive", _UNPACK.format(command="unzip {file} -d {stem}")))
    if head.startswith(_OLE_MAGIC):
        return _OLE.get(suffix, ("an old Word document", _OFFICE))
    if head.startswith(b"BZh") and head[4:10] in _BZIP2:
        return "compressed with bzip2", _UNPACK.format(command="bunzip2 --keep {file}")
    if head.startswith(b"BM") and head[6:10] == bytes(4):
        return "a BMP picture", _PICTURE
    known = (*((0, *found) for found in _PLAIN), *_MAGIC)
    return next(((name, how) for place, magic, name, how in known if head.startswith(magic, place)), None)
