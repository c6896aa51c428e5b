"""Markov chains: every sequence is of a chain of its own, which can only be learned from the sequence itself.

The first symbol is uniform. Each row of the transition matrix is drawn from a symmetric Dirichlet distribution, for
each sequence anew, so the best prediction is known exactly: p(j after i) = (n_ij + c) / (n_i + k c), with the counts n
of the sequence so far, k symbols and the concentration c (Edelman et al. 2024).
"""

from typing import Annotated, Literal

import numpy as np
from jaxtyping import Int
from pydantic import Field

from vitral.data.tasks.task import SYMBOLS, Length, Task


class MarkovChains(Task):
    """Sequences of symbols, each from a random Markov chain of order 1.

    Attributes:
        name: "markov".
        symbols: number of states.
        length: symbols of a sequence.
        concentration: of the Dirichlet distribution of a row; 1 makes all rows equally likely.
    """

    name: Literal["markov"] = "markov"
    symbols: Annotated[int, Field(ge=2, le=len(SYMBOLS))] = 3
    length: Length = 65
    concentration: Annotated[float, Field(gt=0, le=1000)] = 1.0

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
        rows = stream.dirichlet(np.full(self.symbols, self.concentration), size=(count, self.symbols))
        borders, every = rows.cumsum(axis=2), np.arange(count)
        drawn = np.empty((count, self.length), dtype=np.int64)
        drawn[:, 0] = stream.integers(self.symbols, size=count)
        for place in range(1, self.length):
            below = borders[every, drawn[:, place - 1], :-1]  # the last border is 1, but for rounding
            drawn[:, place] = (stream.random(count)[:, None] >= below).sum(axis=1)
        return drawn
