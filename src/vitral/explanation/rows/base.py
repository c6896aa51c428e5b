"""What a quantity says in its own words, where its tree does not say it, and names of cells."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from vitral.explanation.formulas.notation import Equation, Expression, Name, Number, Words

_PLAIN = re.compile(r"[^\W\d_][\w'’-]*")
"""A word that needs no quotes among the names of a formula."""


@dataclass(frozen=True)
class CellNamer:
    """Names of cells, and words of the vocabulary, in written arithmetic.

    Attributes:
        first: the number of the first row and column: 1 in worked examples, as on paper; 0 for tensors.
        vocabulary: the words, if there are any.
    """

    first: int = 1
    vocabulary: tuple[str, ...] = ()

    def cell(self, name: str, *index: int) -> Name:
        """One number: scores with subscript 2,1."""
        return Name(name, below=",".join(str(place + self.first) for place in index))

    def words(self, indices: Iterable[int]) -> Words:
        """Words of the vocabulary, each that is not plain letters in quotes."""
        found = [
            self.vocabulary[index] if index < len(self.vocabulary) else str(index + self.first) for index in indices
        ]
        return Words(" ".join(word if _PLAIN.fullmatch(word) else f"“{word}”" for word in found), own=True)


class Row:
    """The words of one quantity beside its tree.

    Attributes:
        subscript: of the quantity in its formula, if the formula is that of one cell.
        chooses: whether the numbers of the quantity are indices of words.
    """

    subscript = ""
    chooses = False

    def formula(self) -> Expression | None:
        """The right-hand side of the formula, if there is one."""
        raise NotImplementedError

    def after(self, name: str) -> Iterable[Equation]:
        """Further equations of the formula, and definitions of its letters."""
        return ()

    def before(self, inputs: Sequence[Tensor], index: tuple[int, ...], namer: CellNamer) -> tuple[Equation, ...]:
        """Equations of numbers that the stages of a cell use."""
        return ()

    def stages(
        self, inputs: Sequence[Tensor], index: tuple[int, ...], namer: CellNamer
    ) -> tuple[Expression, ...] | None:
        """The right-hand sides for one cell: the rule in names, then in numbers; None for those of the tree."""
        return None


def numbers(values: Tensor) -> list[Number]:
    """The entries of a vector."""
    return [Number(value) for value in values.tolist()]
