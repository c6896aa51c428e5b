"""The probe `head-patterns`: what is measured of a run, and the numbers and judgements that its view makes of them."""

from base64 import b64encode
from typing import Any

import numpy as np
import pytest

from tests.studies.conftest import fresh, is_plain, viewed
from vitral.inspection.attention import BROAD, KINDS, STEPS
from vitral.studies.claims import Claim
from vitral.studies.judging import judge
from vitral.studies.probe import View
from vitral.studies.probes import probe_named
from vitral.training import RunConfig

SEEDS = (1, 2, 3)


def a_run(names: list[str], each: float, together: float, overlap: float | None) -> dict[str, Any]:
    """One layer of heads with these names, each with the same loss increase."""
    worth = {"zero": {"increase": each, "error": 0.0}, "mean": {"increase": each / 2, "error": 0.0}}
    heads = [
        {"name": name, "share": dict.fromkeys(KINDS, 0.1), "distance": 2.0, "entropy": 0.5, **worth} for name in names
    ]
    whole = {way: {"increase": together, "error": 0.0} for way in ("zero", "mean")}
    layer = {"overlap": overlap, "heads": heads, "all": whole}
    rows = np.eye(len(names))[:, None].repeat(3, axis=1)  # each head attends to a key of its own
    text = b64encode(np.rint(rows * STEPS).astype("<u2").tobytes()).decode()
    kept = {"shape": list(rows.shape), "layers": [text]}
    uniform = dict.fromkeys(KINDS, 0.05)
    return {"loss": 2.0, "uniform": uniform, "uniform_distance": 9.0, "rows": kept, "layers": [layer]}


ONE, TWO = ({"model": {"num_heads": heads}} for heads in (1, 2))


def two_arms(names: list[str], *, few: float, many: float, together: float) -> View:
    """An arm with one head beside one with these."""
    arms = {
        "many": {seed: a_run(names, many + seed / 1000, together, 0.5 + seed / 100) for seed in SEEDS},
        "one": {seed: a_run(["previous"], few - seed / 1000, few, None) for seed in SEEDS},
    }
    return viewed("head-patterns", arms, many=TWO, one=ONE)


def claims(view: View) -> dict[str, Claim]:
    """By the first words of the quantity."""
    return {claim.comparison.quantity.name: claim for claim in judge(view.comparisons)}


WITHOUT_HEAD, WITHOUT_LAYER = "loss increase without one head (zeros)", "loss increase without a layer's heads"


def test_every_head_is_measured_and_measuring_again_gives_the_same(tiny: RunConfig) -> None:
    run = fresh(tiny, context_length=24, num_layers=2)
    data = probe_named("head-patterns").measure(run)
    assert is_plain(data)
    assert data == probe_named("head-patterns").measure(run)
    assert [len(layer["heads"]) for layer in data["layers"]] == [2, 2]
    head = data["layers"][0]["heads"][0]
    assert list(head) == ["name", "share", "distance", "entropy", "zero", "mean"]
    assert head["name"] == BROAD
    assert list(data["layers"][0]["all"]) == ["zero", "mean"]
    assert viewed("head-patterns", {"base": {1: data}}, base=TWO).tables


def test_claims_about_heads_follow_the_numbers() -> None:
    view = two_arms(["previous", "line"], few=0.4, many=0.1, together=0.5)
    measured = claims(view)
    assert measured[WITHOUT_HEAD].verdict == "lower"
    assert measured[WITHOUT_HEAD].difference == pytest.approx(0.102 - 0.398)
    assert measured[WITHOUT_LAYER].verdict == "higher"
    assert measured[WITHOUT_LAYER].difference == pytest.approx(0.5 - 0.204)
    assert [(check.value, check.shown) for check in view.checks] == [(2, True)]
    other = two_arms(["previous", BROAD], few=0.1, many=0.4, together=0.5)
    assert claims(other)[WITHOUT_HEAD].verdict == "higher"
    assert claims(other)[WITHOUT_LAYER].verdict == "lower"
    assert [(check.value, check.shown) for check in other.checks] == [(1, False)]


def test_an_overlap_like_that_of_other_seeds_shows_nothing() -> None:
    """Rows drawn alike within and between runs: no difference."""
    generator = np.random.default_rng(2)

    def noisy(seed: int) -> dict[str, Any]:
        """Heads whose rows are drawn alike, within a run and between runs."""
        run, rows = a_run(["near"] * 2, 0.1 + seed / 100, 0.5, 0.5), generator.dirichlet([1.0] * 6, (2, 3))
        text = b64encode(np.rint(rows * STEPS).astype("<u2").tobytes()).decode()
        return run | {"rows": {"shape": [2, 3, 6], "layers": [text]}}

    view = viewed("head-patterns", {"many": {seed: noisy(seed) for seed in range(1, 7)}}, many=TWO)
    (claim,) = (claim for claim in judge(view.comparisons) if "kept rows" in claim.comparison.quantity.name)
    assert claim.shown is False
