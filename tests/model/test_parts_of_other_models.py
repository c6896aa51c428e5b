"""The parts that other models have: each against its formula, and all together in every execution."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from configs import WINDOW, configs
from hypothesis import given
from torch import Tensor
from torch.nn import functional
from variants import enlarged

from vitral.core.errors import UsageError
from vitral.core.taps import Recorder
from vitral.model import ModelConfig, Transformer
from vitral.model.decode_step import DecodeStep, can_decode_step
from vitral.model.norms import norm_of
from vitral.model.positions import build_positions

VOCAB, TIME = 13, 11
SIZES: dict[str, Any] = {"context_length": TIME, "d_model": 15, "num_layers": 3, "num_heads": 3, "d_ff": 7}
LLAMA3 = {"name": "llama3", "factor": 8.0, "original_context_length": 23}
ROTARY = {"name": "rotary", "base": 100.0}


def config(**chosen: Any) -> ModelConfig:
    return ModelConfig.parse({**SIZES, **chosen})


def made(chosen: ModelConfig, seed: int = 3) -> Transformer:
    """A float64 model in which every number matters."""
    return enlarged(Transformer(chosen, VOCAB, seed=seed).double().eval(), seed)


def drawn(*shape: int, seed: int = 5) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tokens(rows: int = 2) -> Tensor:
    return torch.randint(VOCAB, (rows, TIME), generator=torch.Generator().manual_seed(7))


@given(configs(one_token_at_a_time=True))
def test_every_execution_gives_the_same_logits_and_the_future_changes_nothing(chosen: dict[str, Any]) -> None:
    model, ids = made(ModelConfig.parse(chosen)), tokens()
    with torch.inference_mode():
        fused = model(ids)
        near = partial(torch.testing.assert_close, rtol=0, atol=1e-12 * max(100.0, float(fused.abs().max())))
        near(model(ids, tap=Recorder()), fused)
        cache, other = model.new_cache(2), model.new_cache(2)
        near(torch.cat([model(piece, cache=cache) for piece in ids.split([5, 1, 3, 2], dim=1)], dim=1), fused)
        assert can_decode_step(model, 2)
        step = DecodeStep(model)
        model(ids[:, :7], cache=other)
        for place in range(7, TIME):
            near(step(ids[:, place], other), fused[:, place])
        changed = ids.clone()
        changed[:, 6] = (changed[:, 6] + 1) % VOCAB
        assert torch.equal(model(changed)[:, :6], fused[:, :6])


@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm"])
def test_a_norms_epsilon_is_under_the_root(kind: str) -> None:
    x = torch.tensor([1.0, 3.0], dtype=torch.float64)
    norm = norm_of(ModelConfig(d_model=2, norm_type=kind).model_copy(update={"norm_epsilon": 3.0})).double()
    # LayerNorm: mean 2, variance 1, root of 4. RMSNorm: mean square 5, root of 8.
    expected = [-1 / 2, 1 / 2] if kind == "layernorm" else [1 / math.sqrt(8), 3 / math.sqrt(8)]
    torch.testing.assert_close(norm(x), torch.tensor(expected, dtype=torch.float64))
    model = made(config(norm_type=kind, norm_epsilon=0.07))
    assert {m.eps for m in model.modules() if hasattr(m, "eps")} == {0.07}


def turned_by_hand(x: Tensor, rates: list[float], position: int, *, interleaved: bool) -> list[float]:
    """One head's features after the rotation, pair by pair, with complex numbers."""
    features, half = x.tolist(), len(rates)
    for pair, rate in enumerate(rates):
        one, other = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + half)
        turned = complex(features[one], features[other]) * complex(math.cos(position * rate), math.sin(position * rate))
        features[one], features[other] = turned.real, turned.imag
    return features


@pytest.mark.parametrize("pairing", ["halves", "interleaved"])
@pytest.mark.parametrize(("fraction", "width"), [(1.0, 10), (0.6, 6), (0.25, 2)])
def test_rotary_settings_by_hand(pairing: str, fraction: float, width: int) -> None:
    settings_ = {"name": "rotary", "base": 50.0, "fraction": fraction, "pairing": pairing}
    rotary, x = build_positions(config(d_head=10, positions=settings_)), drawn(1, 1, 5, 10)
    rates = [50.0 ** (-2 * pair / width) for pair in range(width // 2)]
    turned = rotary.rotate(x, start=9)[0, 0]  # past the table of 11 positions, too
    for row in range(5):
        expected = turned_by_hand(x[0, 0, row], rates, 9 + row, interleaved=pairing == "interleaved")
        torch.testing.assert_close(turned[row], torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-13)


def test_linear_scaling_divides_positions() -> None:
    x = drawn(1, 1, 1, 10)
    plain, scaled = (
        build_positions(config(d_head=10, positions={**ROTARY, **more}))
        for more in ({}, {"scaling": {"name": "linear", "factor": 3.0}})
    )
    torch.testing.assert_close(scaled.rotate(x, 6), plain.rotate(x, 2), rtol=0, atol=1e-14)


def test_llama3_scaling_is_its_three_cases() -> None:
    old, factor, low, high = 8192, 8.0, 1.0, 4.0
    scaling = {"name": "llama3", "factor": factor}
    rotary: Any = build_positions(
        config(d_head=64, positions={"name": "rotary", "base": 500_000.0, "scaling": scaling})
    )
    kinds = set()
    for pair, result in enumerate(rotary.frequencies.tolist()):
        rate = 500_000.0 ** (-2 * pair / 64)
        wavelength = 2 * math.pi / rate
        if wavelength < old / high:
            kind, expected = "fast", rate
        elif wavelength > old / low:
            kind, expected = "slow", rate / factor
        else:
            smooth = (old / wavelength - low) / (high - low)
            kind, expected = "between", (1 - smooth) * rate / factor + smooth * rate
        kinds.add(kind)
        assert result == pytest.approx(expected, rel=1e-13)
    assert kinds == {"fast", "slow", "between"}


@pytest.mark.parametrize("norm", ["pre", "none"])
def test_parallel_sublayers_read_one_stream(norm: str) -> None:
    model, ids = made(config(norm=norm, parallel=True)), tokens()
    kept = model.trace(ids)
    block: Any = model.blocks[1]
    x = kept["blocks.1.resid_pre"]
    with torch.inference_mode():
        one, two = (block.attn_norm(x), block.mlp_norm(x)) if norm == "pre" else (x, x)
        torch.testing.assert_close(kept["blocks.1.resid_post"], x + block.attn(one) + block.mlp(two))
        torch.testing.assert_close(kept["blocks.1.resid_mid"], x + block.attn(one))


def test_a_list_of_masks_is_repeated_over_the_blocks() -> None:
    model, ids = made(config(num_layers=3, attention={"mask": ["causal", WINDOW]})), tokens()
    causal = torch.ones(TIME, TIME).tril().bool()
    for layer, seen in enumerate((causal, causal & ~causal.tril(-3), causal)):
        weights = model.trace(ids, [f"blocks.{layer}.attn.weights"])[f"blocks.{layer}.attn.weights"]
        assert torch.equal((weights > 0).all(dim=(0, 1)) if seen is causal else (weights > 0).any(dim=(0, 1)), seen)
    mask = model.mask
    assert mask is not None
    assert torch.equal(mask.allowed(TIME, TIME), causal)
    assert (mask.joint_prefix(), mask.first_target()) == (0, 0)
    mixed = config(attention={"mask": ["causal", {"name": "prefix", "length": 5}]}).attention
    assert mixed != "none"
    assert (mixed.mask.joint_prefix(), mixed.mask.first_target()) == (5, 4)


def test_heads_have_a_width_of_their_own() -> None:
    model = made(config(d_model=13, num_heads=3, d_head=5, num_kv_heads=1))
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters() if name.startswith("blocks.0.attn.")}
    assert shapes["blocks.0.attn.in_proj.weight"] == ((3 + 2) * 5, 13)
    assert shapes["blocks.0.attn.out_proj.weight"] == (13, 15)
    q = model.trace(tokens(), ["blocks.0.attn.q", "blocks.0.attn.scores", "blocks.0.attn.scaled"])
    assert q["blocks.0.attn.q"].shape[-1] == 5
    torch.testing.assert_close(q["blocks.0.attn.scaled"], q["blocks.0.attn.scores"] / math.sqrt(5))


@pytest.mark.parametrize(("norm", "final"), [("pre", False), ("post", True)])
def test_a_final_norm_is_there_or_not(norm: str, final: bool) -> None:
    model = made(config(norm=norm, final_norm=final))
    assert ("final_norm.weight" in dict(model.named_parameters())) is final
    kept, weights = model.trace(tokens()), model.state_dict()
    expected = last = kept["blocks.2.resid_post"]
    if final:
        expected = functional.layer_norm(last, (15,), weights["final_norm.weight"], weights["final_norm.bias"])
    torch.testing.assert_close(kept["final_norm"], expected)


def test_a_norm_after_the_embeddings_and_a_transform_before_a_tied_head_with_a_bias() -> None:
    parts = {"embedding_norm": True, "head_transform": True, "tie_head": True, "bias": {"head": True}}
    model, ids = made(config(norm="post", feed_forward="relu", **parts)), tokens()
    kept, weights = model.trace(ids), model.state_dict()

    def norm(x: Tensor, name: str) -> Tensor:
        return functional.layer_norm(x, (15,), weights[f"{name}.weight"], weights[f"{name}.bias"])

    close = partial(torch.testing.assert_close, rtol=0, atol=1e-12)
    close(kept["embed"], weights["token_embedding.weight"][ids] + weights["positions.weight"][:TIME])
    close(kept["blocks.0.resid_pre"], norm(kept["embed"], "embedding_norm"))
    lined = kept["final_norm"] @ weights["head_transform.linear.weight"].T + weights["head_transform.linear.bias"]
    close(kept["head_transform"], norm(lined.relu(), "head_transform.norm"))
    close(kept["logits"], kept["head_transform"] @ weights["token_embedding.weight"].T + weights["head.bias"])
    with torch.inference_mode():
        close(model.unembed(kept["final_norm"]), kept["logits"])
    assert not can_decode_step(model, 1)
    assert not can_decode_step(made(config(embedding_norm=True)), 1)


def test_repeated_masks_are_their_shortest_list() -> None:
    twice = config(num_layers=4, attention={"mask": ["causal", WINDOW, "causal", WINDOW]})
    assert twice == config(num_layers=4, attention={"mask": ["causal", WINDOW]})
    assert twice.plain()["attention"]["mask"]["name"] == "by-layer"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"norm": "none", "norm_epsilon": 0.1}, "norm_epsilon"),
    ({"norm": "none", "final_norm": True}, "final_norm"),
    ({"parallel": True, "norm": "post"}, "parallel"),
    ({"parallel": True, "attention": "none"}, "parallel"),
    ({"head_transform": True, "feed_forward": "swiglu"}, "head_transform"),
    ({"bias": {"norm": False}, "attention": "none", "recurrence": "lstm"}, "bias"),
    ({"attention": {"mask": ["causal", WINDOW, "causal", "bidirectional"]}}, "num_layers = 3"),
    ({"attention": {"mask": []}}, "mask"),
    ({"attention": {"mask": ["causal", {"name": "window"}]}}, "mask.1"),
    ({"d_head": 5, "positions": "rotary"}, "must be even"),
    ({"d_head": 10, "positions": {"name": "rotary", "fraction": 0.5}}, "not 5"),
    ({"positions": {"name": "rotary", "pairing": "thirds"}, "d_head": 4}, "positions.pairing"),
    ({"positions": {"name": "learned", "base": 2.0}}, "no settings"),
    ({"positions": {**ROTARY, "scaling": {"name": "yarn"}}, "d_head": 4}, "scaling"),
    ({"positions": {**ROTARY, "scaling": {**LLAMA3, "high_frequency_factor": 1.0}}, "d_head": 4}, "high_frequency"),
]  # fmt: skip


@pytest.mark.parametrize(("chosen", "part"), REFUSED)
def test_what_has_no_meaning_is_refused_in_one_line(chosen: dict[str, Any], part: str) -> None:
    with pytest.raises(UsageError) as refused:
        config(**chosen)
    assert part in str(refused.value)
