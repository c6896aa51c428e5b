"""Errors for users: one clear line each, with the exit code of the command line."""

import os
import sysconfig
import traceback
from pathlib import Path
from typing import Any

from vitral.core.language import N_, Message, _, said

LONGEST = 900
"""Characters of a message; the middle of a longer one is left out, since it quotes what a user gave."""
TRACEBACK = "VITRAL_TRACEBACK"
"""A variable of the environment: with 1, an error also shows where it comes from."""
_NOT_THE_CALLERS = tuple(
    os.path.join(path, "") for path in {str(Path(__file__).parents[1]), *sysconfig.get_paths().values()}
)


def printable(text: str) -> str:
    """The text with every character that steers a terminal or ends a line written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def first_line(error: BaseException) -> str:
    """The first line of what an exception of another's says."""
    return str(error).strip().partition("\n")[0]


def notebook_lines(error: BaseException) -> list[str]:
    """An error in lines: the caller's own code, and the message; with VITRAL_TRACEBACK=1 the whole traceback."""
    if os.environ.get(TRACEBACK) == "1":
        return traceback.format_exception(error)
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith(_NOT_THE_CALLERS)]
    where = [_("line {number}: {code}", number=one.lineno or 0, code=one.line or one.name) for one in frames]
    return [*where, f"{type(error).__name__}: {error}"]


class VitralError(Exception):
    """Base class of errors for users: one line that says what is wrong, where, and what to do."""

    exit_code = 2

    def __init__(self, sentence: str = "", /, **values: Any) -> None:
        """Hold the sentence, with values in its places; see `vitral.core.language`."""
        message = sentence if isinstance(sentence, Message) else N_(sentence)
        super().__init__(message.format(**values) if values else message)

    def __str__(self) -> str:
        """The message in the current language on one line, without what steers a terminal."""
        text = printable(_(reason(self)))
        return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"

    _render_traceback_ = notebook_lines
    """IPython's lines, instead of a traceback through our files."""

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has the same message and attributes, whatever the constructor takes."""
        return _made, (type(self), self.args), vars(self) or None


def reason(error: BaseException) -> Message:
    """What an exception says, of the operating system's its reason alone."""
    if isinstance(error, OSError) and error.strerror:
        return Message(error.strerror)
    message = said(error)
    return message if isinstance(message, Message) else Message(str(error))


_SYSTEM = (
    N_("No such file or directory"),
    N_("Permission denied"),
    N_("Is a directory"),
    N_("Not a directory"),
    N_("File exists"),
    N_("File name too long"),
    N_("No space left on device"),
    N_("Read-only file system"),
    N_("Input/output error"),
    N_("Broken pipe"),
)
"""The frequent reasons of the operating system."""


def _made(kind: type[VitralError], args: tuple[Any, ...]) -> VitralError:
    error = kind.__new__(kind)
    error.args = args
    return error


class UsageError(VitralError, ValueError):
    """Invalid input: a value, a file, a name or a combination of options."""


class TrainingStopped(VitralError, RuntimeError):
    """Training stopped because a number is not finite."""

    exit_code = 3


class StorageError(VitralError, OSError):
    """A file could not be written or read."""

    exit_code = 4


class Interrupted(KeyboardInterrupt):
    """A person stopped a training; the message says what is saved and how to go on.

    Attributes:
        run: the folder of the run that was saved, if one was.
        step: its last step.
    """

    def __init__(self, message: str = "", *, run: Path | None = None, step: int = 0) -> None:
        """Hold the message and the run."""
        super().__init__(message)
        self.run, self.step = run, step

    _render_traceback_ = notebook_lines
    """IPython's lines."""
