"""The fused and the traced execution of attention have one meaning, for every mask, scale and bias."""

import importlib
import itertools
import math
from collections.abc import Callable

import pytest
import torch
from small_models import normal
from symbols import symbolic_lengths
from torch import Tensor

from vitral.attention import Bidirectional, Causal, Explicit, Mask, Padding, Prefix, Window, attend, attend_traced
from vitral.core.streams import torch_stream

Normal = Callable[..., Tensor]
BATCH, HEADS, D_HEAD, D_VALUE = 2, 3, 11, 13
SIZES = [(5, 5), (5, 7), (7, 5), (1, 7)]


def coins(*shape: int) -> Tensor:
    """A random boolean tensor; the first row of the last-but-one axis is all False."""
    tossed = torch.rand(shape, generator=torch_stream(3, "coins", *shape)) < 0.5
    tossed[..., 0, :] = False
    return tossed


def real_keys(source: int) -> Tensor:
    """The first sequence has two keys of padding in front, the second is nothing but padding."""
    return torch.stack((torch.arange(source) >= 2, torch.zeros(source, dtype=torch.bool)))


MASKS: dict[str, Callable[[int, int], Mask | Tensor | str | None]] = {
    "causal": lambda time, source: "causal",
    "none": lambda time, source: None,
    "prefix": lambda time, source: Prefix(length=3),
    "window": lambda time, source: Window(size=2),
    "padding": lambda time, source: Padding(real_keys(source)),
    "explicit": lambda time, source: Explicit(coins(BATCH, HEADS, time, source)),
    "tensor": lambda time, source: coins(time, source),
    "row": lambda time, source: Explicit(coins(2, source)[1:]),
    "nothing": lambda time, source: torch.zeros(time, source, dtype=torch.bool),
    "causal and padding": lambda time, source: Causal() & Padding(real_keys(source)),
    "window or explicit": lambda time, source: Window(size=2) | Explicit(coins(HEADS, time, source)),
    "prefix and window or padding": lambda time, source: (
        (Prefix(length=3) & Window(size=2)) | Padding(real_keys(source))
    ),
}
SCALES: dict[str, Callable[[Normal, int], str | float | Tensor]] = {
    "none": lambda normal, time: "none",
    "sqrt": lambda normal, time: "sqrt",
    "linear": lambda normal, time: "linear",
    "constant": lambda normal, time: -0.37,
    "adaptive": lambda normal, time: "adaptive",
    "one learned": lambda normal, time: normal(1, 1, 1, purpose="scale"),
    "per head": lambda normal, time: normal(HEADS, 1, 1, purpose="scale"),
    "per query": lambda normal, time: normal(BATCH, HEADS, time, 1, purpose="scale"),
}
BIASES: dict[str, Callable[[Normal, int, int], Tensor | None]] = {
    "none": lambda normal, time, source: None,
    "alibi": lambda normal, time, source: (
        -(0.5 ** torch.arange(1.0, 1 + HEADS, dtype=torch.float64))[:, None, None]
        * (torch.arange(time)[:, None] + source - time - torch.arange(source)).abs()
    ),
    "relative": lambda normal, time, source: normal(HEADS, time, source, purpose="bias"),
}


def both_ways(mask: Mask | Tensor | str | None, inputs: dict[str, Tensor], given: dict) -> list[list[Tensor]]:
    """Outputs and gradients of the two executions: z, then what arrives at every input that is a tensor."""
    results = []
    for execution in (attend, lambda *a, **k: attend_traced(*a, **k).z):
        leaves = {name: tensor.clone().requires_grad_() for name, tensor in inputs.items()}
        others = {name: value for name, value in given.items() if name not in leaves}
        q, k, v = (leaves.pop(name) for name in "qkv")
        z = execution(q, k, v, mask=mask, **leaves, **others)
        direction = torch.randn(z.shape, generator=torch_stream(1, "direction"), dtype=torch.float64).to(z.dtype)
        gradients = torch.autograd.grad((z * direction).sum(), [q, k, v, *leaves.values()])
        results.append([z.detach(), *gradients])
    return results


@pytest.mark.parametrize(("time", "source"), SIZES)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-4)], ids=["f64", "f32"])
def test_fused_is_traced(mask: str, time: int, source: int, dtype: torch.dtype, tolerance: float) -> None:
    shapes = {"q": (time, D_HEAD), "k": (source, D_HEAD), "v": (source, D_VALUE)}
    tensors = {name: normal(BATCH, HEADS, *shape, purpose=name, dtype=dtype) for name, shape in shapes.items()}
    for scale, bias in itertools.product(SCALES, BIASES):
        given = {"scale": SCALES[scale](normal, time), "bias": BIASES[bias](normal, time, source)}
        given = {name: v.to(dtype) if isinstance(v, Tensor) else v for name, v in given.items()}
        inputs = tensors | {name: value for name, value in given.items() if isinstance(value, Tensor)}
        fused, traced = both_ways(MASKS[mask](time, source), inputs, given)
        for name, one, other in zip(["z", *inputs], fused, traced, strict=True):
            assert one.isfinite().all(), (scale, bias, name)
            # The adaptive scale of two nearly equal scores is large, and what it does to them cancels.
            reach = max(1.0, float(other.abs().max())) * (100 if scale == "adaptive" else 1)
            assert float((one - other).abs().max()) <= tolerance * reach, (scale, bias, name)
            assert one.dtype == other.dtype == dtype


@pytest.mark.parametrize("plain_up_to", [0, 512], ids=["kernel", "plain products"])
@pytest.mark.parametrize("mask", MASKS)
def test_in_bfloat16_it_is_the_same_to_rounding(mask: str, plain_up_to: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("vitral.attention.executions")
    monkeypatch.setattr(module, "PLAIN_UP_TO", plain_up_to)
    for (time, source), scale, bias in itertools.product(SIZES, ("sqrt", "constant", "per head"), BIASES):
        shapes = {"q": (time, D_HEAD), "k": (source, D_HEAD), "v": (source, D_VALUE)}
        rounded = {name: normal(BATCH, HEADS, *shape, purpose=name).bfloat16() for name, shape in shapes.items()}
        given = {"scale": SCALES[scale](normal, time), "bias": BIASES[bias](normal, time, source)}
        chosen = MASKS[mask](time, source)
        result = attend(*rounded.values(), mask=chosen, **given)
        exact = attend(*(tensor.double() for tensor in rounded.values()), mask=chosen, **given)
        assert result.dtype == torch.bfloat16
        torch.testing.assert_close(result.double(), exact, rtol=0, atol=0.06)


def test_keys_of_a_cache_may_be_more_precise_than_queries_under_autocast() -> None:
    q, k, v = (normal(1, 2, 3, 5, purpose=name, dtype=torch.float32) for name in "qkv")
    with torch.autocast("cpu", torch.bfloat16):
        result = attend(q.bfloat16(), k, v)
    torch.testing.assert_close(result.float(), attend(q, k, v), rtol=0, atol=0.06)


@pytest.mark.parametrize("mask", MASKS)
def test_the_matrix_form_is_the_loop_over_tokens(mask: str) -> None:
    time, source, factor = 5, 7, 0.43
    q, k, v = (normal(BATCH, HEADS, *s, purpose=str(s)) for s in ((time, 3), (source, 3), (source, 2)))
    chosen = MASKS[mask](time, source)
    traced = attend_traced(q, k, v, mask=chosen, scale=factor)
    for b, h, i in itertools.product(range(BATCH), range(HEADS), range(time)):
        allowed = traced.masked[b, h, i] > -math.inf
        seen = [j for j in range(source) if allowed[j]]
        powers = {j: math.exp(factor * float(q[b, h, i] @ k[b, h, j])) for j in seen}
        alone = sum((powers[j] / sum(powers.values()) * v[b, h, j] for j in seen), torch.zeros_like(v[b, h, 0]))
        torch.testing.assert_close(traced.z[b, h, i], alone, rtol=0, atol=1e-14)


@pytest.mark.parametrize("bias", [None, "finite"])
@pytest.mark.parametrize("scale", ["sqrt", "adaptive", 0.7])
def test_a_row_without_keys_gives_zeros_and_finite_gradients(scale: str | float, bias: str | None) -> None:
    allowed = torch.tensor([[True, False, True], [False, False, False]])
    added = None if bias is None else normal(2, 3, purpose="bias")
    q, k, v = (normal(*s, purpose=str(s)).requires_grad_() for s in ((2, 5), (3, 5), (3, 7)))
    steps = attend_traced(q, k, v, mask=allowed, scale=scale, bias=added)
    fused = attend(q, k, v, mask=allowed, scale=scale, bias=added)
    assert steps.weights[1].tolist() == [0, 0, 0]
    for z in (steps.z, fused):
        assert z[1].tolist() == [0] * 7
        assert z[0].abs().min() > 0
        gradients = torch.autograd.grad(z.square().sum(), (q, k, v), retain_graph=True)
        assert all(gradient.isfinite().all() for gradient in gradients)
        assert gradients[0][1].tolist() == [0] * 5  # nothing reaches the query that sees nothing
        assert gradients[2][1].tolist() == [0] * 7  # nor a value that nobody sees


@pytest.mark.parametrize("execution", [attend, lambda *a, **k: attend_traced(*a, **k).z], ids=["fused", "traced"])
class TestShapes:
    """What either execution makes of its inputs' shapes."""

    def test_leading_axes_may_be_missing(self, execution: Callable[..., Tensor]) -> None:
        q, k, v = normal(2, 3, 5, 11, purpose="q"), normal(2, 3, 7, 11, purpose="k"), normal(2, 3, 7, 13, purpose="v")
        whole = execution(q, k, v, scale="adaptive")
        for b, h in itertools.product(range(2), range(3)):
            torch.testing.assert_close(execution(q[b, h], k[b, h], v[b, h], scale="adaptive"), whole[b, h])
        torch.testing.assert_close(execution(q[1], k[1], v[1], scale="adaptive"), whole[1])

    def test_queries_are_the_last_positions(self, execution: Callable[..., Tensor]) -> None:
        q, k, v = (normal(2, 3, 7, 5, purpose=name) for name in "qkv")
        for mask in (Causal(), Prefix(length=3), Window(size=2), Bidirectional()):
            whole = execution(q, k, v, mask=mask)
            torch.testing.assert_close(execution(q[..., 5:, :], k, v, mask=mask), whole[..., 5:, :])

    def test_dropout_keeps_or_drops_whole_weights(self, execution: Callable[..., Tensor]) -> None:
        # Equal keys: weights 1/4. Half of them are dropped and the others doubled: z counts in halves.
        q, k, v = normal(2, 3, 101, 5), torch.zeros(2, 3, 4, 5).double(), torch.ones(2, 3, 4, 1).double()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            z = execution(q, k, v, mask=None, dropout=0.5)
        seen = sorted({round(value, 9) for value in z.flatten().tolist()})
        assert seen == [0, 0.5, 1, 1.5, 2]
        assert abs(float(z.mean()) - 1) < 0.1


BAD: dict[str, tuple[dict, str]] = {
    "width of keys": ({"k": (2, 3, 7, 13)}, "do not fit|expected Float"),
    "batch": ({"k": (3, 3, 7, 11), "v": (3, 3, 7, 11)}, "do not fit|expected Float"),
    "mask's name": ({"mask": "casual"}, r"mask 'casual': did you mean 'causal'\?"),
    "mask without number": ({"mask": "prefix"}, r"mask 'prefix': prefix needs a number, as Prefix\(length=8\)"),
    "mask's type": ({"mask": torch.ones(5, 7)}, r"expected a boolean tensor .* not torch\.float32"),
    "mask's rows": ({"mask": torch.ones(3, 7).bool()}, r"\(3, 7\) does not fit 5 queries and 7 keys"),
    "mask's heads": ({"mask": torch.ones(2, 5, 7).bool()}, r"mask: shape \(2, 5, 7\) does not broadcast"),
    "padding's keys": ({"mask": Padding(torch.ones(2, 5).bool())}, r"padding mask: shape \(2, 5\) is not \[batch, 7\]"),
    "scale's name": ({"scale": "sqr"}, r"scale 'sqr': did you mean 'sqrt'\?"),
    "learned": ({"scale": "learned"}, "scale 'learned' has parameters"),
    "not a number": ({"scale": math.nan}, "scale: nan is not finite"),
    "scale per key": ({"scale": torch.ones(11)}, r"scale: shape \(11,\) does not broadcast to \(2, 3, 5, 1\)"),
    "bias": ({"bias": torch.ones(2, 5, 7)}, r"bias: shape \(2, 5, 7\) does not broadcast to scores of \(2, 3, 5, 7\)"),
}


@pytest.mark.parametrize("execution", [attend, attend_traced])
@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_refused_in_one_line(name: str, execution: Callable[..., object]) -> None:
    changes, complaint = BAD[name]
    shapes = {"q": (2, 3, 5, 11), "k": (2, 3, 7, 11), "v": (2, 3, 7, 11)}
    tensors = [torch.zeros(changes.get(name, shape)) for name, shape in shapes.items()]
    with symbolic_lengths(), pytest.raises(ValueError, match=complaint) as refused:
        execution(*tensors, **{key: value for key, value in changes.items() if key not in shapes})
    assert refused.typename == "UsageError"
    assert "\n" not in str(refused.value)
