"""The probe of losses by position: the numbers its view compares, checks, tabulates and draws."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.studies.conftest import NO_STUDY, fresh, is_plain
from vitral.studies.claims import Claim
from vitral.studies.judging import judge
from vitral.studies.probe import ArmMeasures, View
from vitral.studies.probes import context
from vitral.training import RunConfig

CONTEXT = 8


def run_of(inside: Sequence[float], beyond: float, *, why: str = "", first: int = 0) -> dict[str, Any]:
    """Measures of one run with these losses inside and `beyond` in the second length; the first are not scored."""
    nats: list[float | None] = [None] * first + list(inside[first:])
    quarters: list[float | None] = [inside[-1]] * 4 + [None if why else beyond] * 4
    quarters[: -(-first // 2)] = [None] * -(-first // 2)
    return {
        "context_length": CONTEXT,
        "inside": {"windows": 5, "nats": nats},
        "beyond": {"length": 2 * CONTEXT, "nats": quarters, "targets": 50} | ({"why": why} if why else {}),
    }


def arm(name: str, runs: Sequence[dict[str, Any]]) -> ArmMeasures:
    return ArmMeasures(name, f"title of {name}", {}, dict(enumerate(runs, start=1)))


def flat(*beyond: float, **changes: Any) -> list[dict[str, Any]]:
    """A run for each loss beyond the trained length; inside, the loss falls by 1 after the first position."""
    return [run_of([3.0, *[2.0] * 7], value, **changes) for value in beyond]


def along(view: View) -> list[Claim]:
    """The claims about the change along the window."""
    return [claim for claim in judge(view.comparisons) if "quarter" in claim.comparison.quantity.name]


@pytest.mark.parametrize(
    ("beyond", "mean", "shown"),
    [
        ((2.51, 2.52, 2.53), 0.52, False),
        ((2.01, 2.00, 1.99), 0.0, True),
        ((1.5, 1.51, 1.52), -0.49, True),
        ((2.0, 2.1, 2.2), 0.1, None),
    ],
)
def test_a_loss_is_kept_where_its_rise_is_at_most_the_margin(
    beyond: tuple[float, ...], mean: float, shown: bool | None
) -> None:
    view = context.BY_POSITION.view(NO_STUDY, [arm("base", flat(*beyond))])
    (check,) = view.checks
    assert (check.high, check.shown) == (context.KEEPS, shown)
    assert check.value == pytest.approx(mean)


def test_reading_on_is_compared_with_alibi_first() -> None:
    def kind(name: str, *beyond: float) -> ArmMeasures:
        return replace(arm(name, flat(*beyond)), config={"model": {"positions": name}})

    arms = [kind("learned", 2.0, 2.0, 2.0), kind("none", 2.6, 2.61, 2.59), kind("rotary", 2.5, 2.52, 2.51)]
    for run in arms[0].runs.values():
        run["beyond"]["nats"] = [None] * 8
    second, first, *_ = judge(context.BY_POSITION.view(NO_STUDY, [*arms, kind("alibi", 2.01, 2.0, 1.99)]).comparisons)
    assert [one.comparison.arm for one in (first, second)] == ["rotary", "none"]
    assert (first.comparison.against, first.verdict) == ("title of alibi", "worse")
    assert first.difference == pytest.approx(0.51)


def test_an_arm_that_cannot_read_on_is_named_and_not_judged() -> None:
    base = arm("base", flat(0.0, 0.0, 0.0, why="learned positions end at 8"))
    view = context.BY_POSITION.view(NO_STUDY, [base, arm("other", flat(2.01, 2.0, 1.99))])
    assert [(note.arm, "learned positions end at 8" in note.text) for note in view.notes] == [("base", True)]
    assert [check.arm for check in view.checks] == ["other"]


def test_a_change_along_the_window_is_found_and_a_constant_gap_is_none() -> None:
    base, steep, level = [], [], []
    for seed in (1, 2, 3):
        own = [2.0 + 0.01 * seed] * 8
        base.append(run_of(own, 2.0))
        steep.append(run_of([loss + 0.1 * p + 0.001 * seed * p for p, loss in enumerate(own)], 2.0))
        level.append(run_of([loss + 0.3 + 0.01 * (p // 2) * (seed - 2) for p, loss in enumerate(own)], 2.0))
    claims = along(context.BY_POSITION.view(NO_STUDY, [arm("base", base), arm("steep", steep), arm("level", level)]))
    assert [(claim.comparison.arm, claim.verdict) for claim in claims] == [("steep", "higher"), ("level", "undecided")]
    assert claims[0].difference == pytest.approx(0.102 * (6.5 - 0.5))  # last two positions less the first two


def test_the_measure_is_plain_and_can_be_viewed(tiny: RunConfig) -> None:
    measured = context.by_position(fresh(tiny, context_length=CONTEXT))
    assert is_plain(measured)
    assert (len(measured["inside"]["nats"]), measured["beyond"]["length"]) == (CONTEXT, 2 * CONTEXT)
    assert context.BY_POSITION.view(NO_STUDY, [arm("base", [measured])]).notes
