"""Scales: their definitions by hand, what they are for, and that the adaptive one never looks ahead."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_models import normal
from torch import Tensor

from vitral.attention import Bidirectional, Causal, Prefix, Window, attend
from vitral.attention.scales import ADAPTIVE_EPSILON, adaptive_factor, build_scale, factor_of
from vitral.attention.steps import mask, normalise, scale
from vitral.core.streams import torch_stream

EVERY = torch.ones((), dtype=torch.bool)


def test_names_by_hand() -> None:
    q = k = torch.ones(5, 16)
    assert factor_of("none", q, k, None) == 1
    assert factor_of("sqrt", q, k, None) == 1 / 4
    assert factor_of("linear", q, k, None) == 1 / 16
    assert factor_of(0.3, q, k, None) == 0.3


def test_adaptive_by_hand() -> None:
    # The query's scores are 2, 0, 4: mean 2, population variance (0 + 4 + 4)/3, so the factor is √(3/8).
    q, k = torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 9.0], [0.0, 9.0], [2.0, 9.0]])
    torch.testing.assert_close(adaptive_factor(q, k, EVERY), torch.tensor([[math.sqrt(3 / 8)]]))
    # Of the first two keys only: scores 2 and 0, mean 1, variance 1.
    seen = torch.tensor([[True, True, False]])
    torch.testing.assert_close(adaptive_factor(q, k, seen), torch.tensor([[1.0]]))


def test_adaptive_needs_two_different_scores() -> None:
    q, k = torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 9.0], [0.0, 9.0], [1.0, 5.0]])
    usual = torch.tensor([[1 / math.sqrt(2)]])
    for seen in ([True, False, False], [False, False, False], [True, False, True]):
        torch.testing.assert_close(adaptive_factor(q, k, torch.tensor([seen])), usual)


def test_adaptive_below_epsilon_is_the_usual_scale() -> None:
    # Scores 0 and 2c have σ = c.
    for c, expected in ((ADAPTIVE_EPSILON / 2, 1.0), (ADAPTIVE_EPSILON * 2, 1 / (2 * ADAPTIVE_EPSILON))):
        q, k = torch.ones(1, 1, dtype=torch.float64), torch.tensor([[0.0], [2 * c]], dtype=torch.float64)
        torch.testing.assert_close(adaptive_factor(q, k, EVERY), torch.tensor([[expected]], dtype=torch.float64))


@pytest.mark.parametrize("chosen", [Causal(), Window(size=3), Prefix(length=2)])
def test_adaptive_never_sees_the_future(chosen: Causal | Window | Prefix) -> None:
    q, k, v = (normal(2, 3, 7, 5, purpose=name) for name in "qkv")
    changed = k.clone()
    changed[..., 4:, :] += 100
    allowed = chosen.allowed(7, 7)
    before, after = adaptive_factor(q, k, allowed), adaptive_factor(q, changed, allowed)
    assert torch.equal(before[..., :4, :], after[..., :4, :])
    assert not torch.equal(before[..., 4:, :], after[..., 4:, :])
    z, z_changed = (attend(q, keys, v, mask=chosen, scale="adaptive") for keys in (k, changed))
    assert torch.equal(z[..., :4, :], z_changed[..., :4, :])


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=3, max_size=3), st.integers(1, 64))
def test_a_mask_of_zero_and_infinity_commutes_with_the_scale(rows: list[list[bool]], d_head: int) -> None:
    """(q kᵀ + M)/√d_k = q kᵀ/√d_k + M for M of 0 and -inf, in every row, empty ones too."""
    allowed, factor = torch.tensor(rows), 1 / math.sqrt(d_head)
    scores = torch.randn(3, 5, generator=torch_stream(1, "scores"))
    first, last = scale(mask(scores, allowed), factor), mask(scale(scores, factor), allowed)
    assert torch.equal(first, last)
    assert torch.equal(normalise(first), normalise(last))
    assert torch.equal(normalise(first).sum(-1) > 0, allowed.any(-1))


@given(st.floats(-8, 8).filter(lambda bias: abs(bias) > 1e-3), st.integers(2, 64))
def test_a_finite_bias_does_not_commute_with_the_scale(bias: float, d_head: int) -> None:
    scores, factor = torch.tensor([[0.3, -0.2]], dtype=torch.float64), 1 / math.sqrt(d_head)
    added = torch.tensor([[bias, 0.0]], dtype=torch.float64)
    inside, outside = normalise(scale(scores + added, factor)), normalise(scale(scores, factor) + added)
    # Of two weights the first is the logistic function of the difference of the scores.
    assert float(inside[0, 0]) == pytest.approx(1 / (1 + math.exp(-(0.5 + bias) * factor)), rel=1e-12)
    assert float(outside[0, 0]) == pytest.approx(1 / (1 + math.exp(-(0.5 * factor + bias))), rel=1e-12)
    assert abs(float((inside - outside)[0, 0])) > 1e-7


def test_learned_scales_start_at_the_usual_one() -> None:
    one, many = build_scale("learned", 3, 16)(), build_scale("learned-per-head", 3, 16)()
    assert isinstance(one, Tensor)
    assert isinstance(many, Tensor)
    assert one.flatten().tolist() == [0.25]
    assert many.shape == (3, 1, 1)
    assert many.flatten().tolist() == [0.25] * 3
    assert build_scale("sqrt", 3, 16)() == "sqrt"
    assert build_scale(0.7, 3, 16)() == 0.7


def test_scores_scale_per_head() -> None:
    q, k, v = (normal(2, 3, 5, 7, purpose=name) for name in "qkv")
    factors = torch.tensor([0.0, 0.5, 2.0], dtype=torch.float64)
    z = attend(q, k, v, mask=Bidirectional(), scale=factors[:, None, None])
    for head, factor in enumerate(factors.tolist()):
        alone = attend(q[:, head], k[:, head], v[:, head], mask=Bidirectional(), scale=factor)
        torch.testing.assert_close(z[:, head], alone)
    torch.testing.assert_close(z[:, 0], v[:, 0].mean(-2, keepdim=True).expand(-1, 5, -1))
