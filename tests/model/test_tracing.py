"""Looking inside changes nothing, shows everything by name, and lets anything be replaced."""

from typing import Any

import pytest
import torch
from small_models import lively, tokens
from torch.nn import functional

from vitral.core.names import BLOCK_STEPS, TRANSFORMER_LENS, activation_names, names_of, require_known
from vitral.core.taps import Editor
from vitral.model.block import Block

RECURRENT = ("recurrence_norm", "recurrence.out", "recurrence_sum")
CROSS = [name for name in BLOCK_STEPS if "cross" in name]
PRE, POST = ("attn_norm", "mlp_norm"), ("attn_sum", "mlp_sum")
ATTENTION, MLP = ([name for name in BLOCK_STEPS if name.startswith(part)] for part in ("attn", "mlp"))
BERT = {"embedding_norm": True, "head_transform": True}
LSTM = {"attention": "none", "recurrence": "lstm"}
ROTARY, GATE = ("attn.q_pre", "attn.k_pre"), ("mlp.gate",)
ABSENT = [
    ({}, (*POST, *ROTARY, *GATE)),
    ({"norm": "post", **BERT}, (*PRE, *ROTARY, *GATE)),
    ({"norm": "none"}, (*PRE, *POST, *ROTARY, *GATE)),
    ({"positions": "rotary", "d_model": 24, "residual": False}, (*POST, *GATE)),
    ({"positions": "rotary", "d_model": 24, "norm": "post", "feed_forward": "swiglu"}, PRE),
    ({"attention": "none"}, (*POST, *GATE, *ATTENTION)),
    ({"feed_forward": "none"}, (*POST, *ROTARY, *MLP)),
    ({"shape": "encoder", "num_labels": 3}, (*POST, *ROTARY, *GATE)),
    ({**LSTM}, (*ATTENTION, *GATE, "mlp_sum", "recurrence_sum")),
    ({**LSTM, "norm": "post"}, (*ATTENTION, *GATE, "mlp_norm", "recurrence_norm")),
    ({**LSTM, "norm": "none", "feed_forward": "none", "residual": False}, (*ATTENTION, *MLP, *RECURRENT[::2])),
]


@pytest.mark.parametrize("num_layers", [0, 1, 3])
@pytest.mark.parametrize(("config", "absent"), ABSENT)
def test_every_name_is_recorded_in_order_and_no_other(
    config: dict[str, Any], absent: tuple[str, ...], num_layers: int
) -> None:
    model = lively(num_layers=num_layers, **config)
    absent = (*absent, *CROSS) if "recurrence" in config else (*absent, *RECURRENT, *CROSS)
    absent = absent if "head_transform" in config else (*absent, "embed_norm", "head_transform")
    absent = absent if "num_labels" in config else (*absent, "pooled")
    assert list(model.trace(tokens())) == model.activation_names == activation_names(num_layers, absent)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("feed_forward", ["gelu", "swiglu"])
def test_norms_projections_and_rotation_by_name(norm: str, feed_forward: str) -> None:
    model = lively(norm=norm, feed_forward=feed_forward, positions="rotary", d_model=24)
    kept, block = model.trace(tokens(2, 5)), model.blocks[1]
    at = {name.removeprefix("blocks.1."): value for name, value in kept.items()}
    assert isinstance(block, Block)
    assert block.attn is not None
    assert block.attn_norm is not None
    assert block.mlp_norm is not None
    with torch.inference_mode():
        if norm == "pre":
            read = at["attn_norm"], at["mlp_norm"]
            assert torch.equal(at["attn_norm"], block.attn_norm(at["resid_pre"]))
            assert torch.equal(at["mlp_norm"], block.mlp_norm(at["resid_mid"]))
        else:
            read = at["resid_pre"], at["resid_mid"]
            assert torch.equal(at["attn_sum"], at["resid_pre"] + at["attn.out"])
            assert torch.equal(at["resid_post"], block.mlp_norm(at["resid_mid"] + at["mlp.out"]))
        for projected, name in zip(block.attn.project(read[0])[:2], "qk", strict=True):
            assert torch.equal(at[f"attn.{name}_pre"], projected)
            assert torch.equal(at[f"attn.{name}"], model.positions.rotate(projected, 0))
        assert torch.equal(at["mlp.pre"], block.get_submodule("mlp.up")(read[1]))
        if feed_forward == "swiglu":
            assert torch.equal(at["mlp.gate"], block.get_submodule("mlp.gate")(read[1]))
            assert torch.equal(at["mlp.hidden"], functional.silu(at["mlp.gate"]) * at["mlp.pre"])


def test_names_mean_what_they_say() -> None:
    model, ids = lively(), tokens(2, 5)
    kept = model.trace(ids)
    with torch.inference_mode():
        embedded = model.token_embedding.weight[ids] + model.get_parameter("positions.weight")[:5]
        torch.testing.assert_close(kept["embed"], embedded)
        for layer in range(2):
            at = {name: kept[f"blocks.{layer}.{name}"] for name in ("resid_pre", "resid_mid", "resid_post")}
            torch.testing.assert_close(at["resid_mid"], at["resid_pre"] + kept[f"blocks.{layer}.attn.out"])
            torch.testing.assert_close(at["resid_post"], at["resid_mid"] + kept[f"blocks.{layer}.mlp.out"])
        assert torch.equal(kept["blocks.0.resid_pre"], kept["embed"])
        assert torch.equal(kept["blocks.1.resid_pre"], kept["blocks.0.resid_post"])
        torch.testing.assert_close(kept["final_norm"], model.final_norm(kept["blocks.1.resid_post"]))
        torch.testing.assert_close(kept["logits"], kept["final_norm"] @ model.head_weight.T)
        torch.testing.assert_close(kept["blocks.0.attn.weights"].sum(-1), torch.ones(2, 3, 5).double())


@pytest.mark.parametrize("config", [{}, {"norm": "post", "positions": "rotary", "d_model": 24}])
def test_every_activation_may_be_replaced(config: dict[str, Any]) -> None:
    model = lively(feed_forward="swiglu", **config)
    kept = model.trace(tokens())
    with torch.inference_mode():
        plain = model(tokens())
        for name, value in kept.items():
            same = model(tokens(), tap=Editor({name: lambda _, v=value: v}))
            torch.testing.assert_close(same, plain, rtol=0, atol=1e-12, msg=name)
            other = model(tokens(), tap=Editor({name: lambda x: 0.5 * x}))
            assert float((other - plain).abs().max()) > 1e-6, name


def test_unknown_names_are_refused_with_the_nearest() -> None:
    require_known(["blocks.1.attn.q"], activation_names(2))
    with pytest.raises(
        ValueError, match=r"no activation is called 'blocks\.0\.atn\.q', did you mean 'blocks\.0\.attn\.q'"
    ):
        require_known(["blocks.0.atn.q"], activation_names(2))
    with pytest.raises(ValueError, match=r"no activation is called 'blocks\.2\.attn\.q'"):
        require_known(["blocks.2.attn.q"], activation_names(2))


def test_names_of_transformer_lens_and_patterns_are_understood() -> None:
    rotary, plain = activation_names(2), activation_names(2, {"attn.q_pre", "attn.k_pre", "mlp.gate"})
    assert {step for ours in TRANSFORMER_LENS.values() for step in ours} <= {
        *BLOCK_STEPS,
        *rotary,
    }
    assert names_of(["blocks.1.attn.hook_q", "blocks.1.attn.hook_rot_q"], rotary) == [
        "blocks.1.attn.q_pre",
        "blocks.1.attn.q",
    ]
    assert names_of("blocks.1.attn.hook_q", plain) == ["blocks.1.attn.q"]
    assert names_of("blocks.*.attn.pattern", plain) == names_of("*attn.weights", plain)
    assert names_of("*attn.weights", plain) == ["blocks.0.attn.weights", "blocks.1.attn.weights"]
    assert names_of("encoder.blocks.0.hook_mlp_out", activation_names(1, encoder_layers=1)) == [
        "encoder.blocks.0.mlp.out"
    ]
    for unknown in ("blocks.0.attn.hook_patern", "*.atn.weights", "blocks.2.attn.hook_q"):
        with pytest.raises(ValueError, match="no activation is called"):
            names_of(unknown, plain)
