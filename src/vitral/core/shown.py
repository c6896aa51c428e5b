"""Results: shown as text at a prompt, as a page in a notebook, and as tables: plain data, CSV, data frames."""

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from vitral.core.errors import UsageError

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingTypeStubs]

FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""First characters of cells that spreadsheets compute."""
VIEWS = "vitral.report.notebook"
"""The module that writes the text and the page of a result; it is imported when one is first shown."""


class Shown:
    """A result that a prompt shows as text and a notebook as its page."""

    _is_only_text: ClassVar[bool] = False
    """Whether the page has no more than the text, so that a short one needs little room."""

    def __str__(self) -> str:
        """The text that a person reads."""
        return import_module(VIEWS).text_of(self)

    def __repr__(self) -> str:
        """The text that a person reads."""
        return str(self)

    def _repr_html_(self) -> str:
        """The page in a sandboxed frame."""
        return import_module(VIEWS).in_frame(self, is_only_text=self._is_only_text)


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


def as_csv(rows: Iterable[Sequence[Any]]) -> str:
    """Lines of values separated by commas; a cell with a line feed or a carriage return is quoted."""
    buffer = io.StringIO(newline="")
    csv.writer(buffer).writerows(rows)  # quotes what is in its line end, which is both
    return buffer.getvalue().replace("\r\n", "\n")


def in_spreadsheet(text: str) -> str:
    """A text that a spreadsheet does not take for a formula."""
    return f"'{text}" if text.startswith(FORMULAS) else text
