"""Faults at a place of a file."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from vitral.core.errors import UsageError

KeyPath = tuple[str | int, ...]


class Fault(UsageError):
    """Something wrong at a place of the file, as keys of tables and indices of lists; its reader adds the line."""

    def __init__(self, sentence: str, path: KeyPath = (), /, **places: Any) -> None:
        """Hold the sentence, with values in its places, and the place."""
        super().__init__(sentence, **places)
        self.path = path


class Misfit(Fault):
    """Numbers of a wrong shape."""


@contextmanager
def at(*path: str | int) -> Generator[None]:
    """Give an error without a place this one."""
    try:
        yield
    except Fault:
        raise
    except UsageError as error:
        raise Fault(str(error), path) from None
