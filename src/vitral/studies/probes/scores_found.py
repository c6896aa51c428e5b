"""What the probe `score-statistics` allows one to say: measured variances against theory, and what d_k changes."""

import math
from collections.abc import Sequence

from vitral.studies.probes.protocol import Plain
from vitral.studies.verdict import Finding
from vitral.studies.wording import signed

NAME = "score-statistics"
TITLES = {"none": "no scale", "sqrt": "1/√d_k", "linear": "1/d_k", "adaptive": "adaptive"}
FIXED = ("none", "sqrt", "linear")
"""Scales that are one number, so that a single pair has a scaled score; the adaptive one needs a row."""
TOLERANCE = 0.02
"""Share of the theoretical variance within which a measured one counts as agreeing."""
SURE = 3.0
"""Standard errors that two shares, means or changes must differ by to be called different."""
LEAST = 1e-30
OF_A_MEDIAN = math.sqrt(math.pi / 2)
"""Standard error of a median in units of a mean's, under the normal law: for measurements that have the latter only."""


def theory(scale: str, d_k: int) -> float:
    """Variance of the scaled score of an independent N(0, 1) query and key: d_k, 1 or 1/d_k.

    >>> theory("none", 64), theory("sqrt", 64), theory("linear", 64)
    (64.0, 1.0, 0.015625)
    """
    return {"none": float(d_k), "sqrt": 1.0, "linear": 1 / d_k}[scale]


def deviation(measured: Plain, scale: str, index: int) -> tuple[float, float]:
    """Relative deviation of a measured variance from theory, and in standard errors."""
    numbers, expected = measured["scales"][scale], theory(scale, measured["d_ks"][index])
    away = numbers["variance"][index] - expected
    return away / expected, away / numbers["variance_error"][index]


def variance_finding(measured: Plain) -> "Finding":
    """Whether every measured variance lies within `TOLERANCE` of theory."""
    places = [(scale, index) for scale in FIXED for index in range(len(measured["d_ks"]))]
    scale, index = max(places, key=lambda place: abs(deviation(measured, *place)[0]))
    away, errors = deviation(measured, scale, index)
    agrees = abs(away) <= TOLERANCE
    values = ", ".join(
        f"{measured['scales']['none']['variance'][at]:.4g} at d_k {d_k}" for at, d_k in enumerate(measured["d_ks"])
    )
    where = f"at d_k {measured['d_ks'][index]} ({signed(100 * away, 2)}%, {signed(errors, 1)} standard errors)"
    how = (
        f"lies within {TOLERANCE:.0%} of d_k, 1 and 1/d_k for the scales none, 1/√d_k and 1/d_k; it is furthest {where}"
        if agrees
        else f"does not lie within {TOLERANCE:.0%} of theory everywhere: under {TITLES[scale]} it is off {where}"
    )
    text = (
        f"Over {measured['pairs']:,} independent pairs the variance of the scores {how}. Without a scale it is "
        f"{values}."
    )
    return Finding(NAME, "", text, holds=agrees)


def saturation_findings(measured: Plain) -> "list[Finding]":
    """Whether rows saturate as d_k grows, without a scale and with 1/√d_k, and what the Jacobian does."""
    found: list[Finding] = []
    for scale, should in (("none", "rises"), ("sqrt", "stays")):
        first, last, way = _course(measured, scale, "saturated")
        low, high, bend = _course(measured, scale, "jacobian")
        ends = f"from d_k {measured['d_ks'][0]} to {measured['d_ks'][-1]}"
        share = f"{100 * first:.1f}%" if way == "stays" else f"from {100 * first:.1f}% to {100 * last:.1f}%"
        words = {"rises": "rises", "falls": "falls", "stays": "shows no change, at"}
        norm = f"from {low:.3f} to {high:.3f}" if bend != "stays" else f"{low:.3f}"
        text = (
            f"With {TITLES[scale]} the share of saturated rows {words[way]} {share} {ends}, and the mean norm of the "
            f"softmax Jacobian {words[bend]} {norm}."
        )
        found.append(Finding(NAME, "", text, holds=way == should))
    return found


def _course(measured: Plain, scale: str, quantity: str) -> tuple[float, float, str]:
    """The quantity at the least and the largest d_k, and whether it rises, falls or stays within `SURE` errors."""
    values, errors = (measured["scales"][scale][name] for name in (quantity, f"{quantity}_error"))
    spread = math.hypot(errors[0], errors[-1])
    change = values[-1] - values[0]
    way = "stays" if abs(change) <= SURE * spread else "rises" if change > 0 else "falls"
    return values[0], values[-1], way


def sensitivity_finding(measured: Plain) -> "Finding":
    """Under which fixed scale ∂weights/∂q of the median row changes least with d_k; the claim is 1/√d_k.

    A change is |ln(last / first)|. The least is named alone where every other stays larger, all values within `SURE`
    standard errors of what was found. Those that need not are named with it, and then 1/√d_k among them has no verdict.
    """
    ratios, means = (
        {scale: _ratio(measured["scales"][scale][name]) for scale in FIXED}
        for name in ("sensitivity_median", "sensitivity")
    )
    least = least_changed(measured)
    each = ", ".join(f"{TITLES[scale]} ×{ratio:.2g} (mean row ×{means[scale]:.2g})" for scale, ratio in ratios.items())
    named = " and ".join(TITLES[scale] for scale in least)
    text = (
        f"From d_k {measured['d_ks'][0]} to {measured['d_ks'][-1]} the norm of ∂weights/∂q, which a gradient must "
        f"pass on its way to the query, changes in the median row by: {each}; least under {named}"
        + (f", not told apart within {SURE:g} standard errors." if len(least) > 1 else ".")
    )
    return Finding(NAME, "", text, holds="sqrt" in least if len(least) == 1 or "sqrt" not in least else None)


def least_changed(measured: Plain) -> list[str]:
    """The fixed scale under which the median ∂weights/∂q changes least, and those not told apart from it."""
    ranges: dict[str, tuple[float, float]] = {}
    for scale in FIXED:
        numbers = measured["scales"][scale]
        errors = numbers.get("sensitivity_median_error") or [OF_A_MEDIAN * e for e in numbers["sensitivity_error"]]
        ranges[scale] = change_range(numbers["sensitivity_median"], errors)
    first = min(FIXED, key=lambda scale: abs(math.log(_ratio(measured["scales"][scale]["sensitivity_median"]))))
    return [first, *(scale for scale in FIXED if scale != first and ranges[scale][0] <= ranges[first][1])]


def change_range(values: Sequence[float], errors: Sequence[float]) -> tuple[float, float]:
    """The least and the largest |ln(last / first)| with both values within `SURE` standard errors of what was found.

    On the values themselves and not on their logarithms, since an error can be as large as its value.
    """
    ends = [(values[at] - SURE * errors[at], values[at] + SURE * errors[at]) for at in (0, -1)]
    low, high = _ratio((ends[0][1], ends[1][0])), _ratio((ends[0][0], ends[1][1]))
    furthest = max(abs(math.log(low)), abs(math.log(high)))
    return (0.0 if low <= 1 <= high else min(abs(math.log(low)), abs(math.log(high)))), furthest


def _ratio(values: Sequence[float]) -> float:
    """The last value in units of the first, both kept away from zero."""
    first, last = (max(value, LEAST) for value in (values[0], values[-1]))
    return last / first
