"""The probe `related-words`: claims follow from made-up weights, and no head is tested on its own choice."""

from typing import Any

from tests.studies.conftest import viewed
from vitral.studies.judging import judge
from vitral.studies.probes.words import agreement_items, chosen_head


def reading(*differences: tuple[float, float], correlation: float = 0.2) -> dict[str, Any]:
    """A model of one block and two heads, with these differences of weights for each subject."""
    weights = [
        {"kind": "agreement", "subject": "a", "agree": [[0.3 + one, 0.3 + other]], "disagree": [[0.3, 0.3]]}
        for one, other in differences
    ]
    heads = [{"correlation": correlation, "shuffled": [-0.01, 0.02]}, {"correlation": 0.0, "shuffled": [0.03, -0.04]}]
    return {"scores": {"words": 31, "pairs": 7, "heads": [heads]}, "weights": weights}


def measured(*differences: tuple[float, float]) -> dict[str, Any]:
    return reading(*differences) | {"untrained": reading((0.0, 0.0), (0.0, 0.0), correlation=0.0)}


def test_the_head_of_one_half_is_tested_on_the_other() -> None:
    """The even subjects choose head 0, which they alone favour."""
    items = agreement_items(reading((0.5, 0.0), (0.0, 0.2), (0.5, 0.0), (0.0, 0.2)))
    result = chosen_head(items)
    assert result is not None
    assert result[0] == (0, 0)
    assert set(result[1]) == {1, 3}
    assert max(map(abs, result[1].values())) < 1e-12
    assert chosen_head({(0, (0, 0)): 1.0}) is None


def test_claims_follow_from_the_weights() -> None:
    clear = measured(*((0.20 + 0.01 * (index % 3), -0.20 - 0.01 * ((index + 1) % 3)) for index in range(12)))
    result = judge(viewed("related-words", {"model": {1: clear}}).comparisons)
    assert [claim.verdict for claim in result].count("higher") == 1  # head 0; the mean of both is near 0
    assert not viewed("related-words", {"x": {1: {"scores": None, "weights": []}}}).tables
