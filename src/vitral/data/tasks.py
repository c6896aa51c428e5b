"""Generated tasks: random sequences of a known kind as a text that any command can train on.

Each sequence is a segment of the text by itself. They are drawn from named random streams, `GROUP` at a time, so a task
with more sequences begins with those of a task with fewer. One in ten is for test and one in twenty for validation,
drawn as the blocks of a text are. No window crosses the border of a sequence.

Some tasks make sequences of equal length, whose every symbol is predicted: a model whose context_length is that length
less one reads each from its beginning, and one with a shorter context reads parts. The others are pairs of a question
and its only right answer (`vitral.data.answers`); the lowest loss of an answer is 0. A question is in one split only.
The training split has it as often as it was drawn, so that the few short ones are not rare; the others have it once.
"""

from collections.abc import Iterator
from itertools import count
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Int
from pydantic import Field, model_validator

from vitral.core.config import Config
from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.core.streams import numpy_stream
from vitral.data.answers import pair

GROUP = 4096
"""Sequences drawn from one stream."""
MOST_CHARACTERS = 1 << 27
LONGEST = 4096
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SYMBOLS = f"{LETTERS}{LETTERS.upper()}0123456789"

MARK = "?"
FILLERS = ".,:;-0123456789"

Symbols = Annotated[int, Field(ge=2, le=len(LETTERS))]
States = Annotated[int, Field(ge=2, le=len(SYMBOLS))]
Gap = Annotated[int, Field(ge=0, le=LONGEST)]
Length = Annotated[int, Field(ge=2, le=LONGEST)]


class _Task(Config):
    """What every task has.

    Attributes:
        sequences: number of sequences in the text; of questions, of different ones.
        seed: of the sequences. It is not the run's, so that all runs are tested on the same sequences; which of them a
            run is trained on, and when, depends on the run's seed.
    """

    sequences: Annotated[int, Field(ge=100, le=10**7)] = 20_000
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0

    in_order: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Settings of which the first is at most the second."""

    @model_validator(mode="after")
    def _fits(self: Any) -> Any:
        for small, large in self.in_order:
            if getattr(self, small) > getattr(self, large):
                raise ValueError(_("{small} must be at most {large}", small=small, large=large))
        if self.sequences * self.span > MOST_CHARACTERS:
            text = _("{sequences:,} sequences of {span:,} symbols", sequences=self.sequences, span=self.span)
            raise ValueError(_("{text} are more than {most:,} characters", text=text, most=MOST_CHARACTERS))
        return self


class _OfSymbols(_Task):
    """Sequences of letters and digits alone."""

    symbols: States = 26
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

    in_order = (("shortest", "longest"), ("longest", "length"))

    name: Literal["repeats"] = "repeats"
    shortest: Annotated[int, Field(ge=1)] = 10
    longest: Annotated[int, Field(ge=1)] = 32

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
    symbols: States = 3
    concentration: Annotated[float, Field(gt=0, le=1000)] = 1.0

    def draw(self, stream: np.random.Generator, count: int) -> Int[np.ndarray, "count span"]:
        """Random sequences, as indices into the alphabet."""
        rows = stream.dirichlet(np.full(self.symbols, self.concentration), size=(count, self.symbols))
        borders, every = rows.cumsum(axis=2), np.arange(count)
        drawn = np.empty((count, self.length), dtype=np.int64)
        drawn[:, 0] = stream.integers(self.symbols, size=count)
        for position in range(1, self.length):
            below = borders[every, drawn[:, position - 1], :-1]  # the last border is 1, but for rounding
            drawn[:, position] = (stream.random(count)[:, None] >= below).sum(axis=1)
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

    in_order = (("queries", "pairs"), ("pairs", "keys"), ("shortest", "longest"))

    name: Literal["recall"] = "recall"
    pairs: Annotated[int, Field(ge=1, le=len(LETTERS))] = 4
    queries: Annotated[int, Field(ge=1, le=len(LETTERS))] = 2
    keys: Symbols = 26
    values: Symbols = 26
    shortest: Gap = 0
    longest: Gap = 52
    fillers: Annotated[int, Field(ge=1, le=len(FILLERS))] = 1

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
        positions = (self.longest - gaps)[:, None] + np.arange(2 * self.pairs)
        np.put_along_axis(drawn, positions, pairs, axis=1)
        asked = stream.random((count, self.pairs)).argsort(axis=1)[:, : self.queries]
        answered = [np.take_along_axis(each, asked, axis=1) for each in (keys, values)]
        drawn[:, self.span - 2 * self.queries - 1] = mark
        drawn[:, self.span - 2 * self.queries :] = np.stack(answered, axis=2).reshape(count, -1)
        return drawn


class StringQuestions(_Task):
    """Questions of a random string of small letters.

    Attributes:
        name: "copy": the answer is the same string; "reverse": from its end to its beginning; "sort": its letters in
            the order of the alphabet.
        symbols: number of letters; each letter of a string is any of them, equally likely.
        shortest: least length of a string.
        length: largest length; every length in between is equally likely.
    """

    in_order = (("shortest", "length"),)

    name: Literal["copy", "reverse", "sort"]
    symbols: Symbols = 26
    shortest: Annotated[int, Field(ge=1)] = 1
    length: Length = 20

    @property
    def span(self) -> int:
        """Symbols of a question and its answer at most."""
        return 2 * self.length

    def draw(self, stream: np.random.Generator, count: int) -> Iterator[tuple[str, str]]:
        """Random strings with their answers."""
        letters = np.array(list(LETTERS))[stream.integers(self.symbols, size=(count, self.length))]
        for row, length in zip(letters, stream.integers(self.shortest, self.length + 1, size=count), strict=True):
            string = "".join(row[:length])
            yield string, {"copy": string, "reverse": string[::-1], "sort": "".join(sorted(string))}[self.name]


class Sums(_Task):
    """The sum of two numbers: `57+8` has the answer `65`.

    Attributes:
        name: "add".
        shortest: digits of a number at least.
        digits: of a number at most; every number of digits is equally likely for each of the two.
    """

    in_order = (("shortest", "digits"),)

    name: Literal["add"] = "add"
    shortest: Annotated[int, Field(ge=1)] = 1
    digits: Annotated[int, Field(ge=1, le=15)] = 3

    @property
    def span(self) -> int:
        """Symbols of a question and its answer at most."""
        return 3 * self.digits + 2

    def draw(self, stream: np.random.Generator, count: int) -> Iterator[tuple[str, str]]:
        """Random sums with their results."""
        least = 10 ** (self.shortest - 1) if self.shortest > 1 else 0
        below = 10 ** stream.integers(self.shortest, self.digits + 1, size=(count, 2))
        for one, other in stream.integers(least, below).tolist():
            yield f"{one}+{other}", str(one + other)


NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
MONTHS = "January February March April May June July August September October November December"


class Dates(_Task):
    """A date in words, with its digits as the answer: `three May nineteen ninety-four` has `1994-05-03`.

    The years are those from 1100 to 1999; every day of them is equally likely.
    """

    name: Literal["dates"] = "dates"
    span: ClassVar[int] = 70

    def draw(self, stream: np.random.Generator, count: int) -> Iterator[tuple[str, str]]:
        """Random dates in words and in digits."""
        first, end = (np.datetime64(f"{year}-01-01") for year in (1100, 2000))
        for day in (first + stream.integers((end - first).astype(int), size=count)).astype(str).tolist():
            yield date_in_words(day), day


def date_in_words(day: str) -> str:
    """A date from 1100 to 1999 in words.

    >>> date_in_words("1905-12-21")
    'twenty-one December nineteen oh five'
    """
    numbers, tens = NUMBERS.split(), TENS.split()
    words = [*numbers, *(f"{ten}-{one}".removesuffix("-zero") for ten in tens for one in numbers[:10])]
    year, month, number = map(int, day.split("-"))
    rest = "hundred" if not year % 100 else f"oh {words[year % 100]}" if year % 100 < 10 else words[year % 100]
    return f"{words[number]} {MONTHS.split()[month - 1]} {words[year // 100]} {rest}"


Sequences = RepeatedStrings | MarkovChains | KeyValueRecall
Questions = StringQuestions | Sums | Dates
Task = Sequences | Questions
TaskConfig = Annotated[Task, Field(discriminator="name")]
QUESTIONS = ("copy", "reverse", "sort", "add", "dates")
"""The names of the tasks of questions and answers."""
TASKS = ("repeats", "markov", "recall", *QUESTIONS)
"""The names of the tasks."""


def task_texts(task: Task) -> list[str]:
    """The sequences of a task; questions again whenever they were drawn again.

    Raises:
        UsageError: there are not so many different questions.
    """
    if isinstance(task, Questions):
        return _drawn(task)
    codes = np.frombuffer(task.alphabet.encode("ascii"), dtype=np.uint8)
    rows = list[bytes]()
    for begin in range(0, task.sequences, GROUP):
        stream = numpy_stream(task.seed, "task", begin // GROUP)
        rows += map(bytes, codes[task.draw(stream, GROUP)[: task.sequences - begin]])
    return [row.decode("ascii") for row in rows]


def _drawn(task: Questions) -> list[str]:
    """Pairs as they are drawn, until there are so many different ones."""
    questions, known, groups = list[str](), set[str](), count()
    while True:
        before = len(known)
        for each in task.draw(numpy_stream(task.seed, "task", next(groups)), GROUP):
            questions.append(pair(*each))
            known.add(questions[-1])
            if len(known) == task.sequences:
                return questions
        if len(known) - before < GROUP // 100:
            raise UsageError(
                "corpus.task: {name} has hardly more than {number:,} different questions, not {wanted:,}; set fewer "
                "sequences, or longer questions",
                name=task.name,
                number=len(known),
                wanted=task.sequences,
            )
