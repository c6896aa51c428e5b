"""A worked example: given numbers, the computation from them, and the author's claims."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from vitral.core import language as languages
from vitral.core.language import _, in_language
from vitral.core.shown import Shown
from vitral.explanation.examples.document import Document
from vitral.explanation.examples.faults import KeyPath
from vitral.explanation.sheet import Index, Sheet


@dataclass(frozen=True)
class AuthorClaim:
    """The author's numbers for one quantity.

    Attributes:
        name: the quantity.
        label: its name as the file has it.
        values: the numbers, NaN where nothing is claimed; for words, their indices in the vocabulary.
        paths: the path in the file of each cell that the file has.
    """

    name: str
    label: str
    values: Tensor
    paths: Mapping[Index, KeyPath]

    def path(self, index: Index) -> KeyPath:
        """The path of a cell in the file; empty if it has none."""
        return self.paths.get(index, ())


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
