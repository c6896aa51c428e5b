"""The probes `rates` and `coordinate-check`: losses whose best rates are known, and movements whose exponents are."""

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from vitral.studies.judging import judge
from vitral.studies.probe import ArmMeasures
from vitral.studies.probes import probe_named
from vitral.studies.probes.coordinate_check import exponent
from vitral.studies.probes.rates import best_rate
from vitral.studies.results import StudyResult

RATES_TRIED = [0.001 * 2**power for power in range(6)]
SEEDS = range(1, 7)


def loss(width: int, kind: str, rate: float, seed: int) -> float:
    """A parabola over log2(rate) whose bottom is at 0.008, under the standard parametrisation at 0.008 · 32 / width."""
    moved = math.log2(32 / width) if kind == "standard" else 0.0
    away = math.log2(rate) - math.log2(0.008) - moved - 0.01 * seed
    return 2.0 - 0.1 * math.log2(width / 32) + 0.05 * away**2


def measured(missing: tuple[tuple[str, int], ...] = ()) -> tuple[StudyResult, list[ArmMeasures]]:
    arms, found = {}, []
    for kind, width in (("standard", 32), ("standard", 128), ("mup", 128)):
        for rate in RATES_TRIED:
            name = f"{kind}-{width}-{round(rate * 1000)}"
            losses = {s: loss(width, kind, rate, s) for s in SEEDS if (name, s) not in missing}
            run = {"rate": rate, "width": width} | ({"base_width": 32} if kind == "mup" else {})
            found.append(ArmMeasures(name, name, {}, dict.fromkeys(SEEDS, run)))
            arms[name] = SimpleNamespace(losses=losses, factor=1.0)
    return cast("StudyResult", SimpleNamespace(arm=arms.__getitem__)), found


def test_the_best_rate_is_the_bottom_of_a_parabola() -> None:
    for bottom in (-8.3, -7.0, -6.51):
        losses = {rate: (math.log2(rate) - bottom) ** 2 for rate in RATES_TRIED}
        assert math.log2(best_rate(losses) or 0) == pytest.approx(bottom)
    assert best_rate({0.1: 1.0, 0.2: 2.0, 0.4: 3.0}) == 0.1
    assert best_rate({0.1: 1.0, 0.2: 1.0, 0.4: 1.0}) == 0.1
    assert best_rate({0.1: 1.0, 0.2: 2.0}) is None


def test_shifts_of_the_best_rate_are_found_and_none_where_there_is_none() -> None:
    view = probe_named("rates").view(*measured())
    claims = {(claim.comparison.subject, claim.comparison.quantity.name): claim for claim in judge(view.comparisons)}
    shift = claims["standard parametrisation, width 128", "best learning rate, in doublings"]
    assert shift.difference == pytest.approx(-2.0)
    stays = claims["parametrisation muP, width 128", "best learning rate, in doublings"]
    assert stays.difference == pytest.approx(0.0, abs=1e-9)
    kept = claims["parametrisation muP, width 128", "loss at the rate tuned at width 32"]
    assert kept.verdict == "better"
    assert kept.difference == pytest.approx(-0.05 * 4, abs=0.02)
    assert not view.notes


def test_exponents_beside_theory() -> None:
    assert exponent([32, 64, 128], [1.0, 0.5, 0.25]) == pytest.approx(-1.0)
    names = ("blocks.1.attn.out", "blocks.1.mlp.out", "logits")
    widths = [32, 64, 128]
    moved: dict[str, list[Any]] = {
        "standard": [dict.fromkeys(names, float(width)) for width in widths],
        "mup": [dict.fromkeys(names, 3.0) for _ in widths],
    }
    found = {"steps": 4, "rate": 0.008, "widths": widths, "moved": moved}
    view = probe_named("coordinate-check").view(cast("StudyResult", SimpleNamespace()), found)
    assert [check.verdict for check in view.checks] == ["as expected"] * 6
    moved["mup"] = moved["standard"]
    view = probe_named("coordinate-check").view(cast("StudyResult", SimpleNamespace()), found)
    assert [check.verdict for check in view.checks] == ["as expected"] * 3 + ["not as expected"] * 3
