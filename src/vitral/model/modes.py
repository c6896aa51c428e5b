"""Training mode and evaluation mode."""

from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(module: nn.Module) -> Generator[None]:
    """Run a module without dropout and gradients inside the block, then put it back into its former mode."""
    was_training = module.training
    if was_training:
        module.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        if was_training:
            module.train()
