"""Standard streams that may be full or cut, or belong to a terminal that is gone.

A failed write to standard output ends a command that prints its result, with `OutputLost`. A command that keeps its
result on disk goes on, and the rest of its output is dropped. Errors of standard error are always dropped.
"""

import codecs
import errno
import io
import os
import select
import signal
import sys
from typing import TYPE_CHECKING, Any, TextIO

from vitral.app.terminal.complaints import complain
from vitral.core.errors import VitralError, reason
from vitral.core.language import N_, _

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


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


class _Sink(io.RawIOBase):
    """The lowest layer of a standard stream: it remembers the first failed write and drops all data after it.

    It is below Python's buffer and encoding, so print, rich, the argument parser and Python's own flush at exit all use
    an ordinary stream.

    Attributes:
        name: the name that Python gives the stream.
        needed: whether the first failure raises `OutputLost`.
        lost: the first failure.
        told: whether the user was told of it.
        replaced: whether a character that the encoding lacks was replaced.
        beneath: the stream that Python made, which closes `raw` when nobody holds it.
    """

    def __init__(self, raw: Any, name: str, *, needed: bool) -> None:
        self._raw, self.name, self.needed = raw, name, needed
        self._was_terminal = raw.isatty()
        self.lost: Exception | None = None
        self.told = self.replaced = False
        self.beneath: TextIO | None = None

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._raw.isatty()

    def fileno(self) -> int:
        return self._raw.fileno()

    def write(self, data: "ReadableBuffer", /) -> int:
        if self.lost is None:
            try:
                return self._written(data)
            except (OSError, ValueError) as error:
                self.lost = error
                if self.needed:
                    self.told = True
                    raise OutputLost(error) from None
        return memoryview(data).nbytes

    def notice_hangup(self) -> None:
        """A terminal that is gone is a failed write, also where the display no longer writes to it."""
        if self.lost is None and self._was_terminal and not self._raw.isatty():
            self.lost = OSError(errno.EIO, os.strerror(errno.EIO))

    def _written(self, data: "ReadableBuffer") -> int:
        while (written := self._raw.write(data)) is None:  # the stream does not block and is full for now
            select.select([], [self._raw], [])
        return written

    def replacement(self, error: UnicodeError) -> tuple[str, int]:
        """Show "?" for characters that the encoding lacks (an error handler of `codecs`)."""
        if not isinstance(error, UnicodeEncodeError):
            raise error
        self.replaced = True
        return "?" * (error.end - error.start), error.end


_output: _Sink | None = None
_error_stream: TextIO | None = None


def guard() -> None:
    """Make the standard streams of this process safe to use; called once, before anything is printed."""
    global _output, _error_stream
    _output, sys.stdout = _guarded(sys.stdout, "<stdout>", is_output=True)
    _error_stream = _guarded(sys.stderr, "<stderr>", is_output=False)[1]
    sys.stderr = _error_stream


def output_is_optional() -> None:
    """From now on the loss of standard output or of the terminal ends nothing: the result of the command is on disk."""
    if _output is None:
        return
    _output.needed = False
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # sent when the terminal closes


def news_of_loss() -> str | None:
    """A line, in English, that says why standard output is gone; None if it is not, or if it was given before."""
    if _output is not None:
        _output.notice_hangup()
    if _output is None or _output.lost is None or _output.told:
        return None
    _output.told = True
    return N_("standard output is gone ({reason})").format(reason=reason(_output.lost))


def error_stream() -> TextIO:
    """Standard error itself, also while rich shows what is written to it above a panel on standard output."""
    return _error_stream or sys.stderr


def settle() -> None:
    """Write the rest of the output at the end of the program, and say in one line if a part of it is lost."""
    if _output is not None:
        _output.needed = False
    sys.stdout.flush()
    lost = news_of_loss()
    if lost:
        complain(_(lost))
    if _output is not None and _output.replaced and _output.lost is None:
        complain(
            _(
                "some characters are not in the encoding {encoding} and are shown as ?; use UTF-8",
                encoding=sys.stdout.encoding,
            )
        )
    sys.stderr.flush()


def _guarded(stream: TextIO, name: str, *, is_output: bool) -> tuple[_Sink | None, TextIO]:
    if not isinstance(stream, io.TextIOWrapper):
        return None, stream  # somebody else's stream, as in a notebook
    sink = _Sink(getattr(stream.buffer, "raw", stream.buffer), name, needed=is_output)  # python -u has no buffer
    errors = stream.errors
    if is_output:
        errors = "vitral-replace"
        codecs.register_error(errors, sink.replacement)
    sink.beneath = stream
    guarded = io.TextIOWrapper(
        io.BufferedWriter(sink),
        encoding=stream.encoding,
        errors=errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
    return sink, guarded
