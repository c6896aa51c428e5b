"""Ablation of heads: of the heads that are named, and of no other number."""

import pytest
import torch

from vitral.core.taps import Editor
from vitral.inspection import Scored, activation_means, head_ablations, loss_by_row, replace_activations
from vitral.inspection.ablation import loss_increase
from vitral.model import ModelConfig, Transformer

CONFIG = ModelConfig.parse({"context_length": 7, "d_model": 15, "num_heads": 3, "num_layers": 2})


def means_of_z(model: Transformer, batch: Scored, layer: int) -> dict[str, torch.Tensor]:
    return activation_means(model, batch.inputs, [f"blocks.{layer}.attn.z"])


def without(layer: int, heads: list[int], means: dict[str, torch.Tensor] | None = None) -> Editor:
    return replace_activations([f"blocks.{layer}.attn.z"], means, heads)


@pytest.fixture
def model() -> Transformer:
    model = Transformer(CONFIG, 11, seed=5).eval()
    with torch.no_grad():
        for seed, name in enumerate(("out_proj", "in_proj")):
            for layer in (0, 1):
                weight = model.get_parameter(f"blocks.{layer}.attn.{name}.weight")
                weight.normal_(0, 0.5, generator=torch.Generator().manual_seed(seed))
    return model


@pytest.fixture
def batch() -> Scored:
    tokens = torch.randint(11, (5, 8), generator=torch.Generator().manual_seed(7))
    return Scored(tokens[:, :-1], tokens[:, 1:], sampled=True)


def test_a_head_set_to_zero_is_one_whose_rows_of_the_output_projection_are_zero(model, batch) -> None:
    removed = loss_by_row(model, batch, without(1, [2]))
    with torch.no_grad():
        model.get_parameter("blocks.1.attn.out_proj.weight")[:, 10:15] = 0
    assert torch.allclose(removed, loss_by_row(model, batch), atol=1e-6)


def test_every_head_is_taken_out_by_zeros_and_by_its_mean(model, batch) -> None:
    found = head_ablations(model, batch)
    before = loss_by_row(model, batch)
    assert found["loss"] == float(before.mean())
    assert [len(layer["heads"]) for layer in found["layers"]] == [3, 3]
    mean = means_of_z(model, batch, 1)
    for way, instead in (("zero", None), ("mean", mean)):
        for part, heads in ((found["layers"][1]["heads"][2], [2]), (found["layers"][1]["all"], [0, 1, 2])):
            effect = loss_increase(before, loss_by_row(model, batch, without(1, heads, instead)))
            assert part[way] == {"increase": effect[0], "error": effect[1]}
