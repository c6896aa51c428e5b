"""Own parts in a model: counted, initialised, traced and generated with like Vitral's, or refused in one line."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from vitral.attention import Causal, Mask, attend
from vitral.core import parts
from vitral.core.errors import UsageError
from vitral.core.parts import register
from vitral.model import ModelConfig, Positions, Transformer, cost, count_parameters, parameter_table
from vitral.model.decode_step import can_decode_step

VOCAB = 11
SIZES: dict[str, Any] = {"context_length": 9, "d_model": 12, "num_heads": 3, "num_layers": 2, "d_ff": 10}


def model_of(seed: int = 3, **changes: Any) -> Transformer:
    return Transformer(ModelConfig.parse({**SIZES, **changes}), VOCAB, seed=seed).eval()


def tokens(time: int = 7) -> Tensor:
    return torch.arange(2 * time).view(2, time) * 5 % VOCAB


class Gelu(nn.Module):
    """A copy of the built-in feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, config.hidden_width, bias=config.biases.feed_forward)
        self.down = nn.Linear(config.hidden_width, config.d_model, bias=config.biases.feed_forward)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.gelu(self.up(x)))


class Shift(nn.Module):
    """A norm with a random number that the factory draws."""

    def __init__(self, d_model: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.randn(d_model))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * x / (x.abs().mean(-1, keepdim=True) + self.epsilon) + self.shift


class Turned(Positions):
    """Rotates by sign, embeds and biases: all three places at once."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(config.context_length, config.d_model))
        self.slope = nn.Parameter(torch.full((config.num_heads, 1, 1), 0.25))

    def embed(self, start: int, time: int) -> Tensor:
        return self.weight[start : start + time]

    def rotate(self, x: Tensor, start: int) -> Tensor:
        positions = torch.arange(start, start + x.shape[-2], dtype=x.dtype)
        return x * torch.cos(0.3 * positions)[:, None]

    def bias(self, time: int, source: int) -> Tensor:
        queries = torch.arange(source - time, source)
        return -self.slope * (queries[:, None] - torch.arange(source)).abs()


def every_second(step: int = 2) -> Callable[[int, int], Tensor]:
    def allowed(time: int, source: int) -> Tensor:
        distance = torch.arange(source - time, source)[:, None] - torch.arange(source)
        return (distance >= 0) & (distance % step == 0)

    return allowed


class PerHead(nn.Module):
    def __init__(self, num_heads: int, d_head: int) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.full((num_heads, 1, 1), -0.5 * torch.log(torch.tensor(float(d_head))).item()))

    def forward(self) -> Tensor:
        return self.log.exp()


@pytest.fixture
def everything() -> dict[str, Any]:
    """A configuration of own parts alone."""
    register("norm", "shift", Shift)
    register("feed_forward", "copy", Gelu)
    register("positions", "turned", Turned)
    register("mask", "every-second", every_second)
    register("scale", "per-head", PerHead)
    attention = {"mask": {"name": "every-second", "step": 3}, "scale": "per-head"}
    norm = {"name": "shift", "epsilon": 0.5}
    return {"norm_type": norm, "feed_forward": "copy", "positions": "turned", "attention": attention}


def test_a_copy_of_a_built_in_part_gives_the_same_bits() -> None:
    register("feed_forward", "copy", Gelu)
    register("activation", "gelu-again", lambda: functional.gelu)
    register("mask", "causal-again", lambda: lambda time, source: Causal().allowed(time, source))
    register("scale", "root", lambda num_heads, d_head: d_head**-0.5)
    usual = model_of()
    copies: list[dict[str, Any]] = [{"feed_forward": "copy"}, {"feed_forward": "gelu-again"}]
    copies.append({"attention": {"scale": "root"}})
    for changes in copies:
        own = model_of(**changes)
        assert own.state_dict().keys() == usual.state_dict().keys()
        assert torch.equal(own(tokens()), usual(tokens())), changes
    torch.testing.assert_close(model_of(attention={"mask": "causal-again"})(tokens()), usual(tokens()))


def test_parameters_are_counted_on_the_module(everything: dict[str, Any]) -> None:
    model = model_of(**everything)
    rows = {row.name: row.shape for row in parameter_table(model.config, VOCAB)}
    assert rows == {name: tuple(value.shape) for name, value in model.state_dict().items()}
    assert count_parameters(model.config, VOCAB) == sum(p.numel() for p in model.parameters())
    for row in parameter_table(model.config, VOCAB):
        if row.name.startswith("blocks.0.mlp."):
            assert math.prod(map(int, row.formula.split(" · "))) == row.count

    def looking(d_model: int) -> nn.Module:
        assert torch.ones(d_model).sum().item() == d_model  # a factory may look into its tensors
        return nn.LayerNorm(d_model)

    register("norm", "looking", looking)
    same = [cost(ModelConfig.parse({**SIZES, "norm_type": kind}), VOCAB) for kind in ("layernorm", "looking")]
    assert same[0] == same[1]


@pytest.mark.parametrize("left_out", [(), ("positions",), ("attention",), ("norm_type", "feed_forward")])
def test_cached_logits_are_those_of_the_whole(everything: dict[str, Any], left_out: tuple[str, ...]) -> None:
    model = model_of(**{key: value for key, value in everything.items() if key not in left_out})
    assert not can_decode_step(model, 1)
    whole, cache = model(tokens()), model.new_cache(2)
    pieces = [model(tokens()[:, :4], cache=cache), *(model(tokens()[:, i : i + 1], cache=cache) for i in range(4, 7))]
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, rtol=1e-4, atol=1e-5)


def test_a_mask_says_by_trial_what_it_shows() -> None:
    register("mask", "behind", every_second)
    register("mask", "ahead", lambda: lambda time, source: torch.ones(time, source, dtype=torch.bool))
    behind = ModelConfig.parse({"attention": {"mask": "behind"}}).attention
    ahead = ModelConfig.parse({"attention": {"mask": "ahead"}}).attention
    assert isinstance(behind.mask, Mask)  # pyright: ignore
    assert (behind.mask.joint_prefix(), behind.mask.first_target()) == (0, 0)  # pyright: ignore
    assert (ahead.mask.joint_prefix(), ahead.mask.first_target()) == (None, None)  # pyright: ignore
    q = torch.eye(4)
    assert torch.equal(attend(q, q, q, mask="ahead"), attend(q, q, q, mask="bidirectional"))


class Buffered(nn.Module):
    def __init__(self, *given: Any, kind: str = "") -> None:
        super().__init__()
        self.inner = nn.Linear(12, 12)
        if kind == "constant":
            self.register_buffer("mean", torch.zeros(12), persistent=False)
        elif kind == "loose":
            self.mean = torch.zeros(12)
        elif kind == "whole":
            self.number = nn.Parameter(torch.zeros(3, dtype=torch.int64), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


class Doing(nn.Linear):
    """A wrong result of a chosen kind."""

    def __init__(self, config: ModelConfig, kind: str) -> None:
        super().__init__(12, 12)
        self.kind = kind

    def forward(self, input: Tensor) -> Any:
        made = super().forward(input)
        return {
            "narrow": lambda: made[..., :-1],
            "nan": lambda: made / 0,
            "raises": lambda: made @ made,
            "right": lambda: made,
        }[self.kind]()


one_for_all = nn.Linear(12, 12)
WRONG: list[tuple[str, Callable[..., Any], dict[str, Any], str]] = [
    ("norm", lambda d_model: 5, {}, "not an nn.Module"),
    ("norm", Shift, {"eps": 1}, "eps"),
    ("norm", lambda d_model: nn.BatchNorm1d(d_model), {}, "running_mean|num_batches"),
    ("norm", Buffered, {"kind": "loose"}, "mean"),
    ("norm", Buffered, {"kind": "whole"}, "number"),
    ("norm", lambda d_model: nn.Softmax(dim=1), {}, "other positions"),
    ("feed_forward", lambda config: one_for_all, {}, "one parameter"),
    ("feed_forward", lambda config: nn.Tanh(), {}, "no parameters"),
    ("feed_forward", Doing, {"kind": "narrow"}, "11"),
    ("feed_forward", Doing, {"kind": "nan"}, "not finite"),
    ("feed_forward", Doing, {"kind": "raises"}, "RuntimeError"),
    ("activation", lambda: 3, {}, "not a function"),
    ("positions", lambda config: nn.Identity(), {}, "Positions"),
    (
        "positions",
        lambda config: type("Odd", (Positions,), {"bias": lambda self, t, s: torch.zeros(t, s)})(),
        {},
        "3, 4",
    ),
    ("mask", lambda: lambda time: 1, {}, "TypeError"),
    ("mask", lambda: lambda time, source: torch.ones(time, source), {}, "boolean"),
    ("mask", lambda: lambda t, s: torch.arange(t)[:, None] >= torch.arange(s), {}, "last"),
    ("scale", lambda num_heads, d_head: float("nan"), {}, "finite"),
    ("scale", lambda num_heads, d_head: Buffered(), {}, "Error"),
]
KEYS: dict[str, str] = {"norm": "norm_type", "activation": "feed_forward"}


@pytest.mark.parametrize(("kind", "factory", "settings", "said"), WRONG, ids=lambda value: None)
def test_a_wrong_factory_is_one_line_with_its_name(
    kind: parts.Kind, factory: Any, settings: dict[str, Any], said: str
) -> None:
    register(kind, "wrong", factory)
    named = {"name": "wrong", **settings}
    changes: dict[str, Any] = (
        {"attention": {kind: named}} if kind in ("mask", "scale") else {KEYS.get(kind, kind): named}
    )
    with pytest.raises(UsageError, match=said) as refused:
        model_of(**changes)
    assert "'wrong'" in str(refused.value)
    assert "test_own_parts.py" in str(refused.value)
