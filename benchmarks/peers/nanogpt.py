"""nanoGPT, for those who have a checkout: its `model.py`, made of the same shape."""

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.options import LeftOut
from benchmarks.ours import LEARNING_RATE, Feed
from benchmarks.shapes import Shape

CLIP_NORM = 1.0
WEIGHT_DECAY = 0.1
BETAS = (0.9, 0.99)


@dataclass(frozen=True)
class NanoGPT:
    """The checkout.

    Attributes:
        module: its `model.py`.
    """

    module: Any

    def build(self, shape: Shape) -> Any:
        """Its GPT: one dropout for every place, a head tied to the token embedding."""
        config = self.module.GPTConfig(
            block_size=shape.context,
            vocab_size=shape.vocab,
            n_layer=shape.layers,
            n_head=shape.heads,
            n_embd=shape.d_model,
            dropout=shape.dropout,
            bias=True,
        )
        return self.module.GPT(config)

    def trainer(self, shape: Shape, feed: Feed) -> Callable[[], object]:
        """One step as in its `train.py`: gradients clipped, its own optimizer."""
        model = self.build(shape).train()
        optimizer = model.configure_optimizers(WEIGHT_DECAY, LEARNING_RATE, BETAS, "cpu")

        def step() -> None:
            inputs, targets = feed()
            _, loss = model(inputs, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            loss.item()

        return step

    def generator(self, shape: Shape, num_tokens: int) -> Callable[[], object]:
        """Its `generate`, which reads the last `context` tokens anew for each one."""
        model = self.build(shape).eval()
        return lambda: model.generate(torch.ones(1, 1, dtype=torch.long), num_tokens)


def load(folder: Path) -> NanoGPT:
    """Import `model.py` of the checkout.

    Raises:
        LeftOut: there is none.
    """
    path = folder / "model.py"
    spec = importlib.util.spec_from_file_location("nanogpt_model", path) if path.is_file() else None
    if spec is None or spec.loader is None:
        raise LeftOut(f"{folder}: no checkout of nanoGPT, there is no model.py in it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks itself up there
    spec.loader.exec_module(module)
    return NanoGPT(module)
