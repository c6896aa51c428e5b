"""Worked examples in every format: TOML, Markdown, CSV, spreadsheets."""

import re
from pathlib import Path, PurePath

from vitral.core.errors import UsageError
from vitral.core.files import read_capped, readable
from vitral.explanation.documents.formats import CsvDocument, MarkdownDocument, SpreadsheetDocument
from vitral.explanation.examples.document import Document, TomlDocument

SUFFIXES = (".toml", ".md", ".markdown", ".txt", ".csv", ".tsv", ".xlsx")
"""Endings of files that are worked examples."""
ZIP = b"PK\x03\x04"
MOST_BYTES = 2**20
"""A larger file is not a worked example."""


def read_document(path: Path, name: str | None = None, *, mend: bool = False) -> Document:
    """The worked example in a file; see `document_of`.

    Args:
        path: the file; not a link, if it is given another name.
        name: for messages.
        mend: whether to read a TOML file without the lines that are no TOML.

    Raises:
        UsageError: the file cannot be read.
    """
    with readable(Path(name or path)):
        raw = read_capped(path, MOST_BYTES, links=name is None)
    return document_of(raw, name or str(path), mend=mend)


def document_of(raw: bytes, name: str, *, mend: bool = False) -> Document:
    """A worked example in the format that its first bytes, its ending or its contents show.

    Args:
        raw: the whole file.
        name: of the file, for the ending and for messages.
        mend: whether to read a TOML file without the lines that are no TOML.

    Raises:
        UsageError: the format is not what it seems, or nothing is found in it.
    """
    if len(raw) > MOST_BYTES:
        raise UsageError("{path}: more than {most:,} bytes: not a worked example", path=name, most=MOST_BYTES)
    suffix = PurePath(name).suffix.lower()
    if raw.startswith(ZIP) or suffix == ".xlsx":
        return SpreadsheetDocument(name, raw)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError("{path}: not UTF-8 at byte {start}; save it as UTF-8", path=name, start=error.start) from None
    if suffix == ".tex" or (suffix not in SUFFIXES and "\\documentclass" in text):
        raise UsageError("{path}: LaTeX is not read; write the numbers as TOML, Markdown, CSV or .xlsx", path=name)
    is_toml = re.search(r"^[ \t]*\[(?:given|claimed)\]", text, re.MULTILINE) or not re.search(r"[\[|(]", text)
    if suffix == ".toml" or (suffix not in SUFFIXES and is_toml):
        return TomlDocument(name, text, mend=mend)
    return (CsvDocument if suffix in (".csv", ".tsv") else MarkdownDocument)(name, text)
