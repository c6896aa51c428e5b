"""Ablation of contributions: of the part that is named, and of no other number."""

import math

import numpy as np
import pytest
import torch
from variants import TEXT, TOKENIZER, made

from vitral.core.errors import UsageError
from vitral.core.taps import Recorder
from vitral.data import Split
from vitral.evaluation import Masking
from vitral.inspection import (
    Scored,
    activation_means,
    loss_by_row,
    text_targets,
    text_tokens,
    window_targets,
)
from vitral.inspection.ablation import effect
from vitral.inspection.targets import UNSCORED


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


def test_an_effect_worked_by_hand() -> None:
    before, after = torch.tensor([1.0, 2.0, 3.0]).double(), torch.tensor([2.0, 2.0, 5.0]).double()
    assert effect(before, after, sampled=True) == {"increase": 1.0, "error": float(f"{1 / math.sqrt(3):.6g}")}
    assert effect(before, after, sampled=False) == {"increase": 1.0, "error": None}
    assert effect(before[:1], after[:1], sampled=True) == {"increase": 1.0, "error": None}
    assert effect(before, after * math.nan, sampled=True) == {"increase": None, "error": None}
