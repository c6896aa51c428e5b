"""The sheets of the gallery with other numbers."""

import math
import random

import torch
from torch import Tensor

from vitral.explanation.sheet import Sheet


def changed(sheet: Sheet, seed: int, size: float = 2) -> dict[str, Tensor]:
    """The given numbers, a few of them drawn again, of about this size; shares stay shares."""
    draw = random.Random(seed)
    given = {name: sheet.values[name].clone(memory_format=torch.contiguous_format) for name in sheet.given_names}
    for name, value in given.items():
        if name == "target":  # a word: its index
            continue
        for _ in range(1 + value.numel() // 3):
            flat = value.view(-1)
            index = draw.randrange(len(flat))
            if math.isfinite(float(flat[index])):
                flat[index] = (
                    draw.uniform(0.01, 1) if name in ("probabilities", "next", "weights") else draw.gauss(0, size)
                )
    return given


def recomputed(sheet: Sheet, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """All quantities from other given numbers; a second name of a quantity, as of the stream, follows it."""
    values = dict(given)
    for quantity in sheet.quantities:
        values[quantity.name] = quantity.make(values)
        values |= {each: values[name] for each, name in sheet.aliases.items() if name == quantity.name}
    return values
