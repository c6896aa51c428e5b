"""Key-value recall: pairs of a key and a value, filler, and then some of the keys again, each followed by its value.

    ....aXdQkBfR.................?kBaX        4 pairs, 2 queries

The filler between the pairs and the mark has a length that is drawn for each sequence, or is always the same; the rest
of the filler is before the pairs, so that every answer has a fixed place at the end of the sequence. Keys are small
letters, different within a sequence; values are capitals, any of them equally likely (associative recall,
Arora et al. 2024).
"""

from typing import Annotated, Literal

import numpy as np
from jaxtyping import Int
from pydantic import Field, model_validator

from vitral.core.language import _
from vitral.data.tasks.task import LETTERS, LONGEST, Task

MARK = "?"
FILLERS = ".,:;-0123456789"

Symbols = Annotated[int, Field(ge=2, le=len(LETTERS))]
Gap = Annotated[int, Field(ge=0, le=LONGEST)]


class KeyValueRecall(Task):
    """Sequences of pairs, filler and queries.

    Attributes:
        name: "recall".
        pairs: pairs of a sequence.
        queries: keys that are asked for, in random order, each once.
        keys: different keys.
        values: different values.
        shortest: least number of filler symbols between the pairs and the mark.
        longest: largest number; every number in between is equally likely. Equal to `shortest`: one for all.
        fillers: different filler symbols; with 1 the filler is always the same symbol.
    """

    name: Literal["recall"] = "recall"
    pairs: Annotated[int, Field(ge=1, le=len(LETTERS))] = 4
    queries: Annotated[int, Field(ge=1, le=len(LETTERS))] = 2
    keys: Symbols = 26
    values: Symbols = 26
    shortest: Gap = 0
    longest: Gap = 52
    fillers: Annotated[int, Field(ge=1, le=len(FILLERS))] = 1

    @model_validator(mode="after")
    def _keys_suffice(self) -> "KeyValueRecall":
        if not self.queries <= self.pairs <= self.keys:
            raise ValueError(_("queries must be at most pairs, and pairs at most keys"))
        if self.shortest > self.longest:
            raise ValueError(_("shortest must be at most longest"))
        return self

    @property
    def alphabet(self) -> str:
        """The keys, the values, the mark and the fillers."""
        return LETTERS[: self.keys] + LETTERS.upper()[: self.values] + MARK + FILLERS[: self.fillers]

    @property
    def span(self) -> int:
        """Symbols of a sequence: all filler, the pairs, the mark and the queries with their answers."""
        return self.longest + 2 * self.pairs + 1 + 2 * self.queries

    @property
    def answers(self) -> range:
        """The places of the answers in a sequence."""
        return range(self.span - 2 * self.queries + 1, self.span, 2)

    def draw(self, stream: np.random.Generator, count: int) -> Int[np.ndarray, "count span"]:
        """Random sequences, as indices into the alphabet."""
        mark = self.keys + self.values
        drawn = mark + 1 + stream.integers(self.fillers, size=(count, self.span))
        keys = stream.random((count, self.keys)).argsort(axis=1)[:, : self.pairs]
        values = self.keys + stream.integers(self.values, size=(count, self.pairs))
        gaps = stream.integers(self.shortest, self.longest + 1, size=count)
        pairs = np.stack([keys, values], axis=2).reshape(count, -1)
        places = (self.longest - gaps)[:, None] + np.arange(2 * self.pairs)
        np.put_along_axis(drawn, places, pairs, axis=1)
        asked = stream.random((count, self.pairs)).argsort(axis=1)[:, : self.queries]
        answered = [np.take_along_axis(each, asked, axis=1) for each in (keys, values)]
        drawn[:, self.span - 2 * self.queries - 1] = mark
        drawn[:, self.span - 2 * self.queries :] = np.stack(answered, axis=2).reshape(count, -1)
        return drawn
