"""The digits of numbers as their author typed them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

DEFAULT = 3
"""Decimals of an example whose author typed none."""
MOST_DECIMALS = 12
"""More are counted as so many: beyond them lies the error of floating point."""
LONGEST_POWER = 4
"""Digits of an exponent; a number with a longer one has no decimals."""
_NUMBER = re.compile(r"[+\-−]?(?P<whole>[\d_]*)(?:[.,](?P<part>[\d_]*))?(?:[eE](?P<power>[+\-−]?\d+))?")


@dataclass(frozen=True)
class Digits:
    """The digits of a typed number.

    Attributes:
        decimals: after the point, at most `MOST_DECIMALS`.
        significant: from the first that is not 0.
        has_point: whether a point is typed.
        is_power: whether all but the first are 0, and that is 1: a power of ten.
    """

    decimals: int
    significant: int
    has_point: bool
    is_power: bool


def digits(text: str) -> Digits | None:
    """The digits of a number; None for anything else: a fraction, infinity, a word, a number with a long exponent.

    >>> digits("-0.120")
    Digits(decimals=3, significant=3, has_point=True, is_power=False)
    """
    found = _NUMBER.fullmatch(text.strip())
    if found is None or not (found["whole"] or found["part"]):
        return None
    whole, part = found["whole"].replace("_", ""), (found["part"] or "").replace("_", "")
    power = (found["power"] or "0").replace("−", "-")
    if len(power.lstrip("+-")) > LONGEST_POWER:
        return None
    written = (whole + part).lstrip("0")
    is_power = written.rstrip("0") == "1"
    decimals = min(max(0, len(part) - int(power)), MOST_DECIMALS)
    return Digits(decimals, len(written), found["part"] is not None, is_power)


def most_decimals(texts: Iterable[str | None]) -> int | None:
    """The decimals of the longest number; None if there is no number."""
    return max((read.decimals for text in texts if text and (read := digits(text))), default=None)
