"""The parts of a block by hand: positions, feed-forward, wiring, dropout."""

import math
from functools import partial

import torch
from small_models import lively, tokens

from vitral.model import ModelConfig
from vitral.model.activations import squared_relu
from vitral.model.feedforward import build_feed_forward
from vitral.model.norms import Sublayer
from vitral.model.positions import ALiBi, Relative, build_positions, sinusoids


def config(**chosen: object) -> ModelConfig:
    return ModelConfig.parse({"context_length": 5, "d_model": 12, "num_heads": 3, **chosen})


def test_sinusoids_by_hand() -> None:
    table = sinusoids(4, 4)
    expected = [[math.sin(p), math.cos(p), math.sin(p / 100), math.cos(p / 100)] for p in range(4)]
    torch.testing.assert_close(table, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-15)
    assert sinusoids(3, 5).shape == (3, 5)


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


def test_wirings_by_hand() -> None:
    # The norm doubles, the part adds one.
    x, double, add_one = torch.full((1, 1, 1), 3.0), partial(torch.mul, 2), partial(torch.add, 1)
    results = {
        (norm_placement, residual): float(Sublayer("mlp", double, add_one, norm_placement, residual)(x))
        for norm_placement in ("pre", "post", "none")
        for residual in (True, False)
    }
    assert results == {
        ("pre", True): 3 + (2 * 3 + 1),
        ("pre", False): 2 * 3 + 1,
        ("post", True): 2 * (3 + (3 + 1)),
        ("post", False): 2 * (3 + 1),
        ("none", True): 3 + (3 + 1),
        ("none", False): 3 + 1,
    }


def test_activations_by_hand() -> None:
    assert squared_relu(torch.tensor([-2.0, 0.0, 3.0])).tolist() == [0, 0, 9]
    x = torch.tensor([[[0.7, -1.3]]], dtype=torch.float64)
    for name, phi in (
        ("gelu", lambda t: t / 2 * (1 + torch.erf(t / math.sqrt(2)))),
        ("relu", lambda t: t * (t > 0)),
        ("squared_relu", lambda t: t * t * (t > 0)),
        ("gelu_tanh", lambda t: t / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (t + 0.044715 * t**3)))),
    ):
        mlp = build_feed_forward(config(feed_forward=name, d_model=2, num_heads=1, d_ff=3))
        assert mlp is not None
        mlp.double()
        expected = phi(x @ mlp.up.weight.T + mlp.up.bias) @ mlp.down.weight.T + mlp.down.bias
        torch.testing.assert_close(mlp(x), expected)


def test_swiglu_by_hand() -> None:
    mlp = build_feed_forward(config(feed_forward="swiglu", d_model=1, num_heads=1, d_ff=1))
    assert mlp is not None
    with torch.no_grad():
        for name, value in (("gate", 2.0), ("up", 3.0), ("down", 5.0)):
            getattr(mlp, name).weight.fill_(value)
            getattr(mlp, name).bias.zero_()
    # gate 1, swish(1) = 1/(1 + 1/e); up 1.5.
    expected = 5 * 1.5 / (1 + math.exp(-1))
    torch.testing.assert_close(mlp(torch.full((1, 1, 1), 0.5)), torch.full((1, 1, 1), expected))
    assert config(feed_forward="swiglu").hidden_width == 32
    assert config(feed_forward="gelu").hidden_width == 48


def test_dropout_place_by_place() -> None:
    plain = lively().trace(tokens())
    first = {
        "embedding": "blocks.0.resid_pre",
        "attention": "blocks.0.resid_mid",
        "feed_forward": "blocks.0.resid_post",
    }
    for key, name in {**first, "weights": "blocks.0.attn.z"}.items():
        model = lively(dropout={key: 0.5}).train()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            kept = model.trace(tokens())
        names = list(plain)
        changed = next(activation for activation in names if not torch.equal(kept[activation], plain[activation]))
        assert changed == name
        assert torch.equal(model.eval().trace(tokens())["logits"], plain["logits"])
