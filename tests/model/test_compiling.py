"""The compiler reads a training pass as one graph: no part makes it give up. (It refuses an LSTM by itself.)"""

import json
import subprocess
import sys
from typing import Any

import pytest

SIZES: dict[str, Any] = {"context_length": 7, "d_model": 12, "num_layers": 2, "num_heads": 3}
VARIANTS: list[dict[str, Any]] = [
    {"dropout": {"embedding": 0.1, "weights": 0.1, "attention": 0.2, "feed_forward": 0.2}},
    {"positions": "sinusoidal", "attention": {"mask": {"name": "window", "size": 3}, "scale": "none"}, "norm": "post"},
    {"positions": "rotary", "attention": {"mask": "bidirectional"}, "num_kv_heads": 1, "feed_forward": "swiglu"},
    {"positions": "alibi", "attention": {"scale": "adaptive"}, "norm": "none", "tie_head": True},
    {"positions": "relative", "attention": {"scale": "linear"}, "norm_type": "rmsnorm", "parallel": True, "d_head": 5},
    {"positions": "none", "attention": "none", "residual": False},
    {"feed_forward": "none"},
]


ONE_GRAPH = """
import json, sys
import torch
from vitral.core.devices import precision
from vitral.model import ModelConfig, Transformer
from vitral.training.objectives import loss_function

tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6], [6, 5, 3, 5, 8, 9, 7, 9]])
batch = tokens[:, :-1], tokens[:, 1:]


def gradients(model, loss):
    model.zero_grad()
    found = loss(*batch)
    found.backward()
    return [found.detach(), *(one.grad for one in model.parameters() if one.grad is not None)]


for config in json.loads(sys.stdin.read()):
    torch.compiler.reset()
    model = Transformer(ModelConfig.parse(config), 11)
    loss = loss_function(model, masking=None)
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    with precision(torch.device("cpu"), sys.argv[1]):
        try:
            compiled(*batch).backward()  # in training, dropout included
            model.eval()
            torch.testing.assert_close(gradients(model, compiled), gradients(model, loss))
        except Exception as error:
            print(config, type(error).__name__, str(error)[:300])
"""


@pytest.mark.merge
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.full)])
def test_every_part_is_read_into_one_graph(dtype: str) -> None:
    """In a process of its own, since the compiler cannot read checks of annotations, which `make test-merge` has."""
    asked = json.dumps([SIZES | variant for variant in VARIANTS])
    result = subprocess.check_output([sys.executable, "-c", ONE_GRAPH, dtype], input=asked, text=True)
    assert result == ""
