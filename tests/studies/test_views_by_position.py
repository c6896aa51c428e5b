"""The probe of losses by position: the numbers its view compares, checks, tabulates and draws."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vitral.core.config import merge
from vitral.core.errors import UsageError
from vitral.data import prepare
from vitral.figures.sections import Table
from vitral.runs import load_run
from vitral.studies.claims import Claim
from vitral.studies.judging import judge
from vitral.studies.probe import ArmMeasures, Plot, Trained, View
from vitral.studies.probes import by_position
from vitral.training import RunConfig, train

CONTEXT = 8
RESULT: Any = None
"""The view reads nothing of the study's result."""


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
    view = by_position.view(RESULT, [arm("base", flat(*beyond))])
    (check,) = view.checks
    assert (check.high, check.shown) == (by_position.KEEPS, shown)
    assert check.value == pytest.approx(mean)


def test_the_loss_just_past_is_compared_with_the_last_quarter_inside() -> None:
    (claim,) = judge(by_position.view(RESULT, [arm("base", flat(2.51, 2.52, 2.53))]).comparisons)
    assert (claim.verdict, claim.difference) == ("worse", pytest.approx(0.52))
    assert claim.comparison.quantity.unit == "nats"


def test_reading_on_is_compared_with_alibi_first() -> None:
    def kind(name: str, *beyond: float) -> ArmMeasures:
        return replace(arm(name, flat(*beyond)), config={"model": {"positions": name}})

    arms = [kind("learned", 2.0, 2.0, 2.0), kind("none", 2.6, 2.61, 2.59), kind("rotary", 2.5, 2.52, 2.51)]
    for run in arms[0].runs.values():
        run["beyond"]["nats"] = [None] * 8
    first, second, *_ = judge(by_position.view(RESULT, [*arms, kind("alibi", 2.01, 2.0, 1.99)]).comparisons)
    assert [one.comparison.arm for one in (first, second)] == ["rotary", "none"]
    assert (first.comparison.against, first.verdict) == ("title of alibi", "worse")
    assert first.difference == pytest.approx(0.51)


def test_two_seeds_decide_nothing() -> None:
    view = by_position.view(RESULT, [arm("base", flat(2.5, 2.5)), arm("other", flat(2.0, 2.1))])
    assert not view.checks
    assert all(claim.shown is None for claim in judge(view.comparisons))


def test_the_margin_is_checked_for_all_arms_together() -> None:
    """Rises of 0.3, 0.4 and 0.5 nats are p = 0.027 against the margin; with two arms 0.053."""
    alone = by_position.view(RESULT, [arm("base", flat(2.3, 2.4, 2.5))])
    both = by_position.view(RESULT, [arm("base", flat(2.3, 2.4, 2.5)), arm("other", flat(2.3, 2.4, 2.5))])
    assert [check.shown for check in alone.checks] == [False]
    assert [check.shown for check in both.checks] == [None, None]


def test_an_arm_that_cannot_read_on_is_named_and_not_judged() -> None:
    base = arm("base", flat(0.0, 0.0, 0.0, why="learned positions end at 8"))
    view = by_position.view(RESULT, [base, arm("other", flat(2.01, 2.0, 1.99))])
    assert [(note.arm, "learned positions end at 8" in note.text) for note in view.notes] == [("base", True)]
    assert [check.arm for check in view.checks] == ["other"]


def test_a_change_along_the_window_is_found_and_a_constant_gap_is_none() -> None:
    base, steep, level = [], [], []
    for seed in (1, 2, 3):
        own = [2.0 + 0.01 * seed] * 8
        base.append(run_of(own, 2.0))
        steep.append(run_of([loss + 0.1 * p + 0.001 * seed * p for p, loss in enumerate(own)], 2.0))
        level.append(run_of([loss + 0.3 + 0.01 * (p // 2) * (seed - 2) for p, loss in enumerate(own)], 2.0))
    claims = along(by_position.view(RESULT, [arm("base", base), arm("steep", steep), arm("level", level)]))
    assert [(claim.comparison.arm, claim.verdict) for claim in claims] == [("steep", "higher"), ("level", "undecided")]
    assert claims[0].difference == pytest.approx(0.102 * (6.5 - 0.5))  # last two positions less the first two


def test_windows_are_compared_where_both_are_scored() -> None:
    """Of eight positions five are scored: the last quarter of them is the last two, the first the fourth."""
    own = [3.0, *[2.0] * 7]
    base = arm("base", [run_of(own, 2.0 + seed / 100) for seed in (1, 2, 3)])
    tilted = [run_of([v + (0.1 + seed / 1e3) * p for p, v in enumerate(own)], 2.0, first=3) for seed in (1, 2, 3)]
    hidden = [run_of(own, 2.0, first=8) for _ in range(3)]
    (claim,) = along(by_position.view(RESULT, [base, arm("tilted", tilted), arm("hidden", hidden)]))
    assert claim.comparison.arm == "tilted"
    assert claim.difference == pytest.approx(0.102 * (6.5 - 3))


def test_arms_without_any_loss_are_named_and_not_drawn() -> None:
    runs = [run_of([2.0] * 8, 2.0, first=8) for _ in range(3)]
    for run in runs:
        run["beyond"]["nats"] = [None] * 8
    view = by_position.view(RESULT, [arm("base", runs), arm("other", runs)])
    assert not [section for section in view.sections if isinstance(section, Plot)]
    assert [note.arm for note in view.notes] == ["base", "other"]
    assert (view.checks, view.comparisons) == ((), ())


def test_tables_have_means_by_groups_of_positions_and_of_lengths() -> None:
    view = by_position.view(RESULT, [arm("base", flat(2.5, 2.6, 2.7))])
    inside, beyond = (section for section in view.sections if isinstance(section, Table))
    # positions 1, 2-4, 5-8, then the first and the last quarter
    assert [cell for row in inside.rows for cell in row[1:]] == ["3.000", "2.000", "2.000", "2.500", "2.000"]
    assert [cell for row in beyond.rows for cell in row[1:]] == ["2.000", "2.600"]


def test_arms_beyond_the_number_of_distinct_lines_are_left_out_of_figures_by_name() -> None:
    view = by_position.view(RESULT, [arm(f"a{k}", flat(2.1)) for k in range(10)])
    plots = {section.name: section for section in view.sections if isinstance(section, Plot)}
    assert set(plots) == {"loss-by-position", "loss-beyond-the-trained-length"}
    assert all("title of a8, title of a9" in plot.caption for plot in plots.values())


@pytest.fixture(scope="module")
def trained(tiny: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A trained run with a context length of whole quarters."""
    config = RunConfig.parse(merge(tiny.plain(), {"model": {"context_length": CONTEXT}}))
    path: Path = tmp_path_factory.mktemp("run") / "run"
    dataset = prepare(config.corpus)
    train(config, path, dataset=dataset)
    return Trained("base", 1, load_run(path, "last"), dataset, "quick")


def test_the_measure_is_plain_and_can_be_viewed(trained: Trained) -> None:
    found = by_position.measure(trained)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (len(found["inside"]["nats"]), found["beyond"]["length"]) == (CONTEXT, 2 * CONTEXT)
    assert by_position.view(RESULT, [arm("base", [found])]).notes


@pytest.mark.parametrize("change", [{"allow_leak": True}, {"objective": {"name": "masked", "rate": 0.15}}])
def test_a_run_that_does_not_predict_next_tokens_is_refused(trained: Trained, change: dict[str, Any]) -> None:
    config = dict(trained.run.config)
    config["training"] = config["training"] | change
    run: Any = SimpleNamespace(model=trained.run.model, tokenizer=trained.run.tokenizer, config=config)
    with pytest.raises(UsageError, match="base is not trained to predict the next token"):
        by_position.measure(replace(trained, run=run))
