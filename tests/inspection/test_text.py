"""Everything of one text: plain data that is the trace's, for every kind of model; the lens and the norms."""

import json
import math

import numpy as np
import pytest
import torch
from variants import TEXT, TOKENIZER, VARIANTS, made

from vitral.core.errors import UsageError
from vitral.data import Split, char_tokenizer
from vitral.evaluation import Masking
from vitral.inspection.ablation import ablations
from vitral.inspection.attention import BROAD, attention_maps, head_kinds
from vitral.inspection.lens import (
    contribution_points,
    lens_logits,
    logit_lens,
    predicted,
    residual_norms,
    stream_points,
)
from vitral.inspection.one_text import inspect_text
from vitral.inspection.targets import UNSCORED, text_targets, text_tokens, window_targets
from vitral.model import ModelConfig, Transformer

PART = Split(
    np.random.default_rng(5).integers(1, 11, size=211).astype(np.uint16), np.array([[0, 97], [97, 211]], dtype=np.int64)
)


@pytest.mark.parametrize("variant", VARIANTS)
def test_maps_are_the_weights_of_the_trace(variant: str) -> None:
    model = made(variant)
    tokens = text_tokens(model, TOKENIZER, TEXT)
    maps = attention_maps(model, tokens)
    if model.config.attention == "none":
        assert maps == []
        return
    assert [layer["layer"] for layer in maps] == list(range(model.config.num_layers))
    seen = model.trace(tokens)
    for layer, measured in enumerate(maps):
        weights = torch.tensor(measured["heads"])
        torch.testing.assert_close(weights, seen[f"blocks.{layer}.attn.weights"][0], rtol=0, atol=1e-6)


def test_a_head_is_told_against_uniform_attention_under_the_mask_of_its_block() -> None:
    model = made("masks by block, some biases")
    with torch.no_grad():
        for layer in range(2):
            model.get_parameter(f"blocks.{layer}.attn.in_proj.weight")[:30] = 0
    measured = head_kinds(model, TOKENIZER, window_targets(model, PART, 5).inputs)
    for heads in measured["layers"]:
        assert {head["kind"] for head in heads} == {BROAD}
        assert all(head["entropy"] == pytest.approx(1.0, abs=1e-5) for head in heads)
    shares = [heads[0]["share"] for heads in measured["layers"]]
    assert shares[0] == pytest.approx(measured["uniform"], abs=1e-5)
    assert shares[1]["first"] == pytest.approx(1 / 3)  # of the one query that sees it among 3 keys
    assert shares[1]["itself"] == pytest.approx(1 / 3)


TEXTS = (TEXT, "a", "abcdefgh\nabcd")


@pytest.mark.parametrize(("variant", "text"), [(name, TEXTS[index % 3]) for index, name in enumerate(VARIANTS)])
def test_every_variant_is_inspected_into_finite_json(variant: str, text: str) -> None:
    model = made(variant)
    measured = inspect_text(model, TOKENIZER, text)
    assert json.loads(json.dumps(measured, allow_nan=False)) == measured
    assert [token["id"] for token in measured["tokens"]] == TOKENIZER.encode(text).tolist()
    assert measured["ablation"] == ablations(model, text_targets(model, text_tokens(model, TOKENIZER, text)))
    if len(text) == 1:
        assert measured["ablation"] is None
        assert all(point["loss"] is None for point in measured["lens"]["points"])
    assert [point["point"] for point in measured["lens"]["points"]] == stream_points(model.config)
    assert measured["measured_on"] == {"what": "text", "rows": 1, "length": len(text)}


@pytest.mark.parametrize("masking", [None, Masking(0.15, 0)], ids=["next token", "masked"])
def test_windows_measure_heads_and_ablations_on_the_split(masking: Masking | None) -> None:
    model = made("pre" if masking is None else "bidirectional")
    measured = inspect_text(model, TOKENIZER, "a", part=PART, windows=7, masking=masking)
    drawn = window_targets(model, PART, 7, masking)
    assert measured["ablation"] == ablations(model, drawn)
    assert measured["ablation"]["blocks"][0]["block"]["zero"]["error"] > 0
    assert measured["kinds"] == head_kinds(model, TOKENIZER, drawn.inputs)
    assert measured["measured_on"] == {"what": "windows", "rows": 7, "length": 13}
    assert measured["objective"] == ("next-token" if masking is None else "masked")


def test_a_model_that_diverged_has_no_numbers() -> None:
    model = made("pre")
    with torch.no_grad():
        model.get_parameter("blocks.1.mlp.up.weight").fill_(torch.nan)
    measured = inspect_text(model, TOKENIZER, TEXT)
    assert json.dumps(measured, allow_nan=False)
    assert measured["lens"]["points"][-1]["loss"] is None
    assert measured["lens"]["points"][0]["loss"] > 0
    assert measured["ablation"]["blocks"][0]["block"]["zero"]["increase"] is None


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_lens_at_the_last_point_is_the_model_to_the_bit(variant: str) -> None:
    model = made(variant)
    points = stream_points(model.config)
    seen = model.trace(text_tokens(model, TOKENIZER, TEXT), [points[-1], "logits"])
    assert torch.equal(lens_logits(model, seen[points[-1]]), seen["logits"])


@pytest.mark.parametrize("variant", [name for name, parts in VARIANTS.items() if parts.get("norm", "pre") != "post"])
def test_embedding_and_contributions_add_up_to_the_stream(variant: str) -> None:
    model = made(variant)
    points, added = stream_points(model.config), contribution_points(model.config)
    seen = model.trace(text_tokens(model, TOKENIZER, TEXT), [*points, *added])
    for index, point in enumerate(points):
        summed = [seen["embed"], *(seen[name] for name in added[:index])]
        if not model.config.residual:
            summed = summed[-1:]
        torch.testing.assert_close(torch.stack(summed).sum(dim=0), seen[point], rtol=1e-5, atol=1e-5)


def test_a_lens_worked_by_hand() -> None:
    """Width 2, no blocks, no norm: the stream is the embedding, the logits are dot products with the head's rows."""
    config = ModelConfig(context_length=5, d_model=2, num_layers=0, num_heads=1, norm="none", positions="none")
    tokenizer = char_tokenizer("ab")
    model = Transformer(config, 3).eval()
    with torch.no_grad():
        model.token_embedding.weight.copy_(torch.tensor([[0.0, 0.0], [1.0, 0.0], [3.0, 4.0]]))
        model.get_parameter("head.weight").copy_(torch.tensor([[0.0, 0.0], [math.log(2.0), 0.0], [math.log(5.0), 0.0]]))
    tokens = text_tokens(model, tokenizer, "aab")
    lens = logit_lens(model, tokenizer, text_targets(model, tokens), top=2)
    (point,) = lens["points"]
    # From a (1, 0) the logits are 0, ln 2, ln 5, so p = 1/8, 2/8, 5/8.
    first, second, last = point["positions"]
    assert first["top"] == [{"id": 2, "label": "b", "probability": 0.625}, {"id": 1, "label": "a", "probability": 0.25}]
    assert (first["probability"], first["rank"], first["loss"]) == (0.25, 2, pytest.approx(math.log(4), rel=1e-5))
    assert (second["probability"], second["rank"]) == (0.625, 1)
    assert (last["probability"], last["rank"], last["loss"]) == (None, None, None)
    assert point["loss"] == pytest.approx((math.log(4) + math.log(8 / 5)) / 2, rel=1e-5)
    norms = residual_norms(model, tokens)
    assert norms == {
        "stream": [
            {"point": "embed", "mean": 2.33333, "positions": [1.0, 1.0, 5.0]},
            {"point": "final_norm", "mean": 2.33333, "positions": [1.0, 1.0, 5.0]},
        ],
        "added": [],
    }


def test_ties_share_the_better_rank_and_go_to_the_lower_id() -> None:
    logs, ranks = predicted(torch.tensor([[1.0, 3.0, 3.0, 2.0]] * 3), torch.tensor([2, 3, UNSCORED]))
    assert ranks.tolist() == [1, 3, 0]
    assert math.isnan(float(logs[2]))


@pytest.mark.parametrize("variant", VARIANTS)
def test_norms_are_those_of_the_trace(variant: str) -> None:
    model = made(variant)
    tokens = text_tokens(model, TOKENIZER, TEXT)
    norms, seen = residual_norms(model, tokens), model.trace(tokens)
    assert [point["point"] for point in norms["stream"]] == [*stream_points(model.config), "final_norm"]
    assert [point["point"] for point in norms["added"]] == contribution_points(model.config)
    for point in [*norms["stream"], *norms["added"]]:
        expected = seen[point["point"]].norm(dim=-1)[0]
        assert point["positions"] == pytest.approx(expected.tolist(), rel=1e-4)
        assert point["mean"] == pytest.approx(float(expected.mean()), rel=1e-4)


def test_a_masked_model_is_read_where_the_token_is_masked() -> None:
    model, masking = made("bidirectional"), Masking(0.15, 0)
    tokens = text_tokens(model, TOKENIZER, TEXT)
    lens = logit_lens(model, TOKENIZER, text_targets(model, tokens, masking))
    assert [each["id"] for each in lens["targets"]] == tokens[0].tolist()
    for index, position in enumerate(lens["points"][-1]["positions"]):
        hidden = tokens.clone()
        hidden[0, index] = masking.token
        with torch.inference_mode():
            shares = model(hidden)[0, index].double().softmax(dim=-1)
        assert position["probability"] == pytest.approx(float(shares[tokens[0, index]]), rel=1e-4)
        assert position["top"][0]["id"] == int(shares.argmax())


@pytest.mark.parametrize(("text", "line"), [("", "0 tokens"), ("a" * 14, "14 tokens"), ("abx", "U\\+0078")])
def test_texts_that_cannot_be_read_are_refused(text: str, line: str) -> None:
    with pytest.raises(UsageError, match=line):
        text_tokens(made("pre"), TOKENIZER, text)
