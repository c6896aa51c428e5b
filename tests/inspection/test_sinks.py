"""Attention sinks: the weight on the first position, and the same softmax without it."""

import pytest
import torch
from variants import made

from vitral.attention.masks import Explicit
from vitral.inspection import Scored, attention_sinks, loss_by_row
from vitral.inspection.sinks import hide_first, without_first


@pytest.fixture
def windows() -> Scored:
    tokens = torch.randint(1, 11, (5, 12), generator=torch.Generator().manual_seed(7))
    return Scored(tokens[:, :-1], tokens[:, 1:], sampled=True)


def test_weights_are_renormalised_without_the_first_key_by_hand() -> None:
    masked = torch.tensor([[0.0, -torch.inf, -torch.inf], [1.0, 2.0, -torch.inf], [0.0, 1.0, 2.0]])[None, None]
    both = masked.expand(1, 2, 3, 3)
    changed = hide_first(both, [1])
    assert torch.equal(changed[0, 0], both[0, 0])
    weights, before = changed[0, 1].softmax(dim=-1), masked[0, 0].softmax(dim=-1)
    assert weights[0].tolist() == [1.0, 0.0, 0.0]  # the only key it sees
    assert weights[1].tolist() == [0.0, 1.0, 0.0]
    torch.testing.assert_close(weights[2], torch.tensor([0.0, before[2, 1], before[2, 2]]) / before[2, 1:].sum())


def test_all_heads_without_the_first_are_a_model_with_another_mask(windows: Scored) -> None:
    model = made("pre")
    changed = loss_by_row(model, windows, without_first({layer: range(3) for layer in (0, 1)}))
    allowed = torch.ones(11, 11, dtype=torch.bool).tril()
    allowed[1:, 0] = False
    for block in model.blocks:
        vars(block.get_submodule("attn"))["mask"] = Explicit(allowed)
    torch.testing.assert_close(changed, loss_by_row(model, windows))


def test_weights_on_the_first_position_are_those_of_the_trace(windows: Scored, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made("pre")
    found, seen = attention_sinks(model, windows), model.trace(windows.inputs)
    assert found["uniform"] == pytest.approx((1 / 8 + 1 / 9 + 1 / 10 + 1 / 11) / 4, rel=1e-5)
    for layer, each in enumerate(found["layers"]):
        expected = seen[f"blocks.{layer}.attn.weights"][:, :, 7:, 0].double().mean(dim=(0, 2))
        assert [head["weight"] for head in each["heads"]] == pytest.approx(expected.tolist(), rel=1e-4)
    assert found["loss"] == pytest.approx(float(loss_by_row(model, windows).mean()), rel=1e-5)
    monkeypatch.setattr("vitral.inspection.targets.MOST_BYTES", 1)  # one row at a time
    for layer, each in enumerate(attention_sinks(model, windows)["layers"]):
        weights = [head["weight"] for head in found["layers"][layer]["heads"]]
        assert [head["weight"] for head in each["heads"]] == pytest.approx(weights, rel=1e-4)


def test_a_head_without_weight_on_the_first_position_loses_nothing(windows: Scored) -> None:
    model = made("window")
    short = Scored(windows.inputs, windows.targets.clone(), sampled=True)
    short.targets[:, :3] = -100  # positions that can see the first one; without other blocks the rest cannot
    model.blocks = model.blocks[:1]
    model.config = model.config.model_copy(update={"num_layers": 1})
    found = attention_sinks(model, short)
    assert found["without"] == {"increase": 0.0, "error": 0.0}
    assert found["layers"][0]["heads"][0]["without"] == {"increase": 0.0, "error": 0.0}
