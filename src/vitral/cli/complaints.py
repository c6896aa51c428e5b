"""Errors and notes on stderr, one line each."""

import sys


def complain(message: str) -> None:
    """Print one line on stderr, control characters written out."""
    line = " ".join(message.split())
    print(f"vitral: {''.join(c if c.isprintable() else repr(c)[1:-1] for c in line)}", file=sys.stderr)
