"""Results as tables: rows of plain data, and a data frame where pandas is installed."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vitral.core.errors import UsageError

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingTypeStubs]


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
