"""Ablation of heads and other contributions, of what is named and of no other number; attention sinks; targets."""

import numpy as np
import pytest
import torch
from variants import TEXT, TOKENIZER, made

from vitral.attention.masks import Explicit
from vitral.core.errors import UsageError
from vitral.core.taps import Editor, Recorder
from vitral.data import Split
from vitral.evaluation import Masking
from vitral.inspection.ablation import (
    ablations,
    activation_means,
    attention_sinks,
    effect,
    replace_activations,
    without_first,
)
from vitral.inspection.targets import UNSCORED, Scored, loss_by_row, text_targets, text_tokens, window_targets
from vitral.model import Transformer


def means_of_z(model: Transformer, batch: Scored, layer: int) -> dict[str, torch.Tensor]:
    return activation_means(model, batch.inputs, [f"blocks.{layer}.attn.z"])


def without(layer: int, heads: list[int], means: dict[str, torch.Tensor] | None = None) -> Editor:
    return replace_activations([f"blocks.{layer}.attn.z"], means, heads)


@pytest.fixture
def rows() -> Scored:
    tokens = torch.randint(1, 11, (5, 8), generator=torch.Generator().manual_seed(7))
    return Scored(tokens[:, :-1], tokens[:, 1:], sampled=True)


def test_a_head_set_to_zero_is_one_whose_rows_of_the_output_projection_are_zero(rows: Scored) -> None:
    model = made("pre")
    removed = loss_by_row(model, rows, without(1, [2]))
    with torch.no_grad():
        model.get_parameter("blocks.1.attn.out_proj.weight")[:, 10:15] = 0
    assert torch.allclose(removed, loss_by_row(model, rows), atol=1e-6)


def test_every_head_is_taken_out_by_zeros_and_by_its_mean(rows: Scored) -> None:
    model = made("pre")
    measured, before, mean = ablations(model, rows), loss_by_row(model, rows), means_of_z(model, rows, 1)
    assert measured is not None
    assert measured["loss"] == pytest.approx(float(before.mean()), rel=1e-5)
    assert [len(block["heads"]) for block in measured["blocks"]] == [3, 3]
    for way, instead in (("zero", None), ("mean", mean)):
        head = effect(before, loss_by_row(model, rows, without(1, [2], instead)), sampled=True)
        assert measured["blocks"][1]["heads"][2][way] == head


@pytest.fixture
def windows() -> Scored:
    tokens = torch.randint(1, 11, (5, 12), generator=torch.Generator().manual_seed(7))
    return Scored(tokens[:, :-1], tokens[:, 1:], sampled=True)


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
    measured, seen = attention_sinks(model, windows), model.trace(windows.inputs)
    assert measured["uniform"] == pytest.approx((1 / 8 + 1 / 9 + 1 / 10 + 1 / 11) / 4, rel=1e-5)
    for layer, each in enumerate(measured["layers"]):
        expected = seen[f"blocks.{layer}.attn.weights"][:, :, 7:, 0].double().mean(dim=(0, 2))
        assert [head["weight"] for head in each["heads"]] == pytest.approx(expected.tolist(), rel=1e-4)
    monkeypatch.setattr("vitral.inspection.targets.MOST_BYTES", 1)  # one row at a time
    for layer, each in enumerate(attention_sinks(model, windows)["layers"]):
        weights = [head["weight"] for head in measured["layers"][layer]["heads"]]
        assert [head["weight"] for head in each["heads"]] == pytest.approx(weights, rel=1e-4)


def part_of(length: int) -> Split:
    tokens = np.random.default_rng(5).integers(1, 11, size=length).astype(np.uint16)
    return Split(tokens, np.array([[0, length]], dtype=np.int64))


def test_targets_of_a_text_are_its_next_tokens() -> None:
    model, prefix = made("pre"), made("prefix")
    tokens = text_tokens(model, TOKENIZER, TEXT)
    ids = tokens[0].tolist()
    assert text_targets(model, tokens).targets.tolist() == [[*ids[1:], UNSCORED]]
    assert text_targets(prefix, tokens).targets.tolist() == [[UNSCORED, UNSCORED, *ids[3:], UNSCORED]]
    assert text_targets(made("long prefix"), tokens).count == 0
    assert text_targets(model, tokens[:, :1]).count == 0
    masked = text_targets(made("bidirectional"), tokens[:, :3], Masking(0.5, 0))
    assert masked.inputs.tolist() == [[0, *ids[1:3]], [ids[0], 0, ids[2]], [*ids[:2], 0]]
    assert masked.targets.tolist() == [
        [token if row == column else UNSCORED for column, token in enumerate(ids[:3])] for row in range(3)
    ]


def test_windows_are_of_the_split_and_the_same_again() -> None:
    model, part = made("pre"), part_of(101)
    drawn = window_targets(model, part, 7)
    assert drawn.inputs.shape == (7, 13)
    assert torch.equal(drawn.inputs[:, 1:], drawn.targets[:, :-1])
    assert torch.equal(drawn.inputs, window_targets(made("post"), part, 7).inputs)
    masked = window_targets(made("bidirectional"), part, 7, Masking(0.15, 0))
    assert torch.equal(masked.inputs == 0, masked.targets != UNSCORED)
    assert torch.equal(torch.where(masked.inputs == 0, masked.targets, masked.inputs), drawn.inputs)
    assert masked.count == 7 * 2
    with pytest.raises(UsageError, match="context_length = 13"):
        window_targets(model, part_of(13), 1)


@pytest.mark.parametrize("name", ["blocks.0.attn.z", "blocks.1.mlp.hidden"])
def test_means_are_over_rows_and_positions(name: str, rows: Scored, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made("pre")
    recorder = Recorder([name])
    with torch.inference_mode():
        model(rows.inputs, tap=recorder)
    seen = recorder.kept[name].double()
    expected = seen.mean(dim=(0, seen.dim() - 2), keepdim=True)
    torch.testing.assert_close(activation_means(model, rows.inputs, [name])[name], expected)
    whole = loss_by_row(model, rows)
    monkeypatch.setattr("vitral.inspection.targets.MOST_BYTES", 1)  # one row at a time
    torch.testing.assert_close(activation_means(model, rows.inputs, [name])[name], expected)
    torch.testing.assert_close(loss_by_row(model, rows), whole)
    with pytest.raises(UsageError, match="no activation"):
        activation_means(model, rows.inputs, ["blocks.2.attn.z"])
