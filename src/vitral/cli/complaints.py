"""Errors and notes on stderr, one line each."""

import os
import sys
import traceback
from typing import TextIO

LONGEST = 300
"""Characters shown of the text of an error that is not ours; it can contain a whole value."""
NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")
"""PyTorch's words for it; on the CPU its error is a plain RuntimeError."""


def complain(message: str, file: TextIO | None = None) -> None:
    """Print one line on stderr (or on the stream given), control characters written out."""
    line = " ".join(message.split())
    print(f"vitral: {''.join(c if c.isprintable() else repr(c)[1:-1] for c in line)}", file=file or sys.stderr)


def show_traceback(error: BaseException) -> None:
    """Print where an error comes from, if VITRAL_TRACEBACK=1 is set."""
    if os.environ.get("VITRAL_TRACEBACK") == "1":
        traceback.print_exception(error)


def complain_of(error: BaseException) -> int:
    """Say in one line what an error that is not ours means, and return the exit code."""
    text = str(error)[:LONGEST]
    told = f"{type(error).__name__}: {text}" if text else type(error).__name__
    where = "set VITRAL_TRACEBACK=1 to see where"
    if isinstance(error, OSError):
        name = error.filename
        known = error.strerror and isinstance(name, str | bytes)
        complain(f"{os.fsdecode(name)}: {error.strerror}" if known else f"{told}; {where}")
        return 4
    if isinstance(error, MemoryError) or any(words in text for words in NO_MEMORY):
        complain(f"there is too little memory ({told}); use a smaller model, batch or text")
        return 2
    if isinstance(error, ValueError | RecursionError):
        complain(f"{told}; {where}")
        return 2
    complain(f"a fault of Vitral ({told}); {where}")
    return 70
