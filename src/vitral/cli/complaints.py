"""How an error is told: one line."""

import sys


def complain(message: str) -> None:
    """One line on stderr, with nothing in it that could steer a terminal."""
    line = " ".join(message.split())
    print(f"vitral: {''.join(c if c.isprintable() else repr(c)[1:-1] for c in line)}", file=sys.stderr)
