"""The residual stream: the lens at the last point is the model, and what is added makes up the stream."""

import math

import pytest
import torch
from variants import TEXT, TOKENIZER, VARIANTS, made

from vitral.core.errors import UsageError
from vitral.data import char_tokenizer
from vitral.evaluation import Masking
from vitral.inspection import logit_lens, residual_norms, text_tokens
from vitral.inspection.lens import contribution_points, lens_logits, predicted, stream_points
from vitral.inspection.targets import UNSCORED
from vitral.model import ModelConfig, Transformer


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
    for place, point in enumerate(points):
        summed = [seen["embed"], *(seen[name] for name in added[:place])]
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
    lens = logit_lens(model, tokenizer, "aab", top=2)
    (point,) = lens["points"]
    # From a (1, 0) the logits are 0, ln 2, ln 5, so p = 1/8, 2/8, 5/8.
    first, second, last = point["positions"]
    assert first["top"] == [{"id": 2, "label": "b", "probability": 0.625}, {"id": 1, "label": "a", "probability": 0.25}]
    assert (first["probability"], first["rank"], first["loss"]) == (0.25, 2, pytest.approx(math.log(4), rel=1e-5))
    assert (second["probability"], second["rank"]) == (0.625, 1)
    assert (last["probability"], last["rank"], last["loss"]) == (None, None, None)
    assert point["loss"] == pytest.approx((math.log(4) + math.log(8 / 5)) / 2, rel=1e-5)
    norms = residual_norms(model, tokenizer, "aab")
    assert norms == {
        "stream": [
            {"point": "embed", "mean": 2.33333, "positions": [1.0, 1.0, 5.0]},
            {"point": "final_norm", "mean": 2.33333, "positions": [1.0, 1.0, 5.0]},
        ],
        "added": [],
    }


def test_ties_share_the_better_rank_and_go_to_the_lower_id() -> None:
    found = predicted(torch.tensor([[1.0, 3.0, 3.0, 2.0]] * 3), torch.tensor([2, 3, UNSCORED]))
    assert found.rank.tolist() == [1, 3, 0]
    assert math.isnan(float(found.log_probability[2]))


@pytest.mark.parametrize("variant", VARIANTS)
def test_norms_are_those_of_the_trace(variant: str) -> None:
    model = made(variant)
    norms, seen = residual_norms(model, TOKENIZER, TEXT), model.trace(text_tokens(model, TOKENIZER, TEXT))
    assert [point["point"] for point in norms["stream"]] == [*stream_points(model.config), "final_norm"]
    assert [point["point"] for point in norms["added"]] == contribution_points(model.config)
    for point in [*norms["stream"], *norms["added"]]:
        expected = seen[point["point"]].norm(dim=-1)[0]
        assert point["positions"] == pytest.approx(expected.tolist(), rel=1e-4)
        assert point["mean"] == pytest.approx(float(expected.mean()), rel=1e-4)


def test_a_masked_model_is_read_where_the_token_is_masked() -> None:
    model, masking = made("bidirectional"), Masking(0.15, 0)
    lens, tokens = logit_lens(model, TOKENIZER, TEXT, masking=masking), text_tokens(model, TOKENIZER, TEXT)
    assert [each["id"] for each in lens["targets"]] == tokens[0].tolist()
    for place, position in enumerate(lens["points"][-1]["positions"]):
        hidden = tokens.clone()
        hidden[0, place] = masking.token
        with torch.inference_mode():
            shares = model(hidden)[0, place].double().softmax(dim=-1)
        assert position["probability"] == pytest.approx(float(shares[tokens[0, place]]), rel=1e-4)
        assert position["top"][0]["id"] == int(shares.argmax())


@pytest.mark.parametrize(("text", "line"), [("", "0 tokens"), ("a" * 14, "14 tokens"), ("abx", "U\\+0078")])
def test_texts_that_cannot_be_read_are_refused(text: str, line: str) -> None:
    for look in (logit_lens, residual_norms):
        with pytest.raises(UsageError, match=line):
            look(made("pre"), TOKENIZER, text)
