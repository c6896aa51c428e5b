"""Worked examples in every format: TOML, Markdown, LaTeX, printouts of arrays, CSV, spreadsheets."""

import re
from pathlib import PurePath

from vitral.core.errors import UsageError
from vitral.explanation.documents.notes import read_notes
from vitral.explanation.examples.document import Document, TomlDocument

SUFFIXES = (".toml", ".md", ".markdown", ".tex", ".txt", ".csv", ".tsv", ".xlsx")
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
    suffix = PurePath(name).suffix.lower()
    if raw.startswith(ZIP) or suffix == ".xlsx":
        from vitral.explanation.documents.grid import read_spreadsheet

        return read_spreadsheet(raw, name)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError("{path}: not UTF-8 at byte {start}; save it as UTF-8", path=name, start=error.start) from None
    if suffix == ".toml" or (suffix not in SUFFIXES and re.search(r"^[ \t]*\[(?:given|claimed)\]", text, re.MULTILINE)):
        return TomlDocument(name, text)
    if suffix in (".csv", ".tsv") or (suffix not in SUFFIXES and _is_csv(text)):
        from vitral.explanation.documents.grid import read_csv

        return read_csv(text, name)
    if suffix not in SUFFIXES and not re.search(r"[\[|\\(]", text):
        return TomlDocument(name, text)
    return read_notes(text, name)


def _is_csv(text: str) -> bool:
    """Whether most lines that are not empty have a sign between cells, and none has brackets or pipes."""
    lines = [line for line in text.splitlines()[:200] if line.strip(" ,;\t")]
    between = sum(any(sign in line for sign in ",;\t") for line in lines)
    return bool(lines) and 2 * between > len(lines) and not re.search(r"[\[\]|\\={}]", text[:10_000])
