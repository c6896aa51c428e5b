"""Two heads over three tokens, worked by hand, to every digit that was printed."""

import math

import torch
from torch import Tensor

from vitral.attention import Causal, MultiHeadAttention, attend, attend_traced, steps
from vitral.attention.multihead import head_matrices
from vitral.core.taps import Recorder

TOKENS = ["Life", "is", "awesome"]
X = [[1, 0, 1, 0], [0, 1, 1, 0], [1, 1, 0, 1]]
W_Q = [[[1, 0], [0, 1], [1, 0], [0, 1]], [[0, 1], [1, 0], [0, 1], [1, 0]]]
W_K = [[[1, 1], [0, 1], [1, 0], [0, 1]], [[1, 0], [1, 1], [0, 1], [1, 0]]]
W_V = [[[1, 0], [0, 1], [1, 1], [0, 1]], [[0, 1], [1, 0], [1, 0], [0, 1]]]

CLAIMED = {
    "q": [[[2, 0], [1, 1], [1, 2]], [[0, 2], [1, 1], [2, 1]]],
    "k": [[[2, 1], [1, 1], [1, 3]], [[1, 1], [1, 2], [3, 1]]],
    "v": [[[2, 1], [1, 2], [1, 2]], [[1, 1], [2, 0], [1, 2]]],
    "scores": [[[4, 2, 2], [3, 2, 4], [4, 3, 7]], [[2, 4, 2], [2, 3, 4], [3, 4, 7]]],
    "weights": [
        [[1, 0, 0], [0.670, 0.330, 0], [0.102, 0.050, 0.848]],
        [[1, 0, 0], [0.330, 0.670, 0], [0.050, 0.102, 0.848]],
    ],
    "z": [[[2, 1], [1.670, 1.330], [1.102, 1.898]], [[1, 1], [1.670, 0.330], [1.102, 1.747]]],
}
OUTPUT = [[2, 1, 1, 1], [1.670, 1.330, 1.670, 0.330], [1.102, 1.898, 1.102, 1.747]]
HALF_A_DIGIT = 0.0005


def tensor(numbers: list) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def assert_digits(result: Tensor, claimed: list) -> None:
    assert result.shape == tensor(claimed).shape
    assert float((result - tensor(claimed)).abs().max()) <= HALF_A_DIGIT


def projections() -> tuple[Tensor, Tensor, Tensor]:
    """x W of each head, with the steps' projection, which takes W transposed."""
    q, k, v = (torch.stack([steps.project(tensor(X), tensor(w).T) for w in heads]) for heads in (W_Q, W_K, W_V))
    return q, k, v


def test_every_step() -> None:
    traced = attend_traced(*projections(), mask="causal", scale="sqrt")
    for name, claimed in CLAIMED.items():
        assert_digits(getattr(traced, name), claimed)
    assert_digits(traced.scaled * math.sqrt(2), CLAIMED["scores"])
    assert torch.equal(traced.masked == -math.inf, torch.ones(3, 3).triu(1).bool().expand(2, 3, 3))
    assert_digits(steps.merge_heads(traced.z), OUTPUT)
    assert_digits(attend(*projections()), CLAIMED["z"])


def test_the_module_with_these_weights() -> None:
    attention = MultiHeadAttention(4, 2, mask=Causal(), bias=False).double()
    with torch.no_grad():
        for matrix, given in zip(head_matrices(attention).values(), (W_Q, W_K, W_V), strict=True):
            matrix.copy_(tensor(given))
        attention.out_proj.weight.copy_(torch.eye(4))
    recorder = Recorder()
    with torch.inference_mode():
        assert_digits(attention(tensor(X)[None], tap=recorder)[0], OUTPUT)
        assert_digits(attention(tensor(X)[None])[0], OUTPUT)
    for name, claimed in CLAIMED.items():
        assert_digits(recorder.kept[name][0], claimed)
    assert_digits(recorder.kept["out"][0], OUTPUT)
