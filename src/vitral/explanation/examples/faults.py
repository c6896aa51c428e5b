"""Faults of a file: what is wrong, and the path of the value."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from vitral.core.errors import UsageError
from vitral.core.language import N_

KeyPath = tuple[str | int, ...]
"""Keys of tables and indices of lists that lead to a value, as ("claimed", "scores", 0, 1)."""


def label_of(path: KeyPath) -> str:
    """The name of a quantity or setting in the file, as mlp.pre."""
    return str(path[min(1, len(path) - 1)])


class Fault(UsageError):
    """Something wrong with the value that a path leads to; the reader of the file adds the line."""

    def __init__(self, sentence: str, path: KeyPath = (), /, **values: Any) -> None:
        """Hold the sentence, the values of its placeholders, and the path."""
        super().__init__(sentence, **values)
        self.path = path


class Misfit(Fault):
    """Numbers of a wrong shape."""


@contextmanager
def at(*path: str | int) -> Generator[None]:
    """Give an error without a path this one, and inside a step the name of that."""
    try:
        yield
    except Fault:
        raise
    except UsageError as error:
        sentence = N_("step {name}: {complaint}") if path[0] == "steps" else "{complaint}"
        raise Fault(sentence, path, name=path[-1], complaint=str(error)) from None
