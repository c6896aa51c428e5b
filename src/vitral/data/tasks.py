"""Generated tasks: random sequences of a known kind as a text that any command can train on.

A task makes sequences of equal length, each of which is a segment of the text by itself. They are drawn from named
random streams, `GROUP` at a time, so a task with more sequences begins with those of a task with fewer. One in ten is
for test and one in twenty for validation, drawn as the blocks of a text are. No window crosses the border of a
sequence: a model whose context_length is the length of a sequence less one reads each from its beginning, and one with
a shorter context reads parts.
"""

from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Int
from pydantic import Field, model_validator

from vitral.core.config import Config
from vitral.core.language import _
from vitral.core.streams import numpy_stream

GROUP = 4096
"""Sequences drawn from one stream."""
MOST_CHARACTERS = 1 << 27
LONGEST = 4096
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SYMBOLS = f"{LETTERS}{LETTERS.upper()}0123456789"

MARK = "?"
FILLERS = ".,:;-0123456789"

Symbols = Annotated[int, Field(ge=2, le=len(LETTERS))]
Gap = Annotated[int, Field(ge=0, le=LONGEST)]
Length = Annotated[int, Field(ge=2, le=LONGEST)]


class _Task(Config):
    """What every task has.

    Attributes:
        sequences: number of sequences in the text.
        seed: of the sequences. It is not the run's, so that all runs are tested on the same sequences; which of them a
            run is trained on, and when, depends on the run's seed.
    """

    sequences: Annotated[int, Field(ge=100, le=10**7)] = 20_000
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0

    @model_validator(mode="after")
    def _text_is_not_too_long(self: Any) -> Any:
        if self.sequences * self.span > MOST_CHARACTERS:
            text = _("{sequences:,} sequences of {span:,} symbols", sequences=self.sequences, span=self.span)
            raise ValueError(_("{text} are more than {most:,} characters", text=text, most=MOST_CHARACTERS))
        return self


class _OfSymbols(_Task):
    """Sequences of letters and digits alone."""

    symbols: Annotated[int, Field(ge=2, le=len(SYMBOLS))] = 26
    length: Length = 65

    @property
    def alphabet(self) -> str:
        """The first `symbols` letters and digits."""
        return SYMBOLS[: self.symbols]

    @property
    def span(self) -> int:
        """See `length`."""
        return self.length


class RepeatedStrings(_OfSymbols):
    """Repeated strings: a random string, then the same again, until the sequence is full.

        k q m a f k q m a f k q m ...        a period of 5

    The period is drawn for each sequence, so that no fixed distance back is right: to predict the repetition, a model
    has to find the earlier occurrence of the current symbol, and read what followed it (an induction head, Olsson et
    al. 2022).

    Attributes:
        name: "repeats".
        symbols: number of symbols; each symbol of the string is any of them, equally likely.
        length: symbols of a sequence.
        shortest: least period of a sequence.
        longest: largest period; every period in between is equally likely. Equal to `shortest`: one period for all.
    """

    name: Literal["repeats"] = "repeats"
    shortest: Annotated[int, Field(ge=1)] = 10
    longest: Annotated[int, Field(ge=1)] = 32

    @model_validator(mode="after")
    def _string_is_repeated(self) -> "RepeatedStrings":
        if not self.shortest <= self.longest < self.length:
            raise ValueError(_("shortest must be at most longest, and longest below length"))
        return self

    def draw(self, stream: np.random.Generator, count: int) -> Int[np.ndarray, "count span"]:
        """Random sequences, as indices into the alphabet."""
        periods = stream.integers(self.shortest, self.longest + 1, size=count)
        strings = stream.integers(self.symbols, size=(count, self.longest))
        return np.take_along_axis(strings, np.arange(self.length) % periods[:, None], axis=1)


class MarkovChains(_OfSymbols):
    """Markov chains: every sequence is of a chain of its own, which can only be learned from the sequence itself.

    The first symbol is uniform. Each row of the transition matrix is drawn from a symmetric Dirichlet distribution, for
    each sequence anew, so the best prediction is known exactly: p(j after i) = (n_ij + c) / (n_i + k c), with the
    counts n of the sequence so far, k symbols and the concentration c (Edelman et al. 2024).

    Attributes:
        name: "markov".
        symbols: number of states.
        length: symbols of a sequence.
        concentration: of the Dirichlet distribution of a row; 1 makes all rows equally likely.
    """

    name: Literal["markov"] = "markov"
    symbols: Annotated[int, Field(ge=2, le=len(SYMBOLS))] = 3
    concentration: Annotated[float, Field(gt=0, le=1000)] = 1.0

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


class KeyValueRecall(_Task):
    """Key-value recall: pairs of a key and a value, filler, then some of the keys again, each followed by its value.

        ....aXdQkBfR.................?kBaX        4 pairs, 2 queries

    The filler between the pairs and the mark has a length that is drawn for each sequence, or is always the same; the
    rest of the filler is before the pairs, so that every answer has a fixed place at the end of the sequence. Keys are
    small letters, different within a sequence; values are capitals, any of them equally likely (associative recall,
    Arora et al. 2024).

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


Task = RepeatedStrings | MarkovChains | KeyValueRecall
TaskConfig = Annotated[Task, Field(discriminator="name")]
TASKS = ("repeats", "markov", "recall")
"""The names of the tasks."""


def task_text(task: Task) -> str:
    """All sequences of a task, one after the other, with nothing between them."""
    codes = np.frombuffer(task.alphabet.encode("ascii"), dtype=np.uint8)
    groups = []
    for begin in range(0, task.sequences, GROUP):
        stream = numpy_stream(task.seed, "task", begin // GROUP)
        groups.append(codes[task.draw(stream, GROUP)[: task.sequences - begin]].tobytes().decode("ascii"))
    return "".join(groups)
