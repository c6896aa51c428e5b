"""Taking heads out: of the model as it is, and of no other number."""

import math

import pytest
import torch
from torch.nn import functional

from vitral.inspection import ablation, head_ablations, loss_by_window, loss_increase, mean_of_z, remove_heads
from vitral.model import ModelConfig, Transformer

CONFIG = ModelConfig.parse({"context_length": 7, "d_model": 15, "num_heads": 3, "num_layers": 2})


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
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(11, (5, 8), generator=torch.Generator().manual_seed(7))
    return tokens[:, :-1], tokens[:, 1:]


def test_the_loss_of_windows_is_the_models(model, batch) -> None:
    inputs, targets = batch
    with torch.inference_mode():
        each = functional.cross_entropy(model(inputs).mT, targets, reduction="none").mean(dim=1)
    assert torch.allclose(loss_by_window(model, inputs, targets), each.double(), atol=1e-6)


def test_a_head_set_to_zero_is_one_whose_rows_of_the_output_projection_are_zero(model, batch) -> None:
    removed = loss_by_window(model, batch[0], batch[1], remove_heads(1, [2]))
    with torch.no_grad():
        model.get_parameter("blocks.1.attn.out_proj.weight")[:, 10:15] = 0
    assert torch.allclose(removed, loss_by_window(model, batch[0], batch[1]), atol=1e-6)


def test_each_head_and_layer_is_another(model, batch) -> None:
    losses = {
        (layer, head): loss_by_window(model, batch[0], batch[1], remove_heads(layer, [head]))
        for layer in (0, 1)
        for head in range(3)
    }
    means = {round(float(loss.mean()), 9) for loss in losses.values()}
    assert len(means) == 6
    together = loss_by_window(model, batch[0], batch[1], remove_heads(0, [0, 1, 2]))
    with torch.no_grad():
        model.get_parameter("blocks.0.attn.out_proj.weight").zero_()
    assert torch.allclose(together, loss_by_window(model, batch[0], batch[1]), atol=1e-6)


def test_a_head_whose_output_never_changes_costs_nothing_by_its_mean(model, batch) -> None:
    with torch.no_grad():
        model.get_parameter("blocks.0.attn.in_proj.weight")[30:35] = (
            0  # values of the first head are then its bias everywhere
        )
        model.get_parameter("blocks.0.attn.in_proj.bias")[30:35] = torch.arange(5.0)
    mean = mean_of_z(model, batch[0], 0)
    assert mean.shape == (3, 5)
    assert torch.allclose(mean[0], torch.arange(5.0), atol=1e-6)
    before = loss_by_window(model, batch[0], batch[1])
    by_mean = loss_increase(before, loss_by_window(model, batch[0], batch[1], remove_heads(0, [0], mean)))
    by_zero = loss_increase(before, loss_by_window(model, batch[0], batch[1], remove_heads(0, [0])))
    assert by_mean.mean == pytest.approx(0.0, abs=1e-6)
    assert abs(by_zero.mean) > 1e-3


def test_the_model_is_left_as_it_was(model, batch) -> None:
    before = loss_by_window(model, batch[0], batch[1])
    loss_by_window(model, batch[0], batch[1], remove_heads(0, [0, 1]))
    assert torch.equal(before, loss_by_window(model, batch[0], batch[1]))


def test_an_increase_has_the_error_of_a_mean() -> None:
    effect = loss_increase(torch.tensor([1.0, 2.0, 3.0]).double(), torch.tensor([2.0, 2.0, 5.0]).double())
    assert effect.mean == pytest.approx(1.0)
    assert effect.error == pytest.approx(1 / math.sqrt(3))
    assert loss_increase(torch.ones(1).double(), torch.ones(1).double()).error == 0.0


def test_every_head_is_taken_out_by_zeros_and_by_its_mean(model, batch) -> None:
    found = head_ablations(model, *batch)
    inputs, targets = batch
    before = loss_by_window(model, inputs, targets)
    assert found["loss"] == float(before.mean())
    assert [len(layer["heads"]) for layer in found["layers"]] == [3, 3]
    mean = mean_of_z(model, batch[0], 1)
    for way, instead in (("zero", None), ("mean", mean)):
        for part, heads in ((found["layers"][1]["heads"][2], [2]), (found["layers"][1]["all"], [0, 1, 2])):
            effect = loss_increase(before, loss_by_window(model, inputs, targets, remove_heads(1, heads, instead)))
            assert part[way] == {"increase": effect.mean, "error": effect.error}


def test_the_only_head_of_a_layer_is_the_layer(batch) -> None:
    model = Transformer(CONFIG.model_copy(update={"num_heads": 1}), 11, seed=5).eval()
    for layer in head_ablations(model, *batch)["layers"]:
        assert layer["heads"] == [layer["all"]]


def test_passes_in_pieces_give_the_same_numbers(model, batch, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, mean = loss_by_window(model, *batch), mean_of_z(model, batch[0], 0)
    monkeypatch.setattr(ablation, "MOST_BYTES", 1)
    assert torch.allclose(loss_by_window(model, *batch), whole)
    assert torch.allclose(mean_of_z(model, batch[0], 0), mean)
