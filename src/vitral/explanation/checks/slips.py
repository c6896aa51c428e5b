"""Kinds of slips, how common they are, and misprints of a single number."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

SHARES = {
    8.0: ("scale-missing", "operand-other", "norm-other"),
    6.0: ("scale-other", "mask-missing", "transposed", "other-row"),
    5.0: (
        "mask-other",
        "not-exponential",
        "wrong-axis",
        "term-dropped",
        "bias-missing",
        "residual-missing",
        "kept-other",
        "digits-swapped",
        "sign-lost",
    ),
    4.0: (
        "mask-late",
        "zero-for-infinity",
        "copied-wrong",
        "projection-missing",
        "activation-missing",
        "positions-from-one",
        "second-best",
        "temperature-missing",
        "temperature-inverted",
        "not-renormalised",
        "point-misplaced",
        "digit-wrong",
    ),
    3.0: (
        "base-other",
        "operands-exchanged",
        "term-sign",
        "heads-single",
        "head-other",
        "sine-cosine",
        "exponent-other",
    ),
    2.0: (
        "not-divided",
        "temperature",
        "softmax-twice",
        "total-wrong",
        "softmax-missing",
        "heads-averaged",
        "heads-order",
        "norm-order",
        "gain-missing",
        "activation-other",
        "degrees",
        "temperature-direct",
        "function-missing",
    ),
    1.5: ("term-doubled", "term-added", "constant-other"),
    1.0: (
        "scale-twice",
        "maximum-once",
        "bias-twice",
        "residual-twice",
        "function-other",
        "operation-inverse",
    ),
}
"""How common slips are among all, in percent, and their kinds."""
COMMONNESS = {kind: share for share, kinds in SHARES.items() for kind in kinds}
"""By kind: its share, which is divided among its hypotheses."""
GENERIC = ("constant-other", "function-missing", "function-other", "operation-inverse", "operands-exchanged")
"""Kinds of any computation; another name for the same numbers says more."""
SKIPPED = (
    *("scale-missing", "mask-missing", "residual-missing", "norm-other", "activation-missing", "softmax-missing"),
    *("bias-missing", "projection-missing", "temperature-missing"),
)
"""Kinds of a step left out; then its input is used in its place."""
MISPRINTS = ("digits-swapped", "sign-lost", "point-misplaced", "digit-wrong")
KINDS = tuple(COMMONNESS)
"""Kinds of slips; each has its phrase under [slips]."""


@dataclass(frozen=True)
class Slip:
    """A supposed mistake.

    Attributes:
        kind: one of `KINDS`.
        step: the quantity in whose computation it was made.
        values: of the placeholders of its phrase.
        grain: how far it reaches: "all", a "row", a "column" or a "cell".
        cost: bits of what was chosen to fit the numbers.
        result: the quantity under the slip, before rounding; None for a misprint.
        sure: whether nothing else is nearly as plausible.
        other: another slip that is about as plausible.
    """

    kind: str
    step: str
    values: Mapping[str, Any] = field(default_factory=dict)
    grain: str = "all"
    cost: float = 0.0
    result: Tensor | None = field(default=None, compare=False, repr=False)
    sure: bool = True
    other: "Slip | None" = None

    @property
    def candidates(self) -> tuple["Slip", ...]:
        """The slip, and the other one if there is one."""
        return (self,) if self.other is None else (self, self.other)


def misprints(value: float, decimals: int) -> Iterator[tuple[str, float]]:
    """Numbers that may have been misprinted as `value`: two digits swapped, sign lost, point misplaced, a digit wrong.

    >>> [meant for kind, meant in misprints(0.76, 2) if kind == "digits-swapped"]
    [7.06, 0.67]
    """
    if not math.isfinite(value):
        return
    seen: set[float] = {value}
    moved = [("sign-lost", -value), ("point-misplaced", value * 10), ("point-misplaced", value / 10)]
    for kind, meant in itertools.chain(_swapped(value, decimals), moved, _one_off(value, decimals)):
        if meant not in seen:
            seen.add(meant)
            yield kind, meant


def _swapped(value: float, decimals: int) -> Iterator[tuple[str, float]]:
    for digits in range(decimals + 1):
        written = f"{abs(value):.{digits}f}"
        indices = [index for index, sign in enumerate(written) if sign.isdigit() and float(written) == abs(value)]
        for first, second in itertools.pairwise(indices):
            swapped = list(written)
            swapped[first], swapped[second] = swapped[second], swapped[first]
            yield "digits-swapped", math.copysign(float("".join(swapped)), value)


def _one_off(value: float, decimals: int) -> Iterator[tuple[str, float]]:
    """A carry forgotten or made up: ten units of the last digit, or a higher place."""
    for digit in range(1, max(decimals, len(str(int(abs(value)))) + decimals - 1) + 1):
        for sign in (1, -1):
            yield "digit-wrong", round(value + sign * 10.0 ** (digit - decimals), decimals)
