"""Goals, tables, figures and files from measurements that are made up."""

import json
import math
from pathlib import Path

import pytest

from benchmarks import table
from benchmarks.machine import describe_machine, machine_slug
from benchmarks.results import Goal, Measurement, Section


def section(*goals: Goal, ours: tuple[float, ...] = (1.0, 2.0, 1.0)) -> Section:
    measurements = (Measurement("Vitral", ours), Measurement("peer", (4.0, 4.0, 8.0), {"test loss": 1.79}))
    return Section("row", "a title", measurements, unit="tokens", work=10.0, goals=goals, notes=("a [note]",))


@pytest.mark.parametrize(
    ("goal", "measured", "reached"),
    [
        (Goal("faster", 4, "peer"), 4.0, True),
        (Goal("faster", 5, "peer"), 4.0, False),
        (Goal("within", 0.25, "peer"), 0.25, True),
        (Goal("within", 0.2, "peer"), 0.25, False),
        (Goal("beyond", -3, "peer"), -3.0, True),
        (Goal("rate", 10), 10.0, True),
        (Goal("rate", 11), 10.0, False),
        (Goal("seconds", 0.9), 1.0, False),
    ],
)
def test_goals_are_judged_by_the_median(goal: Goal, measured: float, reached: bool) -> None:
    (verdict,) = section(goal).verdicts()
    assert verdict.measured is not None
    assert verdict.measured.median == pytest.approx(measured)
    assert verdict.reached is reached


def test_a_goal_against_a_peer_that_is_not_there_is_not_reached() -> None:
    (verdict,) = section(Goal("faster", 2, "nobody")).verdicts()
    assert verdict.measured is None
    assert "nobody was not measured" in table.verdict_text(verdict)


def test_vitral_missing_its_target_reaches_no_goal() -> None:
    missed = section(Goal("faster", 2, "peer"), ours=(math.inf, math.inf, 1.0))
    assert not missed.verdicts()[0].reached
    json.dumps(missed.plain(), allow_nan=False)


def test_rows_measured_earlier_stay(tmp_path: Path) -> None:
    path = tmp_path / "results" / "machine.json"
    table.write(path, {"processor": "p"}, [section()])
    other = Section("other", "t", section().measurements)
    table.write(path, {"processor": "p"}, [other])
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert set(kept["rows"]) == {"row", "other"}
    assert kept["rows"]["row"]["tables"][0]["contenders"][1]["seconds"] == [4.0, 4.0, 8.0]


def test_the_machine_is_described_without_its_name() -> None:
    described = describe_machine(2)
    assert described["threads"] == 2
    assert described["processor"]
    assert "host" not in " ".join(described)
    assert machine_slug(described).isascii()
