"""Multi-head attention: PyTorch's with the same weights, groups of heads, and its parts by name."""

from typing import Any

import pytest
import torch
from small_models import normal
from torch import nn

from vitral.attention import Bidirectional, Causal, MultiHeadAttention
from vitral.attention.multihead import head_matrices
from vitral.core.errors import UsageError
from vitral.core.names import ATTENTION_STEPS
from vitral.core.streams import torch_stream
from vitral.core.taps import Recorder

BATCH, TIME, HEADS, D_HEAD = 2, 5, 3, 7
D_MODEL = HEADS * D_HEAD


def made(d_model: int = D_MODEL, heads: int = HEADS, **options: Any) -> MultiHeadAttention:
    """A module with random numbers everywhere, biases included, in float64."""
    attention = MultiHeadAttention(d_model, heads, **{"mask": Causal(), **options}).double()
    with torch.no_grad():
        for name, parameter in attention.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch_stream(5, name), dtype=torch.float64) * 0.5)
    return attention


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_it_is_pytorchs(masked: bool, bias: bool) -> None:
    ours = made(mask=Causal() if masked else Bidirectional(), bias=bias)
    theirs = nn.MultiheadAttention(D_MODEL, HEADS, bias=bias, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.in_proj.weight)
        theirs.out_proj.weight.copy_(ours.out_proj.weight)
        if bias:
            theirs.in_proj_bias.copy_(ours.in_proj.bias)
            theirs.out_proj.bias.copy_(ours.out_proj.bias)
    x = normal(BATCH, TIME, D_MODEL)
    hidden = torch.ones(TIME, TIME).triu(1).bool() if masked else None
    expected, weights = theirs(x, x, x, attn_mask=hidden, average_attn_weights=False)
    recorder = Recorder()
    torch.testing.assert_close(ours(x), expected, rtol=0, atol=1e-13)
    torch.testing.assert_close(ours(x, tap=recorder), expected, rtol=0, atol=1e-13)
    torch.testing.assert_close(recorder.kept["weights"], weights, rtol=0, atol=1e-13)


@pytest.mark.parametrize("kv_heads", [1, 2, 3])
def test_grouped_heads_are_heads_with_repeated_weights(kv_heads: int) -> None:
    heads, d_head = 6, 5
    grouped, whole = made(30, heads, num_kv_heads=kv_heads), made(30, heads)
    with torch.no_grad():
        for own, full in ((grouped.in_proj.weight, whole.in_proj.weight), (grouped.in_proj.bias, whole.in_proj.bias)):
            q, *kv = own.split([30, kv_heads * d_head, kv_heads * d_head])
            repeated = [part.unflatten(0, (kv_heads, d_head)).repeat_interleave(heads // kv_heads, 0) for part in kv]
            full.copy_(torch.cat([q, *(part.flatten(0, 1) for part in repeated)]))
        whole.out_proj.load_state_dict(grouped.out_proj.state_dict())
    assert grouped.in_proj.weight.shape == ((heads + 2 * kv_heads) * d_head, 30)
    x = normal(BATCH, TIME, 30)
    torch.testing.assert_close(grouped(x), whole(x), rtol=0, atol=1e-13)
    torch.testing.assert_close(grouped(x, tap=Recorder()), whole(x), rtol=0, atol=1e-13)


def test_head_matrices_are_those_of_the_formulas() -> None:
    attention, x = made(heads=3, num_kv_heads=1, bias=False), normal(BATCH, TIME, D_MODEL)
    matrices = head_matrices(attention)
    for matrix, projected in zip(matrices.values(), attention.project(x), strict=True):
        torch.testing.assert_close(x[:, None] @ matrix, projected, rtol=0, atol=1e-13)
    assert [tuple(matrix.shape) for matrix in matrices.values()] == [(3, D_MODEL, 7), (1, D_MODEL, 7), (1, D_MODEL, 7)]


def test_every_step_is_recorded_and_few_leave_the_fused_execution() -> None:
    attention, x = made(scale="learned-per-head"), normal(BATCH, TIME, D_MODEL)
    recorder, ends = Recorder(), Recorder(["q", "z", "out"])
    plain = attention(x)
    torch.testing.assert_close(attention(x, tap=recorder), plain, rtol=0, atol=1e-13)
    assert list(recorder.kept) == list(ATTENTION_STEPS)
    assert torch.equal(attention(x, tap=ends), plain)
    assert list(ends.kept) == ["q", "z", "out"]


def test_rotation_and_past_reach_queries_and_keys() -> None:
    attention, x = made(), normal(BATCH, TIME, D_MODEL)
    q, k, v = attention.project(x)
    recorder = Recorder()
    attention(x, rotate=lambda heads: heads * 2, tap=recorder)
    torch.testing.assert_close(recorder.kept["q"], q * 2)
    torch.testing.assert_close(recorder.kept["k"], k * 2)
    torch.testing.assert_close(recorder.kept["v"], v)
    # With the keys and values of all positions as the past, the last position's output is the same.
    last = attention(x[:, -1:], past=lambda new_k, new_v: (k, v))
    torch.testing.assert_close(last, attention(x)[:, -1:], rtol=0, atol=1e-13)


def test_dropout_only_while_training() -> None:
    attention, x = made(dropout=0.5), normal(BATCH, TIME, D_MODEL)
    plain = made()(x)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        assert not torch.allclose(attention(x), plain)
        assert not torch.allclose(attention(x, tap=Recorder()), plain)
        torch.testing.assert_close(attention.eval()(x), plain)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"d_model": 7, "heads": 2}, "num_heads: 2 heads do not divide d_model = 7"),
        ({"d_model": 30, "heads": 6, "num_kv_heads": 4}, "num_kv_heads: 4 do not divide num_heads = 6"),
    ],
)
def test_heads_that_do_not_divide_are_refused_in_one_line(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        made(**options)
