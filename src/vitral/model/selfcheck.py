"""Does this device compute what the CPU computes? Silent wrong numbers are the worst kind."""

import copy

import torch

from vitral.core.errors import UsageError
from vitral.core.streams import torch_stream
from vitral.model.transformer import Transformer

TOLERANCE = 1e-2
"""Largest difference of logits taken for rounding; a device at fault is off by orders of magnitude more."""


def check_device(model: Transformer, device: torch.device) -> float:
    """Run one small batch on the CPU and on `device`; gives the largest difference of the logits.

    Raises:
        UsageError: the difference is beyond `TOLERANCE` times the logits' size, or not a number.
    """
    time = min(model.config.context_length, 16)
    tokens = torch.randint(model.vocab_size, (2, time), generator=torch_stream(0, "self-check"))
    reference = copy.deepcopy(model).eval().cpu()
    with torch.inference_mode():
        expected = reference(tokens)
        # Some devices have no float64, which the tables of positions are made in.
        found = reference.to(device=device, dtype=expected.dtype)(tokens.to(device)).cpu()
    difference = float((expected - found).abs().max())
    if not difference <= TOLERANCE * max(1.0, float(expected.abs().max())):
        raise UsageError(f"device {device}: logits differ from the CPU's by {difference:.3g}; use --device cpu")
    return difference
