"""Arithmetic with intervals: the numbers that printed, and thus rounded, numbers may stand for."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy.special import expit, ndtr

SLACK = 1e-9
"""Relative: double precision itself."""


class Untrue(AssertionError):
    """An equation with sides that do not agree."""


@dataclass(frozen=True)
class Interval:
    """The numbers that a printed number may stand for."""

    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse what no number can be."""
        if math.isnan(self.low) or math.isnan(self.high):
            raise Untrue("a side is not a number")


def exact(value: float) -> Interval:
    return Interval(float(value), float(value))


def _both(one: Interval, other: Interval, how: Callable[[float, float], float]) -> Interval:
    ends = [how(a, b) for a in (one.low, one.high) for b in (other.low, other.high)]
    return Interval(min(ends), max(ends))


def _times(a: float, b: float) -> float:
    return 0.0 if 0.0 in (a, b) else a * b


def add(one: Interval, other: Interval) -> Interval:
    return Interval(one.low + other.low, one.high + other.high)


def subtract(one: Interval, other: Interval) -> Interval:
    return Interval(one.low - other.high, one.high - other.low)


def multiply(one: Interval, other: Interval) -> Interval:
    return _both(one, other, _times)


def divide(one: Interval, other: Interval) -> Interval:
    if other.low <= 0 <= other.high:
        raise Untrue(f"division by what may be 0: {other}")
    return _both(one, other, lambda a, b: a / b)


def _safe(function: Callable[[float], float]) -> Callable[[float], float]:
    def safe(value: float) -> float:
        try:
            return function(value)
        except OverflowError:
            return math.inf

    return safe


def rising(function: Callable[[float], float]) -> Callable[[Interval], Interval]:
    return lambda of: Interval(_safe(function)(of.low), _safe(function)(of.high))


def power(base: Interval, exponent: Interval) -> Interval:
    if exponent.low == exponent.high and exponent.low == int(exponent.low):
        ends = [base.low**exponent.low, base.high**exponent.low]
        low = 0.0 if base.low <= 0 <= base.high and exponent.low % 2 == 0 else min(ends)
        return Interval(low, max(ends))
    if base.high < 0:
        raise Untrue("a power of a negative number")
    positive = Interval(max(base.low, 0.0), base.high)
    return _both(positive, exponent, lambda a, b: 0.0 if a == 0 else a**b)


def wave(function: Callable[[float], float], peak: float) -> Callable[[Interval], Interval]:
    """Sine or cosine; `peak` is the place of a maximum."""

    def of(angle: Interval) -> Interval:
        def holds(place: float) -> bool:
            return math.ceil((angle.low - place) / (2 * math.pi)) * 2 * math.pi + place <= angle.high

        ends = function(angle.low), function(angle.high)
        return Interval(-1.0 if holds(peak + math.pi) else min(ends), 1.0 if holds(peak) else max(ends))

    return of


def dip(function: Callable[[float], float], place: float) -> Callable[[Interval], Interval]:
    """A function that falls up to a place and rises from there on, or falls only where it is above its least value."""

    def of(x: Interval) -> Interval:
        ends = function(x.low), function(x.high)
        return Interval(function(place) if x.low <= place <= x.high else min(ends), max(ends))

    return of


def _gelu(x: float) -> float:
    return x * ndtr(x)


def _tanh_gelu(x: float) -> float:
    return x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


FUNCTIONS: dict[str, Callable[[Interval], Interval]] = {
    "exp": rising(math.exp),
    "Φ": rising(ndtr),
    "sin": wave(math.sin, math.pi / 2),
    "cos": wave(math.cos, 0.0),
    "GELU": dip(_gelu, -0.7517915246935645),
    "TanhGELU": dip(_tanh_gelu, -0.7524614220710163),
    "SiLU": dip(lambda x: x * expit(x) if x > -700 else 0.0, -1.2784645427610737),
    "abs": dip(abs, 0.0),
    "tanh": rising(math.tanh),
    "sigmoid": rising(expit),
    "floor": rising(math.floor),
    "ReLU": rising(lambda x: max(0.0, x)),
    "log": rising(lambda x: math.log(x) if x > 0 else -math.inf),
    "ReLU²": rising(lambda x: max(0.0, x) ** 2),
}
