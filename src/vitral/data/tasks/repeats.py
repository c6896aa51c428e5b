"""Repeated strings: a random string, then the same again, until the sequence is full.

    k q m a f k q m a f k q m ...        a period of 5

The period is drawn for each sequence, so that no fixed distance back is right: to predict the repetition, a model has
to find the earlier occurrence of the current symbol, and read what followed it (an induction head, Olsson et al. 2022).
"""

from typing import Annotated, Literal

import numpy as np
from jaxtyping import Int
from pydantic import Field, model_validator

from vitral.core.language import _
from vitral.data.tasks.task import SYMBOLS, Length, Task


class RepeatedStrings(Task):
    """Sequences of a random string that is repeated.

    Attributes:
        name: "repeats".
        symbols: number of symbols; each symbol of the string is any of them, equally likely.
        length: symbols of a sequence.
        shortest: least period of a sequence.
        longest: largest period; every period in between is equally likely. Equal to `shortest`: one period for all.
    """

    name: Literal["repeats"] = "repeats"
    symbols: Annotated[int, Field(ge=2, le=len(SYMBOLS))] = 26
    length: Length = 65
    shortest: Annotated[int, Field(ge=1)] = 10
    longest: Annotated[int, Field(ge=1)] = 32

    @model_validator(mode="after")
    def _string_is_repeated(self) -> "RepeatedStrings":
        if not self.shortest <= self.longest < self.length:
            raise ValueError(_("shortest must be at most longest, and longest below length"))
        return self

    @property
    def alphabet(self) -> str:
        """The first `symbols` letters and digits."""
        return SYMBOLS[: self.symbols]

    @property
    def span(self) -> int:
        """See `length`."""
        return self.length

    def draw(self, stream: np.random.Generator, count: int) -> Int[np.ndarray, "count span"]:
        """Random sequences, as indices into the alphabet."""
        periods = stream.integers(self.shortest, self.longest + 1, size=count)
        strings = stream.integers(self.symbols, size=(count, self.longest))
        return np.take_along_axis(strings, np.arange(self.length) % periods[:, None], axis=1)
