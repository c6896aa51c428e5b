"""Kinds of slips, how common they are, and misprints of a single number."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

COMMONNESS = {
    # The scale and the mask.
    "scale-missing": 8.0,
    "scale-other": 6.0,
    "scale-twice": 1.0,
    "scale-late": 1.0,
    "mask-missing": 6.0,
    "mask-other": 5.0,
    "mask-late": 4.0,
    "zero-for-infinity": 4.0,
    # The softmax.
    "not-exponential": 5.0,
    "not-divided": 2.0,
    "temperature": 2.0,
    "softmax-twice": 2.0,
    "total-wrong": 2.0,
    "base-other": 3.0,
    "wrong-axis": 5.0,
    "maximum-once": 1.0,
    "softmax-missing": 2.0,
    # Operands.
    "operand-other": 8.0,
    "operands-exchanged": 3.0,
    "transposed": 6.0,
    "other-row": 6.0,
    "copied-wrong": 4.0,
    # Terms of sums and products.
    "term-dropped": 5.0,
    "term-doubled": 1.5,
    "term-sign": 3.0,
    "term-added": 1.5,
    # Heads and matrices.
    "projection-missing": 4.0,
    "heads-averaged": 2.0,
    "heads-order": 2.0,
    "heads-single": 3.0,
    "head-other": 3.0,
    # Biases, residuals, norms, activations.
    "bias-missing": 5.0,
    "bias-twice": 1.0,
    "residual-missing": 5.0,
    "residual-twice": 1.0,
    "norm-other": 8.0,
    "norm-order": 2.0,
    "gain-missing": 2.0,
    "activation-missing": 4.0,
    "activation-other": 2.0,
    "activation-late": 0.5,
    # Positions and choices.
    "positions-from-one": 4.0,
    "sine-cosine": 3.0,
    "exponent-other": 3.0,
    "halves": 2.0,
    "degrees": 2.0,
    "second-best": 4.0,
    "temperature-missing": 4.0,
    "temperature-inverted": 4.0,
    "temperature-direct": 2.0,
    "not-renormalised": 4.0,
    "kept-other": 5.0,
    # Free steps.
    "constant-other": 1.5,
    "function-missing": 2.0,
    "function-other": 1.0,
    "operation-inverse": 1.0,
    "repeated": 0.5,
    # Misprints of one number.
    "digits-swapped": 5.0,
    "sign-lost": 5.0,
    "point-misplaced": 4.0,
    "digit-wrong": 4.0,
}
"""By kind: how common it is among slips, in percent. A kind's share is divided among its hypotheses."""
GENERIC = (
    *("constant-other", "function-missing", "function-other", "operation-inverse", "repeated", "operands-exchanged"),
)
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
        places: placeholders of its phrase.
        sure: whether nothing else is nearly as plausible.
        other: another slip that is about as plausible.
    """

    kind: str
    step: str
    places: Mapping[str, object] = field(default_factory=dict)
    sure: bool = True
    other: "Slip | None" = None


def misprints(value: float, decimals: int) -> Iterator[tuple[str, float]]:
    """Numbers that may have been misprinted as `value`: two digits swapped, sign lost, point misplaced, a digit wrong.

    >>> [meant for kind, meant in misprints(0.76, 2) if kind == "digits-swapped"]
    [7.06, 0.67]
    """
    if not math.isfinite(value):
        return
    seen: set[float] = {value}
    for kind, meant in itertools.chain(_swapped(value, decimals), _moved(value, decimals), _one_off(value, decimals)):
        if meant not in seen:
            seen.add(meant)
            yield kind, meant


def _swapped(value: float, decimals: int) -> Iterator[tuple[str, float]]:
    for digits in range(decimals + 1):
        written = f"{abs(value):.{digits}f}"
        if float(written) != abs(value):
            continue
        places = [place for place, sign in enumerate(written) if sign.isdigit()]
        for first, second in itertools.pairwise(places):
            swapped = list(written)
            swapped[first], swapped[second] = swapped[second], swapped[first]
            yield "digits-swapped", math.copysign(float("".join(swapped)), value)


def _moved(value: float, decimals: int) -> Iterator[tuple[str, float]]:
    yield "sign-lost", -value
    for power in (1, -1):
        yield "point-misplaced", value * 10.0**power


def _one_off(value: float, decimals: int) -> Iterator[tuple[str, float]]:
    """A carry forgotten or made up: ten units of the last digit, or a higher place."""
    size = max(decimals, len(str(int(abs(value)))) + decimals - 1)
    for place in range(1, size + 1):
        for sign in (1, -1):
            yield "digit-wrong", round(value + sign * 10.0 ** (place - decimals), decimals)
