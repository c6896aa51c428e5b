"""Pseudonyms of students: random names, kept in a CSV file apart from the results."""

import csv
import io
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from vitral.core.errors import UsageError
from vitral.core.files import read_capped
from vitral.core.tables import FORMULAS, as_csv

LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
"""Letters and digits that are not mistaken for one another."""
LENGTH = 5
HEADINGS = ["pseudonym", "file"]
MOST_BYTES = 2**22


def read_pseudonyms(path: Path) -> dict[str, str]:
    """The pseudonym of each file in a mapping; empty if there is no mapping yet.

    Raises:
        UsageError: the file is no mapping of pseudonyms.
    """
    try:
        text = read_capped(path, MOST_BYTES).decode("utf-8-sig")
        rows = list(csv.reader(io.StringIO(text, newline="")))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, csv.Error):
        rows = []
    known = {_read(row[1]): row[0] for row in rows[1:] if len(row) == len(HEADINGS)}
    if rows[:1] != [HEADINGS] or len(known) != len(rows) - 1 or len(set(known.values())) != len(known):
        raise UsageError("{path}: is no list of pseudonyms (pseudonym,file), and is left as it is", path=path)
    return known


def with_pseudonyms(known: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Known pseudonyms, and new ones for the files that have none."""
    made = dict(known)
    for name in names:
        while name not in made:
            drawn = "".join(secrets.choice(LETTERS) for _place in range(LENGTH))
            if drawn not in made.values():
                made[name] = drawn
    return made


def written_pseudonyms(pseudonyms: Mapping[str, str]) -> bytes:
    """The mapping as CSV."""
    return as_csv([HEADINGS, *([pseudonym, _written(name)] for name, pseudonym in pseudonyms.items())]).encode()


def _written(name: str) -> str:
    """A name that a spreadsheet does not take for a formula."""
    return f"'{name}" if name.startswith(("'", *FORMULAS)) else name


def _read(cell: str) -> str:
    return cell[1:] if cell[:1] == "'" and cell[1:].startswith(("'", *FORMULAS)) else cell
