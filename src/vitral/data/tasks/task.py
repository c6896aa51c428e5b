"""A task: a generator of random sequences of equal length, each of which is a segment of the text by itself.

The sequences are drawn from named random streams, `GROUP` at a time, so a task with more sequences begins with those of
a task with fewer. One in ten is for test and one in twenty for validation, drawn as the blocks of a text are. No window
crosses the border of a sequence: a model whose context_length is the length of a sequence less one reads each from its
beginning, and one with a shorter context reads parts.
"""

from abc import ABC, abstractmethod
from typing import Annotated

import numpy as np
from jaxtyping import Int
from pydantic import Field, model_validator

from vitral.core.checked import checked
from vitral.core.config import Config
from vitral.core.language import _
from vitral.core.streams import numpy_stream

GROUP = 4096
"""Sequences drawn from one stream."""
MOST_CHARACTERS = 1 << 27
LONGEST = 4096
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SYMBOLS = f"{LETTERS}{LETTERS.upper()}0123456789"

Length = Annotated[int, Field(ge=2, le=LONGEST)]


class Task(Config, ABC):
    """What every task has.

    Attributes:
        sequences: number of sequences in the text.
        seed: of the sequences. It is not the run's, so that all runs are tested on the same sequences; which of them a
            run is trained on, and when, depends on the run's seed.
    """

    sequences: Annotated[int, Field(ge=100, le=10**7)] = 20_000
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0

    @property
    @abstractmethod
    def alphabet(self) -> str:
        """The characters of the sequences; symbol i is its character i."""

    @property
    @abstractmethod
    def span(self) -> int:
        """Symbols of a sequence."""

    @abstractmethod
    def draw(self, stream: np.random.Generator, count: int) -> Int[np.ndarray, "count span"]:
        """Random sequences, as indices into the alphabet."""

    @model_validator(mode="after")
    def _text_is_not_too_long(self) -> "Task":
        if self.sequences * self.span > MOST_CHARACTERS:
            text = _("{sequences:,} sequences of {span:,} symbols", sequences=self.sequences, span=self.span)
            raise ValueError(_("{text} are more than {most:,} characters", text=text, most=MOST_CHARACTERS))
        return self


@checked(first=True)
def task_text(task: Task) -> str:
    """All sequences of a task, one after the other, with nothing between them."""
    codes = np.frombuffer(task.alphabet.encode("ascii"), dtype=np.uint8)
    groups = []
    for begin in range(0, task.sequences, GROUP):
        stream = numpy_stream(task.seed, "task", begin // GROUP)
        groups.append(codes[task.draw(stream, GROUP)[: task.sequences - begin]].tobytes().decode("ascii"))
    return "".join(groups)
