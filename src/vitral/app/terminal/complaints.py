"""Errors and notes on stderr, one line each."""

import os
import sys
import traceback
from typing import TextIO

from vitral.core.errors import printable, reason
from vitral.core.language import _

LONGEST = 300
"""Characters shown of the text of an error that is not ours; it can contain a whole value."""
NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")
"""PyTorch's words for it; on the CPU its error is a plain RuntimeError."""


def complain(message: str, file: TextIO | None = None) -> None:
    """Print one line, or message, on stderr (or on the stream given), control characters written out."""
    print(f"vitral: {printable(' '.join(_(message).split()))}", file=file or sys.stderr, flush=True)


def show_traceback(error: BaseException) -> None:
    """Print where an error comes from, if VITRAL_TRACEBACK=1 is set."""
    if os.environ.get("VITRAL_TRACEBACK") == "1":
        traceback.print_exception(error)


def complain_of(error: BaseException) -> int:
    """Say in one line what an error that is not ours means, and return the exit code."""
    text = str(error)[:LONGEST]
    told = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, OSError):
        name = error.filename
        said = _(reason(error))
        complain(f"{os.fsdecode(name)}: {said}" if isinstance(name, str | bytes) else said)
        return 4
    if isinstance(error, MemoryError) or any(words in text for words in NO_MEMORY):
        complain(_("there is too little memory ({error}); use a smaller model, batch or text", error=told))
        return 2
    complain(_("a fault of Vitral ({error}); set VITRAL_TRACEBACK=1 to see where", error=told))
    return 70
