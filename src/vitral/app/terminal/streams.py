"""Printing on standard streams that may be full or cut, or belong to a terminal that is gone.

A failed write to standard output ends a command that prints its result, with `OutputLost`. A command that keeps its
result on disk goes on, and the rest of its output is dropped. Errors of standard error are always dropped.
"""

import io
import os
import re
import select
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any, TextIO

from vitral.core.errors import VitralError, printable, reason
from vitral.core.language import _
from vitral.core.process import program
from vitral.core.text import visible

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

LONGEST = 300
"""Characters shown of the text of an error that is not ours; it can contain a whole value."""
NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")
"""PyTorch's words for it; on the CPU its error is a plain RuntimeError."""


class OutputLost(VitralError):
    """Standard output did not take the result.

    Attributes:
        reader_left: whether the reader of a pipe has ended, as `head` does, which is no error.
    """

    exit_code = 4

    def __init__(self, error: Exception) -> None:
        """Say the reason in one line."""
        super().__init__("standard output cannot be written ({reason}); the result is incomplete", reason=reason(error))
        self.reader_left = isinstance(error, ConnectionError)


class _Stream(io.FileIO):
    """The lowest layer of a standard stream: it remembers the first failed write and drops all data after it.

    Attributes:
        needed: whether the first failure raises `OutputLost`.
        lost: the first failure, until it is said.
    """

    def __init__(self, descriptor: int, *, needed: bool) -> None:
        super().__init__(descriptor, mode="w", closefd=False)
        self.needed, self.is_open = needed, True
        self.lost: Exception | None = None

    def write(self, data: "ReadableBuffer", /) -> int:
        if self.is_open:
            try:
                while (written := super().write(data)) is None:  # the stream does not block and is full for now
                    select.select([], [self], [])
                return written
            except (OSError, ValueError) as error:
                self.is_open, self.lost = False, error
                if self.needed:
                    self.lost = None
                    raise OutputLost(error) from None
        return memoryview(data).nbytes


_output: _Stream | None = None
_error_stream: TextIO | None = None


def guard() -> None:
    """Make the standard streams of this process safe to use; called once, before anything is printed."""
    global _output, _error_stream
    if isinstance(sys.stdout, io.TextIOWrapper):  # in a notebook it is somebody else's
        _output = _Stream(sys.stdout.fileno(), needed=True)
        sys.stdout = _text(_output, sys.stdout, "replace")
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _text(_Stream(sys.stderr.fileno(), needed=False), sys.stderr, "backslashreplace")
    _error_stream = sys.stderr


def _text(stream: _Stream, own: io.TextIOWrapper, errors: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedWriter(stream), own.encoding, errors, line_buffering=own.line_buffering)


def output_is_optional() -> None:
    """From now on the loss of standard output or of the terminal ends nothing: the result of the command is on disk."""
    if _output is not None:
        _output.needed = False
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # sent when the terminal closes


def say_if_lost(then: str = "") -> None:
    """One line if standard output is gone and nobody has said so yet."""
    if _output is not None and _output.lost is not None:
        said = _("standard output is gone ({reason})", reason=reason(_output.lost))
        _output.lost = None
        complain(f"{said}{then}")


def settle() -> None:
    """Write the rest of the output at the end of the program, and say in one line if a part of it is lost."""
    if _output is not None:
        _output.needed = False
    sys.stdout.flush()
    say_if_lost()
    sys.stderr.flush()


def say(text: str) -> None:
    """Print text, control characters made visible; its commands can be typed as they are."""
    sys.stdout.write(visible(runnable(text)) + "\n")
    sys.stdout.flush()


def tell(sentence: str, /, **places: Any) -> None:
    """Print a sentence in the current language."""
    say(_(sentence, **places))


def runnable(text: str) -> str:
    """A text whose commands to be typed call this program as this shell finds it; one inside a sentence has its name.

    To be typed is what begins a line or a column, or stands behind a colon.
    """
    name = program()
    typed = r"(?m)(^ *|  |: )vitral (?=[a-z])"
    return text if name == "vitral" else re.sub(typed, lambda match: f"{match[1]}{name} ", text)


def print_json(data: Any, indent: int | None = 2) -> None:
    """Print plain data as JSON; without an indent, on one line."""
    import json

    sys.stdout.write(json.dumps(data, indent=indent, ensure_ascii=not prints_unicode()) + "\n")
    sys.stdout.flush()


def prints_unicode() -> bool:
    """Whether standard output takes every character; elsewhere JSON is written in ASCII, with the same meaning."""
    return (sys.stdout.encoding or "utf-8").lower().startswith("utf")


def complain(message: str, /, **places: Any) -> None:
    """Print one line, a message or a sentence with values in its places, on stderr, control characters written out."""
    # Itself, also while rich shows what is written to sys.stderr above a panel on standard output.
    line = runnable(" ".join(_(message, **places).split()))
    print(f"vitral: {printable(line)}", file=_error_stream or sys.stderr, flush=True)


def show_traceback(error: BaseException) -> None:
    """Print where an error comes from, if VITRAL_TRACEBACK=1 is set."""
    if os.environ.get("VITRAL_TRACEBACK") == "1":
        traceback.print_exception(error)


def complain_of(error: BaseException) -> int:
    """Say in one line what an error that is not ours means, and return the exit code."""
    text = str(error)[:LONGEST]
    described = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, OSError):
        name, said = error.filename, _(reason(error))
        complain(f"{os.fsdecode(name)}: {said}" if isinstance(name, str | bytes) else said)
        return 4
    if isinstance(error, MemoryError) or any(words in text for words in NO_MEMORY):
        complain("there is too little memory ({error}); use a smaller model, batch or text", error=described)
        return 2
    complain("a fault of Vitral ({error}); set VITRAL_TRACEBACK=1 to see where", error=described)
    return 70
