"""Results as tables: rows of plain data, as CSV, and as a data frame where pandas is installed."""

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vitral.core.errors import UsageError

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingTypeStubs]

FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""First characters of cells that spreadsheets compute."""


class Tabular(ABC):
    """A result that is a table in a natural way."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """The table as plain data, one mapping for each row."""

    def to_pandas(self) -> "pandas.DataFrame":
        """The table as a data frame.

        Raises:
            UsageError: pandas is not installed.
        """
        return data_frame(self.records())


def data_frame(rows: Sequence[Mapping[str, Any]]) -> "pandas.DataFrame":
    """Rows of plain data as a data frame.

    Raises:
        UsageError: pandas is not installed.
    """
    try:
        import pandas  # pyright: ignore[reportMissingTypeStubs]
    except ImportError:
        raise UsageError(
            "to_pandas: pandas is not installed; pip install pandas, or use plain() or records(), which need nothing"
        ) from None
    return pandas.DataFrame(list(rows))


def as_csv(rows: Iterable[Sequence[Any]], delimiter: str = ",") -> str:
    """Lines of separated values; a cell with a line feed or a carriage return is quoted."""
    written: list[str] = []
    for row in rows:
        buffer = io.StringIO(newline="")
        csv.writer(buffer, delimiter=delimiter).writerow(row)  # quotes what is in its line end, which is both
        written.append(buffer.getvalue().removesuffix("\r\n") + "\n")
    return "".join(written)


def in_spreadsheet(text: str) -> str:
    """A text that a spreadsheet does not take for a formula."""
    return f"'{text}" if text.startswith(FORMULAS) else text
