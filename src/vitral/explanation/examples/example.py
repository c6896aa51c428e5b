"""A worked example: given numbers, the computation from them, and the author's claims."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from vitral.core import language as languages
from vitral.core.language import _, in_language
from vitral.core.shown import Shown
from vitral.explanation.architecture import Architecture
from vitral.explanation.examples.document import Document
from vitral.explanation.sheet import Index, Sheet


@dataclass(frozen=True)
class AuthorClaim:
    """The author's numbers for one quantity.

    Attributes:
        name: the quantity.
        key: its place in the file, as ("claimed", "scores").
        values: the numbers, NaN where nothing is claimed; for words, their indices in the vocabulary.
        axes_left_out: number of leading axes that the file omits: the heads, or every axis of a single number.
        rows: keys of the numbers, where the file has a table instead of a list.
        order: the axes that the file has, in its order; None for all but those left out.
        paths: the places of the cells, where the file has parts of the quantity one by one.
    """

    name: str
    key: tuple[str, ...]
    values: Tensor
    axes_left_out: int = 0
    rows: tuple[str, ...] = ()
    order: tuple[int, ...] | None = None
    paths: Mapping[Index, tuple[str | int, ...]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The quantity's name as the file has it."""
        return ".".join(self.key[1:])

    def path(self, index: Index) -> tuple[str | int, ...]:
        """The place of a cell in the file."""
        if index in self.paths:
            return self.paths[index]
        if self.rows:
            return (*self.key, self.rows[index[0]])
        axes = range(self.axes_left_out, len(index)) if self.order is None else self.order
        return (*self.key, *(index[axis] for axis in axes))


@dataclass(frozen=True, repr=False)
class Example(Shown):
    """A worked example, read and computed.

    Attributes:
        path: of the file; None if there is none.
        document: the file as the author wrote it.
        title: a heading.
        source: the document it comes from.
        note: one sentence on its purpose.
        decimals: digits after the point in the claims.
        sheet: the computation from the given numbers.
        claims: the author's numbers, in the order of the computation.
        architecture: mask, scale and the other parts.
        states_decimals: whether the file states the decimals; otherwise the typed numbers show them.
    """

    path: Path | None
    document: Document
    title: str
    source: str
    note: str
    decimals: int
    sheet: Sheet
    claims: tuple[AuthorClaim, ...]
    architecture: Architecture
    states_decimals: bool = False
    _is_only_text = True

    @property
    def text(self) -> str:
        """The characters of the file."""
        return self.document.text

    def typed(self, claim: AuthorClaim, index: Index) -> str | None:
        """The characters of a claimed number, as the author typed them."""
        return self.document.typed(claim.path(index))

    def __str__(self) -> str:
        """The file: given numbers and claims, without the solution."""
        return self.text

    def plain(self) -> dict[str, Any]:
        """As plain data: where it is from, and the file as text."""
        path = None if self.path is None else str(self.path)
        return {"file": path, "title": self.title, "source": self.source, "note": self.note, "text": self.text}

    def told(self, language: str | None = None) -> "Example":
        """With title, source and note in this language, or the current one; those of a user's own file stay."""
        with in_language(language or languages.language()):
            return replace(self, title=_(self.title), source=_(self.source), note=_(self.note))

    @property
    def unit(self) -> float:
        """One unit of the last written digit."""
        return 10.0**-self.decimals
