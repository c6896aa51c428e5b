"""Induction: scores and ablations of a model whose weights copy a repeated string by construction."""

import pytest
import torch
from copier import SYMBOLS, TIME, copier
from torch import Tensor

from vitral.inspection import induction_ablation, induction_scores
from vitral.inspection.induction import occurrences


@pytest.fixture
def rows() -> tuple[Tensor, Tensor]:
    """Strings without a symbol twice, so that the earlier occurrence is unique, with periods of 4, 5 and 6."""
    generator = torch.Generator().manual_seed(5)
    periods = torch.tensor([4, 5, 6] * 8)
    strings = [torch.randperm(SYMBOLS, generator=generator)[:period] for period in periods.tolist()]
    return torch.stack([string.repeat(5)[: TIME + 1] for string in strings]), periods


def test_the_scores_of_a_constructed_copier_are_one(rows: tuple[Tensor, Tensor]) -> None:
    found = induction_scores(copier(), *rows)
    (first, idle), (second, _) = (layer["heads"] for layer in found["layers"])
    assert first["previous"] == pytest.approx(1.0, abs=1e-6)
    assert idle["previous"] == pytest.approx(found["uniform"]["previous"], rel=1e-5)
    # In the third occurrence two places fit equally well, and both count.
    assert second["prefix"] == pytest.approx(1.0, abs=1e-6)
    assert idle["prefix"] == pytest.approx(found["uniform"]["prefix"], rel=1e-5)
    assert found["losses"]["second"] == pytest.approx(0.0, abs=1e-6)
    assert found["losses"]["later"] == pytest.approx(0.0, abs=1e-6)
    assert found["losses"]["first"] > 1.0


def test_without_the_previous_token_head_the_copier_copies_nothing(rows: tuple[Tensor, Tensor]) -> None:
    found = induction_ablation(copier(), *rows)
    assert found["previous"] == {"layer": 0, "head": 0}
    assert found["induction"] == {"layer": 1, "head": 0}
    assert found["loss"] == pytest.approx(0.0, abs=1e-6)
    assert found["prefix"] == pytest.approx(1.0, abs=1e-6)
    assert found["without"]["others"]["increase"] == pytest.approx(0.0, abs=1e-6)
    assert found["without"]["others"]["prefix"] == pytest.approx(1.0, abs=1e-6)
    assert found["without"]["previous"]["increase"] > 1.0
    assert found["without"]["previous"]["prefix"] < 0.5
    assert found["without"]["induction"]["increase"] > 1.0


def test_occurrences_by_hand() -> None:
    found = occurrences(torch.tensor([2]), 6)
    assert {name: each[0].tolist() for name, each in found.items()} == {
        "first": [True, False, False, False, False, False],  # token 1; token 2 begins the second occurrence
        "second": [False, False, True, False, False, False],
        "later": [False, False, False, True, True, True],
    }
