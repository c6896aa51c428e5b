"""Ablation of heads: of the heads that are named, and of no other number."""

import math

import pytest
import torch
from torch.nn import functional

from vitral.core.taps import Editor
from vitral.inspection import Scored, activation_means, head_ablations, loss_by_row, replace_activations, targets
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


def test_the_loss_of_windows_is_the_models(model, batch) -> None:
    with torch.inference_mode():
        each = functional.cross_entropy(model(batch.inputs).mT, batch.targets, reduction="none").mean(dim=1)
    assert torch.allclose(loss_by_row(model, batch), each.double(), atol=1e-6)


def test_a_head_set_to_zero_is_one_whose_rows_of_the_output_projection_are_zero(model, batch) -> None:
    removed = loss_by_row(model, batch, without(1, [2]))
    with torch.no_grad():
        model.get_parameter("blocks.1.attn.out_proj.weight")[:, 10:15] = 0
    assert torch.allclose(removed, loss_by_row(model, batch), atol=1e-6)


def test_each_head_and_layer_is_another(model, batch) -> None:
    losses = {(layer, head): loss_by_row(model, batch, without(layer, [head])) for layer in (0, 1) for head in range(3)}
    means = {round(float(loss.mean()), 9) for loss in losses.values()}
    assert len(means) == 6
    together = loss_by_row(model, batch, without(0, [0, 1, 2]))
    with torch.no_grad():
        model.get_parameter("blocks.0.attn.out_proj.weight").zero_()
    assert torch.allclose(together, loss_by_row(model, batch), atol=1e-6)


def test_a_head_whose_output_never_changes_costs_nothing_by_its_mean(model, batch) -> None:
    with torch.no_grad():
        model.get_parameter("blocks.0.attn.in_proj.weight")[30:35] = (
            0  # values of the first head are then its bias everywhere
        )
        model.get_parameter("blocks.0.attn.in_proj.bias")[30:35] = torch.arange(5.0)
    mean = means_of_z(model, batch, 0)
    z = mean["blocks.0.attn.z"]
    assert z.shape == (1, 3, 1, 5)
    assert torch.allclose(z[0, 0, 0], torch.arange(5.0).double(), atol=1e-6)
    before = loss_by_row(model, batch)
    by_mean = loss_increase(before, loss_by_row(model, batch, without(0, [0], mean)))
    by_zero = loss_increase(before, loss_by_row(model, batch, without(0, [0])))
    assert by_mean[0] == pytest.approx(0.0, abs=1e-6)
    assert abs(by_zero[0]) > 1e-3


def test_the_model_is_left_as_it_was(model, batch) -> None:
    before = loss_by_row(model, batch)
    loss_by_row(model, batch, without(0, [0, 1]))
    assert torch.equal(before, loss_by_row(model, batch))


def test_an_increase_has_the_error_of_a_mean() -> None:
    effect = loss_increase(torch.tensor([1.0, 2.0, 3.0]).double(), torch.tensor([2.0, 2.0, 5.0]).double())
    assert effect[0] == pytest.approx(1.0)
    assert effect[1] == pytest.approx(1 / math.sqrt(3))
    assert loss_increase(torch.ones(1).double(), torch.ones(1).double())[1] == 0.0


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


def test_the_only_head_of_a_layer_is_the_layer(batch) -> None:
    model = Transformer(CONFIG.model_copy(update={"num_heads": 1}), 11, seed=5).eval()
    for layer in head_ablations(model, batch)["layers"]:
        assert layer["heads"] == [layer["all"]]


def test_passes_in_pieces_give_the_same_numbers(model, batch, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, mean = loss_by_row(model, batch), means_of_z(model, batch, 0)
    monkeypatch.setattr(targets, "MOST_BYTES", 1)
    assert torch.allclose(loss_by_row(model, batch), whole)
    assert all(torch.allclose(again, mean[name]) for name, again in means_of_z(model, batch, 0).items())
