"""Worked examples: what is given, computed, and what the author claims of it."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from vitral.explain.operations import Index
from vitral.explain.recipes import Setting
from vitral.explain.sheet import Sheet


@dataclass(frozen=True)
class Claim:
    """What the author says of one quantity.

    Attributes:
        name: the quantity.
        key: as the file writes it.
        values: the numbers, NaN where nothing is claimed; of words their places in the vocabulary.
        axes_left_out: how many leading axes the file does not write: that of heads, or all of a single number.
    """

    name: str
    key: tuple[str, ...]
    values: Tensor
    axes_left_out: int = 0

    def path(self, index: Index) -> tuple[str | int, ...]:
        """Where the file writes a cell."""
        return (*self.key, *index[self.axes_left_out :])


@dataclass(frozen=True)
class Example:
    """A worked example, read and computed.

    Attributes:
        path: of the file; None where it was made here.
        text: of the file.
        title: what it is.
        source: where it comes from.
        note: what it shows.
        decimals: digits after the point in the claims; one unit is the last of them.
        sheet: the computation from what is given.
        claims: the author's numbers, in the order of the computation.
        setting: mask, scale and the rest.
    """

    path: Path | None
    text: str
    title: str
    source: str
    note: str
    decimals: int
    sheet: Sheet
    claims: tuple[Claim, ...]
    setting: Setting

    @property
    def unit(self) -> float:
        """One unit of the last digit that is written."""
        return 10.0**-self.decimals
