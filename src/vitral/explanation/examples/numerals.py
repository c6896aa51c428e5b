"""Numbers as authors write them: their digits, decimals with a point or a comma, fractions, roots, percent."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from vitral.core.errors import UsageError
from vitral.explanation.expressions import compute, parse, references

DEFAULT = 3
"""Decimals of an example whose author typed none."""
MOST_DECIMALS = 12
"""More are counted as so many: beyond them lies the error of floating point."""
MOST_POWER = 9999
"""The largest power of ten in a number that has decimals."""


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
    >>> digits("21.8%").decimals
    3
    """
    plain = text.strip().removesuffix("%").replace(",", ".").replace("−", "-")
    try:
        _, typed, power = Decimal(plain).as_tuple()
    except InvalidOperation:
        return None
    if not isinstance(power, int) or abs(power) > MOST_POWER:
        return None
    significant = "".join(map(str, typed)).lstrip("0")
    decimals = min(max(0, 2 * text.strip().endswith("%") - power), MOST_DECIMALS)
    return Digits(decimals, len(significant), "." in plain, significant.rstrip("0") == "1")


def most_decimals(texts: Iterable[str | None]) -> int | None:
    """The decimals of the longest number; None if there is no number."""
    return max((number.decimals for text in texts if text and (number := digits(text))), default=None)


_COMMA = re.compile(r"(?<=\d),(?=\d)")
_ROOT = re.compile(r"√\s*(\d+(?:\.\d+)?|\()")
_WRITTEN = re.compile(r"[\d\s.,+\-−*/()·×√πe]*(?:sqrt|pi)?[\d\s.,+\-−*/()·×√πe]*")
MOST = 60


@lru_cache(maxsize=4096)
def value_of(text: str) -> float | None:
    """The number that a text in quotes is; None if it is none.

    >>> value_of("1/3"), value_of("-0,5"), value_of("√4/2"), value_of("21.8%"), value_of("x")
    (0.3333333333333333, -0.5, 1.0, 0.218, None)
    """
    if text.endswith("%"):
        share = value_of(text[:-1])
        return None if share is None else share / 100
    if len(text) > MOST or not any(character.isdigit() for character in text) or not _WRITTEN.fullmatch(text):
        return None
    plain = _COMMA.sub(".", text.strip()).replace("−", "-").replace("·", "*").replace("×", "*").replace("π", "pi")
    plain = _ROOT.sub(lambda root: "sqrt(" if root[1] == "(" else f"sqrt({root[1]})", plain)
    try:
        tree = parse(plain)
        if references(tree):
            return None
        value = compute(tree, {})
    except UsageError:
        return None
    return float(value) if value.dim() == 0 and math.isfinite(float(value)) else None


def as_percent(value: str) -> str:
    """A share in percent, with two decimals less."""
    return f"{100 * float(value):.{max(0, len(value.partition('.')[2]) - 2)}f}%"
