"""Everything of one text: plain data that is the trace's, for every kind of model."""

import json

import numpy as np
import pytest
import torch
from variants import TEXT, TOKENIZER, VARIANTS, made

from vitral.data import Split
from vitral.evaluation import Masking
from vitral.inspection import (
    ablations,
    attention_maps,
    head_kinds,
    inspect_text,
    text_targets,
    text_tokens,
    window_targets,
)
from vitral.inspection.attention import (
    BROAD,
)
from vitral.inspection.lens import stream_points

PART = Split(
    np.random.default_rng(5).integers(1, 11, size=211).astype(np.uint16), np.array([[0, 97], [97, 211]], dtype=np.int64)
)


@pytest.mark.parametrize("variant", VARIANTS)
def test_maps_are_the_weights_of_the_trace(variant: str) -> None:
    model = made(variant)
    maps = attention_maps(model, TOKENIZER, TEXT)
    if model.config.attention == "none":
        assert maps == []
        return
    assert [layer["layer"] for layer in maps] == list(range(model.config.num_layers))
    seen = model.trace(text_tokens(model, TOKENIZER, TEXT))
    for layer, found in enumerate(maps):
        weights = torch.tensor(found["heads"])
        torch.testing.assert_close(weights, seen[f"blocks.{layer}.attn.weights"][0], rtol=0, atol=1e-6)


def test_a_head_is_told_against_uniform_attention_under_the_mask_of_its_block() -> None:
    model = made("masks by block, some biases")
    with torch.no_grad():
        for layer in range(2):
            model.get_parameter(f"blocks.{layer}.attn.in_proj.weight")[:30] = 0
    found = head_kinds(model, TOKENIZER, window_targets(model, PART, 5).inputs)
    for heads in found["layers"]:
        assert {head["kind"] for head in heads} == {BROAD}
        assert all(head["entropy"] == pytest.approx(1.0, abs=1e-5) for head in heads)
    shares = [heads[0]["share"] for heads in found["layers"]]
    assert shares[0] == pytest.approx(found["uniform"], abs=1e-5)
    assert shares[1]["first"] == pytest.approx(1 / 3)  # of the one query that sees it among 3 keys
    assert shares[1]["itself"] == pytest.approx(1 / 3)


TEXTS = (TEXT, "a", "abcdefgh\nabcd")


@pytest.mark.parametrize(("variant", "text"), [(name, TEXTS[place % 3]) for place, name in enumerate(VARIANTS)])
def test_every_variant_is_inspected_into_finite_json(variant: str, text: str) -> None:
    model = made(variant)
    found = inspect_text(model, TOKENIZER, text)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert [token["id"] for token in found["tokens"]] == TOKENIZER.encode(text).tolist()
    assert found["ablation"] == ablations(model, text_targets(model, text_tokens(model, TOKENIZER, text)))
    if len(text) == 1:
        assert found["ablation"] is None
        assert all(point["loss"] is None for point in found["lens"]["points"])
        assert any("no token to predict" in note for note in found["notes"])
    assert [point["point"] for point in found["lens"]["points"]] == stream_points(model.config)
    assert found["measured_on"] == {"what": "text", "rows": 1, "length": len(text)}


@pytest.mark.parametrize("masking", [None, Masking(0.15, 0)], ids=["next token", "masked"])
def test_windows_measure_heads_and_ablations_on_the_split(masking: Masking | None) -> None:
    model = made("pre" if masking is None else "bidirectional")
    found = inspect_text(model, TOKENIZER, "a", part=PART, windows=7, masking=masking)
    drawn = window_targets(model, PART, 7, masking)
    assert found["ablation"] == ablations(model, drawn)
    assert found["ablation"]["blocks"][0]["block"]["zero"]["error"] > 0
    assert found["kinds"] == head_kinds(model, TOKENIZER, drawn.inputs)
    assert found["measured_on"] == {"what": "windows", "rows": 7, "length": 13}
    assert found["objective"] == ("next-token" if masking is None else "masked")


def test_a_model_that_diverged_has_no_numbers() -> None:
    model = made("pre")
    with torch.no_grad():
        model.get_parameter("blocks.1.mlp.up.weight").fill_(torch.nan)
    found = inspect_text(model, TOKENIZER, TEXT)
    assert json.dumps(found, allow_nan=False)
    assert found["lens"]["points"][-1]["loss"] is None
    assert found["lens"]["points"][0]["loss"] > 0
    assert found["ablation"]["blocks"][0]["block"]["zero"]["increase"] is None
