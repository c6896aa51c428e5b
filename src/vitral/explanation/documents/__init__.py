"""Worked examples in every format: TOML, Markdown, CSV, spreadsheets."""

import re
from pathlib import PurePath

from vitral.core.errors import UsageError
from vitral.explanation.documents.finder import GridDocument
from vitral.explanation.examples.document import Document, TomlDocument

SUFFIXES = (".toml", ".md", ".markdown", ".txt", ".csv", ".tsv", ".xlsx")
"""Endings of files that are worked examples."""
ZIP = b"PK\x03\x04"


def document_of(raw: bytes, name: str) -> Document:
    """A worked example in the format that its first bytes, its ending or its contents show.

    Args:
        raw: the whole file.
        name: of the file, for the ending and for messages.

    Raises:
        UsageError: the format is not what it seems, or nothing is found in it.
    """
    from vitral.explanation.documents.grid import CsvGrid, MarkdownGrid, SheetGrid

    suffix = PurePath(name).suffix.lower()
    if raw.startswith(ZIP) or suffix == ".xlsx":
        return GridDocument(SheetGrid(name, raw))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError("{path}: not UTF-8 at byte {start}; save it as UTF-8", path=name, start=error.start) from None
    is_toml = re.search(r"^[ \t]*\[(?:given|claimed)\]", text, re.MULTILINE) or not re.search(r"[\[|(]", text)
    if suffix == ".toml" or (suffix not in SUFFIXES and is_toml):
        return TomlDocument(name, text)
    return GridDocument((CsvGrid if suffix in (".csv", ".tsv") else MarkdownGrid)(name, text))
