"""Numbers as authors write them: decimals with a point or a comma, fractions, roots, infinity, unknown ones."""

import math
import re
from functools import lru_cache
from typing import Any

from vitral.core.errors import UsageError
from vitral.explanation.expressions import evaluate, parse, references

_COMMA = re.compile(r"(?<=\d),(?=\d)")
_ROOT = re.compile(r"√\s*(\d+(?:\.\d+)?|\()")
_WRITTEN = re.compile(r"[\d\s.,+\-−*/()·×√πe]*(?:sqrt|pi)?[\d\s.,+\-−*/()·×√πe]*")
MOST = 60


@lru_cache(maxsize=4096)
def value_of(text: str) -> float | None:
    """The number that a text in quotes is; None if it is none.

    >>> value_of("1/3"), value_of("-0,5"), value_of("√4/2"), value_of("x")
    (0.3333333333333333, -0.5, 1.0, None)
    """
    if len(text) > MOST or not any(character.isdigit() for character in text) or not _WRITTEN.fullmatch(text):
        return None
    plain = _COMMA.sub(".", text.strip()).replace("−", "-").replace("·", "*").replace("×", "*").replace("π", "pi")
    plain = _ROOT.sub(lambda root: "sqrt(" if root[1] == "(" else f"sqrt({root[1]})", plain)
    try:
        tree = parse(plain)
        if references(tree):
            return None
        value = evaluate(tree, {})
    except UsageError:
        return None
    return float(value) if value.dim() == 0 and math.isfinite(float(value)) else None


def has_split_decimals(value: Any, width: int | None = None) -> bool:
    """Whether an unquoted decimal comma, which makes two whole numbers of one, is likely in a list.

    Args:
        value: a number or nested lists, as TOML gives them.
        width: the length that a row should have, if it is known.
    """
    if not isinstance(value, list) or not value:
        return False
    if any(isinstance(part, list) for part in value):
        return any(has_split_decimals(part, width) for part in value)
    whole = [part for part in value if type(part) is int]
    if width is not None and not (width < len(value) <= 2 * width):
        return False
    return len(whole) >= 2 and all(part >= 0 for part in whole[1:]) and any(abs(part) <= 1 for part in whole)
