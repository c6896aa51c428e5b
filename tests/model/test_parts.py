"""The parts of a block by hand: positions, norms, feed-forward, wiring; and the whole model written out once more."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from vitral.model import ModelConfig, Transformer
from vitral.model.feedforward import SwiGLU, build_feed_forward, squared_relu
from vitral.model.norms import build_norm, post_norm, pre_norm, with_residual, without_residual
from vitral.model.positions import ALiBi, Learned, Relative, build_positions, distances, sinusoids

Made = Callable[..., Transformer]
Drawn = Callable[..., Tensor]


def config(**chosen: object) -> ModelConfig:
    return ModelConfig.parse({"context_length": 5, "d_model": 12, "num_heads": 3, **chosen})


def test_sinusoids_by_hand() -> None:
    table = sinusoids(4, 4)
    expected = [[math.sin(p), math.cos(p), math.sin(p / 100), math.cos(p / 100)] for p in range(4)]
    torch.testing.assert_close(table, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-15)
    assert sinusoids(3, 5).shape == (3, 5)


def test_sinusoids_go_on_past_their_table() -> None:
    positions = build_positions(config(positions="sinusoidal"))
    placed = positions.embed(3, 5)
    assert placed is not None
    assert torch.equal(placed, sinusoids(8, 12)[3:])


def test_learned_positions_are_rows_of_a_table(lively: Made) -> None:
    positions = lively(positions="learned").positions
    assert isinstance(positions, Learned)
    assert torch.equal(positions.embed(2, 3), positions.weight[2:5])


def test_rotary_by_hand() -> None:
    # Width 4: pairs (0, 2) and (1, 3), turning by p and p/100.
    rotary = build_positions(config(positions="rotary"))
    x = torch.tensor([[1.0, 1.0, 0.0, 0.0]] * 3, dtype=torch.float64).view(1, 1, 3, 4)
    turned = rotary.rotate(x, start=2)[0, 0]
    expected = [[math.cos(p), math.cos(p / 100), math.sin(p), math.sin(p / 100)] for p in (2, 3, 4)]
    torch.testing.assert_close(turned, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-15)


@given(st.integers(0, 500), st.integers(0, 40), st.integers(0, 500))
def test_rotary_scores_depend_on_the_difference_only(near: int, difference: int, shift: int) -> None:
    rotary = build_positions(config(positions="rotary"))
    q, k = (torch.linspace(a, 2, 4, dtype=torch.float64).view(1, 1, 1, 4) for a in (-3, 0.5))
    at = [(near + difference, near), (near + difference + shift, near + shift)]
    one, other = (float((rotary.rotate(q, i) * rotary.rotate(k, j)).sum()) for i, j in at)
    assert one == pytest.approx(other, abs=1e-10)
    torch.testing.assert_close(rotary.rotate(q, near).norm(), q.norm())


def test_alibi_slopes_are_the_papers() -> None:
    alibi = build_positions(config(positions="alibi", d_model=16, num_heads=8))
    assert isinstance(alibi, ALiBi)
    assert alibi.slopes.tolist() == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    bias = alibi.bias(2, 3)
    assert bias[0].tolist() == [[-0.5, 0, -0.5], [-1, -0.5, 0]]
    assert bias[7, 1].tolist() == [-2 / 256, -1 / 256, 0]


def test_relative_biases_are_looked_up_by_distance() -> None:
    relative = build_positions(config(positions="relative", context_length=3))
    assert isinstance(relative, Relative)
    with torch.no_grad():
        relative.by_distance.copy_(torch.arange(15.0).view(3, 5))
    bias = relative.bias(2, 4)
    # Columns stand for distances -2 … 2 (query minus key); further ones share the outermost.
    assert bias[1].tolist() == [[9, 8, 7, 6], [9, 9, 8, 7]]


def test_distances_by_hand() -> None:
    assert distances(2, 3, torch.device("cpu")).tolist() == [[1, 0, -1], [2, 1, 0]]


@pytest.mark.parametrize("kind", ["learned", "sinusoidal", "rotary", "alibi", "relative", "none"])
def test_each_kind_answers_in_one_place(kind: str) -> None:
    positions, x = build_positions(config(positions=kind)), torch.ones(1, 3, 2, 4)
    answers = [positions.embed(1, 2) is not None, positions.rotate(x, 1) is not x, positions.bias(2, 3) is not None]
    assert answers == [kind in ("learned", "sinusoidal"), kind == "rotary", kind in ("alibi", "relative")]


def test_layer_norm_by_hand() -> None:
    # Mean 2, variance 1.
    norm = build_norm("layernorm", 2, bias=True)
    assert isinstance(norm, nn.LayerNorm)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([3.0, 5.0]))
        norm.bias.copy_(torch.tensor([0.5, 7.0]))
    root = math.sqrt(1 + 1e-5)
    torch.testing.assert_close(norm(torch.tensor([1.0, 3.0])), torch.tensor([0.5 - 3 / root, 7 + 5 / root]))
    assert build_norm("layernorm", 2, bias=False).bias is None


def test_a_layer_norm_loses_mean_and_scale() -> None:
    """So two streams that differ in these only are one to everything behind it."""
    norm, x = build_norm("layernorm", 7, bias=True), torch.randn(5, 7, dtype=torch.float64)
    norm.double()
    torch.testing.assert_close(norm(2 * x + 3), norm(x), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(norm(-x), norm(x), rtol=1e-4, atol=1e-4)


def test_rms_norm_by_hand() -> None:
    # Mean of squares 12.5; the mean is not taken away.
    norm = build_norm("rmsnorm", 2, bias=True)
    assert isinstance(norm, nn.RMSNorm)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 2.0]))
    root = math.sqrt(12.5 + 1e-5)
    torch.testing.assert_close(norm(torch.tensor([3.0, 4.0])), torch.tensor([3 / root, 8 / root]))
    assert [name for name, _ in norm.named_parameters()] == ["weight"]


def test_wirings_by_hand() -> None:
    # The norm doubles, the part adds one.
    x, double, add_one = torch.full((1, 1, 1), 3.0), partial(torch.mul, 2), partial(torch.add, 1)
    results = {
        (wire, combine): float(wire(x, double, add_one, combine))
        for wire in (pre_norm, post_norm)
        for combine in (with_residual, without_residual)
    }
    assert results == {
        (pre_norm, with_residual): 3 + (2 * 3 + 1),
        (pre_norm, without_residual): 2 * 3 + 1,
        (post_norm, with_residual): 2 * (3 + (3 + 1)),
        (post_norm, without_residual): 2 * (3 + 1),
    }


def test_activations_by_hand() -> None:
    assert squared_relu(torch.tensor([-2.0, 0.0, 3.0])).tolist() == [0, 0, 9]
    x = torch.tensor([[[0.7, -1.3]]], dtype=torch.float64)
    for name, phi in (
        ("gelu", lambda t: t / 2 * (1 + torch.erf(t / math.sqrt(2)))),
        ("relu", lambda t: t * (t > 0)),
        ("squared_relu", lambda t: t * t * (t > 0)),
    ):
        mlp = build_feed_forward(config(feed_forward=name, d_model=2, num_heads=1, d_ff=3))
        assert mlp is not None
        mlp.double()
        expected = phi(x @ mlp.up.weight.T + mlp.up.bias) @ mlp.down.weight.T + mlp.down.bias
        torch.testing.assert_close(mlp(x), expected)


def test_swiglu_by_hand() -> None:
    mlp = build_feed_forward(config(feed_forward="swiglu", d_model=1, num_heads=1, d_ff=1))
    assert isinstance(mlp, SwiGLU)
    with torch.no_grad():
        for name, value in (("gate", 2.0), ("up", 3.0), ("down", 5.0)):
            getattr(mlp, name).weight.fill_(value)
            getattr(mlp, name).bias.zero_()
    # gate 1, swish(1) = 1/(1 + 1/e); up 1.5.
    expected = 5 * 1.5 / (1 + math.exp(-1))
    torch.testing.assert_close(mlp(torch.full((1, 1, 1), 0.5)), torch.full((1, 1, 1), expected))
    assert config(feed_forward="swiglu").hidden_width == 32
    assert config(feed_forward="gelu").hidden_width == 48


def written_out(model: Transformer, tokens: Tensor, *, post: bool) -> Tensor:
    """GPT's formulas with nothing but tensors: learned positions, causal heads one by one, LayerNorm, GELU."""
    weights = model.state_dict()
    time, width, heads = tokens.shape[1], model.config.d_model, model.config.num_heads

    def norm(x: Tensor, name: str) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def attention(x: Tensor, name: str) -> Tensor:
        q, k, v = linear(x, f"{name}.in_proj").chunk(3, -1)
        each = []
        for head in range(heads):
            part = slice(head * width // heads, (head + 1) * width // heads)
            scores = q[..., part] @ k[..., part].transpose(1, 2) / math.sqrt(width // heads)
            future = torch.ones(time, time).triu(1).bool()
            exponentials = scores.exp() * ~future
            each.append(exponentials / exponentials.sum(-1, keepdim=True) @ v[..., part])
        return linear(torch.cat(each, -1), f"{name}.out_proj")

    def feed_forward(x: Tensor, name: str) -> Tensor:
        return linear(functional.gelu(linear(x, f"{name}.up")), f"{name}.down")

    x = weights["token_embedding.weight"][tokens] + weights["positions.weight"][:time]
    for layer in range(model.config.num_layers):
        for part, name in ((attention, "attn"), (feed_forward, "mlp")):
            inside, its_norm = f"blocks.{layer}.{name}", f"blocks.{layer}.{name}_norm"
            x = norm(x + part(x, inside), its_norm) if post else x + part(norm(x, its_norm), inside)
    x = x if post else norm(x, "final_norm")
    return x @ weights["head.weight"].T


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_model_is_its_formulas(norm: str, lively: Made, tokens: Drawn) -> None:
    model, ids = lively(norm=norm), tokens(2, 5)
    with torch.inference_mode():
        torch.testing.assert_close(model(ids), written_out(model, ids, post=norm == "post"), rtol=0, atol=1e-11)


def test_without_residual_the_output_takes_the_streams_place(lively: Made, tokens: Drawn) -> None:
    kept = lively(residual=False).trace(tokens())
    for layer in range(2):
        assert torch.equal(kept[f"blocks.{layer}.resid_mid"], kept[f"blocks.{layer}.attn.out"])
        assert torch.equal(kept[f"blocks.{layer}.resid_post"], kept[f"blocks.{layer}.mlp.out"])


def test_without_a_part_the_stream_passes_it_by(lively: Made, tokens: Drawn) -> None:
    bare = lively(attention="none", feed_forward="none", residual=False)
    kept = bare.trace(tokens())
    assert torch.equal(kept["embed"], kept["blocks.1.resid_post"])
    assert not [name for name, _ in bare.named_parameters() if name.startswith("blocks.")]
    names = {
        name.split(".")[2] for name, _ in lively(attention="none").named_parameters() if name.startswith("blocks.")
    }
    assert names == {"mlp", "mlp_norm"}
    names = {name.split(".")[2] for name, _ in lively(feed_forward="none").named_parameters() if name[:6] == "blocks"}
    assert names == {"attn", "attn_norm"}


def test_norm_none_has_no_norms(lively: Made) -> None:
    assert not [name for name, _ in lively(norm="none").named_parameters() if "norm" in name]
    assert "final_norm.weight" not in dict(lively(norm="post").named_parameters())


def test_bias_off_leaves_no_bias(lively: Made) -> None:
    assert not [name for name, _ in lively(bias=False).named_parameters() if name.endswith("bias")]


def test_a_tied_head_is_the_embedding(lively: Made, tokens: Drawn) -> None:
    tied, free = lively(tie_head=True), lively()
    assert tied.head_weight is tied.token_embedding.weight
    free.load_state_dict({**tied.state_dict(), "head.weight": tied.token_embedding.weight})
    torch.testing.assert_close(tied(tokens()), free(tokens()), rtol=0, atol=1e-12)
    for model in (tied, free):
        model(tokens()).square().sum().backward()
    assert free.head is not None
    parts = [free.token_embedding.weight.grad, free.head.weight.grad]
    both = sum(part for part in parts if part is not None)
    torch.testing.assert_close(tied.token_embedding.weight.grad, both)


def test_dropout_place_by_place(lively: Made, tokens: Drawn) -> None:
    plain = lively().trace(tokens())
    first = {
        "embedding": "blocks.0.resid_pre",
        "attention": "blocks.0.resid_mid",
        "feed_forward": "blocks.0.resid_post",
    }
    for place, name in {**first, "weights": "blocks.0.attn.z"}.items():
        model = lively(dropout={place: 0.5}).train()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            kept = model.trace(tokens())
        names = list(plain)
        changed = next(found for found in names if not torch.equal(kept[found], plain[found]))
        assert changed == name
        assert torch.equal(model.eval().trace(tokens())["logits"], plain["logits"])
