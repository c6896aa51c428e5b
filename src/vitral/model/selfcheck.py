"""A self-check of a device: its results are those of the CPU."""

import copy

import torch

from vitral.core.errors import UsageError
from vitral.core.streams import torch_stream
from vitral.model.transformer import Transformer

TOLERANCE = 1e-2
"""Largest difference of logits attributed to rounding; a faulty device differs by orders of magnitude more."""


def check_device(model: Transformer, device: torch.device) -> float:
    """Run one small batch on the CPU and on `device`; return the largest difference of the logits.

    Raises:
        UsageError: the difference exceeds `TOLERANCE` times the size of the logits, or is NaN.
    """
    time = min(model.config.context_length, 16)
    tokens = torch.randint(model.vocab_size, (2, time), generator=torch_stream(0, "self-check"))
    source = None if model.encoder is None else tokens[:, : model.config.source_length]
    reference = copy.deepcopy(model).eval().cpu()
    with torch.inference_mode():
        expected = reference(tokens, source=source)
        # The position tables are float64, which some devices lack.
        there = reference.to(device=device, dtype=expected.dtype)
        found = there(tokens.to(device), source=None if source is None else source.to(device)).cpu()
    difference = float((expected - found).abs().max())
    if not difference <= TOLERANCE * max(1.0, float(expected.abs().max())):
        raise UsageError(
            "device {device}: logits differ from the CPU's by {difference:.3g}; use --device cpu",
            device=device,
            difference=difference,
        )
    return difference
