"""Fixtures of the tests that call other libraries."""

import warnings
from collections.abc import Iterator

import pytest
import torch
from nanogpt import HEADS, LAYERS, WIDTH
from torch import Tensor
from torch.nn import functional


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The hub is not asked; what another library warns of is not our fault."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def by_hand(held: dict[str, Tensor], tokens: list[int]) -> Tensor:
    """The logits of nanoGPT's tensors, from their names and the formulas alone."""

    def layer(x: Tensor, name: str) -> Tensor:
        return functional.linear(x, held[f"{name}.weight"], held.get(f"{name}.bias"))

    def norm(x: Tensor, name: str) -> Tensor:
        return functional.layer_norm(x, (WIDTH,), held[f"{name}.weight"], held.get(f"{name}.bias"), 1e-5)

    time, size = len(tokens), WIDTH // HEADS
    x = held["transformer.wte.weight"][tokens] + held["transformer.wpe.weight"][:time]
    for number in range(LAYERS):
        at = f"transformer.h.{number}"
        rows = layer(norm(x, f"{at}.ln_1"), f"{at}.attn.c_attn").split(WIDTH, dim=1)
        outputs = []
        for head in range(HEADS):
            q, k, v = (part[:, head * size : (head + 1) * size] for part in rows)
            scores = (q @ k.T / size**0.5).masked_fill(torch.ones(time, time).triu(1).bool(), -torch.inf)
            outputs.append(scores.softmax(dim=1) @ v)
        x = x + layer(torch.cat(outputs, dim=1), f"{at}.attn.c_proj")
        x = x + layer(functional.gelu(layer(norm(x, f"{at}.ln_2"), f"{at}.mlp.c_fc")), f"{at}.mlp.c_proj")
    return norm(x, "transformer.ln_f") @ held["lm_head.weight"].T
