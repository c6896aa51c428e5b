"""Expressions: text to tree to value; everything outside the language is refused before anything is computed."""

import pytest
import torch

from vitral.core.errors import UsageError
from vitral.explanation.expressions import compute, parse, references, shape_of

Q = torch.tensor([[1.0, 2.0], [0.0, 1.0], [3.0, 1.0]], dtype=torch.float64)
V = torch.tensor([[1.0, 0.0, 2.0, 4.0, 1.0]] * 3, dtype=torch.float64).cumsum(dim=0)


def test_attention_in_one_line() -> None:
    tree = parse("softmax(q @ k.T / sqrt(2)) @ v")
    expected = torch.softmax(Q @ Q.T / 2**0.5, dim=-1) @ V
    assert torch.allclose(compute(tree, {"q": Q, "k": Q, "v": V}), expected, atol=1e-15)
    assert references(tree) == ("q", "k", "v")
    assert shape_of(tree, {"q": (3, 2), "k": (3, 2), "v": (3, 5)}) == (3, 5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sum(v, axis=0)", V.sum(dim=0, keepdim=True)),
        ("v[1, 2:4]", V[1:2, 2:4]),
        ("v[-1]", V[-1:]),
        ("-log(q + 1) ** 2", -(torch.log(Q + 1) ** 2)),
        ("layernorm(v)", torch.nn.functional.layer_norm(V, (5,))),
        ("where(less(q, 2), q, -inf)", torch.where(Q < 2, Q, -torch.inf)),
        ("mlp.pre * 2", Q * 2),
    ],
)
def test_values(text: str, expected: torch.Tensor) -> None:
    made = compute(parse(text), {"q": Q, "v": V, "mlp.pre": Q})
    torch.testing.assert_close(made, expected, atol=1e-14, rtol=0)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "q.__class__",
        "(lambda: 1)()",
        "[x for x in q]",
        "open('file')",
        "'text'",
        "q if q else q",
        "q; q",
        "f(q)",
        "softmax(q, axis=1.5)",
        "softmax(q, wrong=1)",
        "q[0:4:2]",
        "q[True]",
        "q @",
        "True",
        "1e999",
        "9**9**9**9 @ q",
        "(" * 900 + "q" + ")" * 900,
        "q" + "+q" * 150,
        "q + " * 700 + "q",
        "",
        "\x00",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        shape_of(parse(text), {"q": Q.shape})


def test_large_computations_are_refused_before_they_are_computed() -> None:
    big = {"a": (1000, 1), "b": (1, 1001)}
    with pytest.raises(UsageError):
        shape_of(parse("a @ b @ a"), big)
