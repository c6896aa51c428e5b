"""Ablation of contributions: of the part that is named, and of no other number."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional
from variants import TEXT, TOKENIZER, VARIANTS, made

from vitral.core.errors import UsageError
from vitral.core.taps import Recorder
from vitral.data import Split
from vitral.evaluation import Masking
from vitral.inspection import (
    Scored,
    ablations,
    activation_means,
    loss_by_row,
    replace_activations,
    text_targets,
    text_tokens,
    window_targets,
)
from vitral.inspection.ablation import effect
from vitral.inspection.lens import contribution_points
from vitral.inspection.targets import UNSCORED
from vitral.model import Transformer


@pytest.fixture
def rows() -> Scored:
    tokens = torch.randint(1, 11, (5, 8), generator=torch.Generator().manual_seed(7))
    return Scored(tokens[:, :-1], tokens[:, 1:], sampled=True)


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


@pytest.mark.parametrize("norm", ["pre", "no norm"])
def test_without_all_contributions_the_model_is_one_without_blocks(norm: str, rows: Scored) -> None:
    model = made(norm)
    bare = Transformer(model.config.model_copy(update={"num_layers": 0}), model.vocab_size).eval()
    bare.load_state_dict({name: model.state_dict()[name] for name in bare.state_dict()})
    removed = loss_by_row(model, rows, replace_activations(contribution_points(model.config)))
    assert torch.equal(removed, loss_by_row(bare, rows))


@pytest.mark.parametrize(("variant", "key"), [("no attention", "feed_forward"), ("no feed-forward", "attention")])
def test_a_block_of_one_sublayer_is_that_sublayer(variant: str, key: str, rows: Scored) -> None:
    found = ablations(made(variant), rows)
    assert found is not None
    other = {"feed_forward": "attention", "attention": "feed_forward"}[key]
    for block in found["blocks"]:
        assert block["block"] == block[key]
        assert block[other] is None
        assert len(block["heads"]) == (0 if variant == "no attention" else 3)


def test_what_is_the_same_at_every_position_costs_nothing_by_its_mean(rows: Scored) -> None:
    model = made("pre")
    with torch.no_grad():
        model.get_parameter("blocks.0.mlp.down.weight").zero_()
    found = ablations(model, rows)
    assert found is not None
    by_zero, by_mean = (found["blocks"][0]["feed_forward"][way]["increase"] for way in ("zero", "mean"))
    assert by_mean == pytest.approx(0.0, abs=1e-6)
    assert abs(by_zero) > 1e-3


def test_only_the_chosen_heads_are_replaced() -> None:
    value = torch.arange(2 * 3 * 4 * 5.0).view(2, 3, 4, 5)
    mean = value.mean(dim=(0, -2), keepdim=True)
    tap = replace_activations(["blocks.0.attn.z"], {"blocks.0.attn.z": mean}, [1])
    changed = tap("blocks.0.attn.z", value)
    assert torch.equal(changed[:, [0, 2]], value[:, [0, 2]])
    assert torch.equal(changed[:, 1], mean[:, 1].expand(2, 4, 5))
    assert tap("blocks.0.attn.out", value) is value


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


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_part_of_every_variant_has_a_worth_or_none(variant: str, rows: Scored) -> None:
    model = made(variant)
    tokens = text_tokens(model, TOKENIZER, TEXT)
    of_text, of_rows = ablations(model, text_targets(model, tokens)), ablations(model, rows)
    assert of_rows is not None
    assert of_rows["loss"] == pytest.approx(float(loss_by_row(model, rows).mean()), rel=1e-5)
    assert (of_text is None) == (variant == "long prefix")
    for found, has_errors in ((of_text, False), (of_rows, True)):
        if found is None:
            continue
        assert len(found["blocks"]) == model.config.num_layers
        for block in found["blocks"]:
            assert (block["attention"] is None) == (model.config.attention == "none")
            assert (block["feed_forward"] is None) == (model.config.feed_forward == "none")
            parts = [block["block"], block["attention"], block["feed_forward"], *block["heads"]]
            for effects in parts:
                for one in (effects or {}).values():
                    assert one["increase"] is not None
                    assert (one["error"] is not None) == has_errors


def test_an_effect_worked_by_hand() -> None:
    before, after = torch.tensor([1.0, 2.0, 3.0]).double(), torch.tensor([2.0, 2.0, 5.0]).double()
    assert effect(before, after, sampled=True) == {"increase": 1.0, "error": float(f"{1 / math.sqrt(3):.6g}")}
    assert effect(before, after, sampled=False) == {"increase": 1.0, "error": None}
    assert effect(before[:1], after[:1], sampled=True) == {"increase": 1.0, "error": None}
    assert effect(before, after * math.nan, sampled=True) == {"increase": None, "error": None}


def test_a_masked_model_is_scored_on_its_masked_tokens() -> None:
    model, masking = made("bidirectional"), Masking(0.15, 0)
    tokens = text_tokens(model, TOKENIZER, TEXT)
    scored = text_targets(model, tokens, masking)
    with torch.inference_mode():
        logits = model(scored.inputs)
    expected = functional.cross_entropy(logits.diagonal(dim1=0, dim2=1).T, tokens[0], reduction="none")
    torch.testing.assert_close(loss_by_row(model, scored), expected.double())
