"""On a GPU the numbers are the processor's, and a run is a function of its configuration as it is there."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from variants import GENERATED, TOKENIZER, made

from tests.training.conftest import Configured, bytes_of, cut, measured_in
from vitral.model import Transformer, next_token_loss
from vitral.training import resume, train

pytestmark = [pytest.mark.merge, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")]

GPU = torch.device("cuda")


def drawn(batch: int = 2, time: int = 13) -> Tensor:
    """Random ids, [batch, time]."""
    return torch.randint(TOKENIZER.vocab_size, (batch, time), generator=torch.Generator().manual_seed(7))


def gradients(model: Transformer, tokens: Tensor) -> dict[str, Tensor]:
    """The gradient of each parameter, on the processor."""
    next_token_loss(model(tokens[:, :-1]), tokens[:, 1:], model.mask).backward()
    return {name: one.grad.cpu() for name, one in model.named_parameters() if one.grad is not None}


@pytest.mark.parametrize("name", GENERATED)
def test_logits_and_gradients_are_the_processors(name: str) -> None:
    here, there, tokens = made(name).double(), made(name).double().to(GPU), drawn()
    with torch.inference_mode():
        torch.testing.assert_close(there(tokens.to(GPU)).cpu(), here(tokens), rtol=1e-9, atol=1e-9)
    if here.config.num_layers:
        torch.testing.assert_close(gradients(there, tokens.to(GPU)), gradients(here, tokens), rtol=1e-8, atol=1e-8)


RECIPES: dict[str, dict[str, Any]] = {
    "float32": {},
    "batches of a step added one after another": {"reduction": "fast"},
    "bfloat16": {"dtype": "bfloat16"},
    "muon": {"optimizer": {"name": "muon"}, "dtype": "bfloat16"},
    "one batch a step": {"accumulation": 1},
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_resumed_is_straight(recipe: str, configured: Configured, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"device": "cuda", "checkpoint_every": 1} | RECIPES[recipe]
    straight = train(configured(training=changes), tmp_path / "straight")
    resumed = resume(cut(straight.path, tmp_path / "resumed"))
    for step in (9, 20):
        assert bytes_of(resumed, step) == bytes_of(straight, step)
    assert measured_in(resumed) == measured_in(straight)
