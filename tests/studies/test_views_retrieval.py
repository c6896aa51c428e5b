"""The view of the probe `retrieval`: comparisons and tables follow from made-up numbers."""

from typing import Any

from tests.studies.conftest import NO_STUDY
from vitral.inspection.recall import BINS, MASKS
from vitral.studies.judging import judge
from vitral.studies.probe import View
from vitral.studies.probes.masks import RETRIEVAL


def shown(pairs: int, window: float, bidirectional: float) -> View:
    """Three seeds; causal and prefix answer all but a hundredth."""

    def runs(share: float) -> dict[str, Any]:
        return {str(seed): {"accuracy": [share + seed / 1000] * len(BINS)} for seed in (1, 2, 3)}

    shares = dict.fromkeys(MASKS, 0.99) | {"window": window, "bidirectional": bidirectional}
    task = {
        "pairs": pairs,
        "steps": 100,
        "reach": 31,
        "answers": [10] * len(BINS),
        "chance": 0.125,
        "guess": {mask: [0.4 - 0.1 * (mask == "bidirectional")] * len(BINS) for mask in MASKS},
        "masks": {mask: runs(share) for mask, share in shares.items()},
    }
    return RETRIEVAL.view(NO_STUDY, {"tasks": [task]})


def test_masks_are_compared_with_a_guess_and_with_the_causal_one() -> None:
    measured = judge(shown(4, 0.123, 0.3).comparisons)
    far = {one.comparison.arm: one for one in measured if one.comparison.quantity.name.startswith("accuracy beyond")}
    assert {mask: one.verdict for mask, one in far.items()} == {
        "causal": "better",
        "bidirectional": "undecided",
        "prefix": "better",
        "window": "undecided",
    }
    assert far["window"].comparison.others[1] == 0.125
    assert far["causal"].comparison.others[1] == 0.4
    all_distances = {one.comparison.arm: one for one in measured if one.comparison.quantity.name == "accuracy"}
    assert set(all_distances) == {"bidirectional", "prefix"}
    assert all_distances["bidirectional"].difference < -0.6
