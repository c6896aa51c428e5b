"""W_QK and W_OV by the scores and sums that they stand for; a logit is the sum of what its parts add."""

from typing import Any

import pytest
import torch
from variants import TEXT, TOKENIZER, VARIANTS, made

from vitral.core.errors import UsageError
from vitral.inspection.circuits import attribute_logit, head_circuits
from vitral.inspection.targets import text_tokens


@pytest.mark.parametrize("head", [0, 1, 2])
def test_circuits_are_those_of_the_scores_and_of_what_a_head_adds(head: int) -> None:
    model = made({"num_kv_heads": 1, "bias": False, "positions": "none"})
    kept = model.trace(text_tokens(model, TOKENIZER, TEXT))
    x, w_qk = kept["blocks.1.attn_norm"][0], head_circuits(model, 1, head)[0]
    torch.testing.assert_close(x @ w_qk @ x.T, kept["blocks.1.attn.scores"][0, head], rtol=1e-4, atol=1e-4)
    others = [kept["blocks.1.attn.weights"][0, one] @ x @ head_circuits(model, 1, one)[1] for one in range(3)]
    torch.testing.assert_close(sum(others), kept["blocks.1.attn.out"][0], rtol=1e-4, atol=1e-4)
    changed = model.trace(text_tokens(model, TOKENIZER, TEXT))["blocks.1.attn.z"].clone()
    changed[:, [one for one in range(3) if one != head]] = 0
    alone = model.get_submodule("blocks.1.attn.out_proj")(changed.transpose(1, 2).flatten(2))[0]
    torch.testing.assert_close(others[head], alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if "BERT" not in name])
def test_the_parts_add_up_to_the_logit(variant: str) -> None:
    model = made(variant).double()
    logits = model.trace(text_tokens(model, TOKENIZER, TEXT), "logits")["logits"][0]
    cases: list[tuple[dict[str, Any], torch.Tensor]] = [
        ({}, logits[-1].max()),
        ({"token": "b", "position": 2}, logits[2, TOKENIZER.encode("b")[0]]),
        ({"token": "b", "other": "a"}, logits[-1, TOKENIZER.encode("b")[0]] - logits[-1, TOKENIZER.encode("a")[0]]),
    ]
    for asked, wanted in cases:
        measured = attribute_logit(model, TOKENIZER, TEXT, **asked)
        assert sum(one["value"] for one in measured.records()) == pytest.approx(float(wanted), abs=1e-5)
        assert measured.plain()["logit"] == pytest.approx(float(wanted), abs=1e-9)


def test_without_norms_a_part_is_its_vector_times_the_tokens_row_of_the_head() -> None:
    model = made({"norm": "none", "num_layers": 1}).double()
    parts = {one["part"]: one["value"] for one in attribute_logit(model, TOKENIZER, TEXT, "b").records()}
    kept = {name: value[0].clone() for name, value in model.trace(text_tokens(model, TOKENIZER, TEXT)).items()}
    row = model.head_weight[TOKENIZER.encode("b")[0]].detach()
    w_o = model.get_parameter("blocks.0.attn.out_proj.weight")[:, 5:10].detach()
    assert parts["embed"] == pytest.approx(float(kept["embed"][-1] @ row), abs=1e-9)
    assert parts["blocks.0.attn.z[1]"] == pytest.approx(float(w_o @ kept["blocks.0.attn.z"][1, -1] @ row), abs=1e-9)
    assert parts["blocks.0.mlp.out"] == pytest.approx(float(kept["blocks.0.mlp.out"][-1] @ row), abs=1e-9)


def test_an_rms_norm_without_an_epsilon_has_that_of_its_numbers() -> None:
    model = made({"norm_type": "rmsnorm", "num_layers": 1})
    norm: Any = model.final_norm
    norm.eps = None
    for name, weight in model.named_parameters():
        weight.data *= 1.0 if name.startswith(("final_norm", "head")) else 1e-3
    measured = attribute_logit(model, TOKENIZER, TEXT)
    assert sum(one["value"] for one in measured.records()) == pytest.approx(measured.plain()["logit"], rel=1e-4)


@pytest.mark.parametrize("how", [{"token": "ab"}, {"token": 999}, {"position": 8}, {"other": "ab"}])
def test_what_cannot_be_attributed_is_refused(how: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="attribution"):
        attribute_logit(made("pre"), TOKENIZER, TEXT, **how)
    with pytest.raises(UsageError, match="do not add up"):
        attribute_logit(made("like BERT, causal"), TOKENIZER, TEXT)
    for layer, head in ((2, 0), (0, 3), (-1, 0)):
        with pytest.raises(UsageError, match="are 0 to"):
            head_circuits(made("pre"), layer, head)
    with pytest.raises(UsageError, match="no attention"):
        head_circuits(made("no attention"), 0, 0)
