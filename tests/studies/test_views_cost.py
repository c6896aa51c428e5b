"""The view of the probe `cost-by-length`: checks and tables follow from made-up numbers."""

import math
from typing import Any

import pytest

from tests.studies.conftest import NO_STUDY, tables
from vitral.inspection.cost import WAYS, counted, slope
from vitral.studies.claims import Check
from vitral.studies.probe import View
from vitral.studies.probes.masks import COST


def measured(factor: float = 1.0) -> dict[str, Any]:
    """Times that follow counted operations at 10 billion a second, those at longer lengths `factor` slower."""
    lengths = [128, 1024, 2048, 4096, 8192]
    flops = {way: [counted(length)[way] for length in lengths] for way in WAYS}
    slower = [factor ** max(0, math.log2(length / 1024)) for length in lengths]
    times = {way: [f * s / 1e10 for f, s in zip(flops[way], slower, strict=True)] for way in WAYS}
    fit = {way: slope(lengths[1:], times[way][1:]) for way in WAYS}
    expected = {way: slope(lengths[1:], flops[way][1:])["slope"] for way in WAYS}
    return {
        "lengths": lengths,
        "rounds": 3,
        "batch": 64,
        "threads": 1,
        "fitted": lengths[1:],
        "model": {"d_model": 64, "heads": 8, "layers": 1},
        "processor": times,
        "flops": flops,
        "exponents": {way: {"processor": fit[way], "predicted": expected[way]} for way in WAYS},
    }


def exponents(result: View) -> list[Check]:
    return [check for check in result.checks if check.what.startswith("exponent")]


def test_times_that_follow_operations_agree() -> None:
    result = COST.view(NO_STUDY, measured())
    assert [check.shown for check in exponents(result)] == [True] * 7
    ratios = [check for check in result.checks if check.what.startswith("time of a token")]
    longest = counted(8192)
    assert [check.value for check in ratios] == pytest.approx(
        [8192.0, 8192.0, longest["one-by-one"] / longest["at-once"]]
    )
    assert [check.shown for check in ratios] == [True, True, False]


@pytest.mark.parametrize("factor", [1.3, 0.75])
def test_times_that_do_not_are_off_by_the_logarithm_of_the_factor(factor: float) -> None:
    result = COST.view(NO_STUDY, measured(factor))
    assert [check.shown for check in exponents(result)] == [False] * 7
    rows = tables(result)[0].cells
    assert all(
        float(row[5].replace("\N{MINUS SIGN}", "-")) == pytest.approx(math.log2(factor), abs=0.01) for row in rows
    )
