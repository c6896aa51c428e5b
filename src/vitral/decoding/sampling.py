"""Drawing tokens: one uniform number per sample and position turns probabilities into a choice.

The t-th number of sample i under seed s comes from a stream keyed by (s, "sampling", i). So a sample's text depends
on nothing that happens beside it: not on the batch it runs in, not on the cache, not on how often one samples.
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitral.core.streams import numpy_stream


def uniforms(seed: int, sample: int) -> np.random.Generator:
    """The stream whose t-th `random()` chooses the t-th token of this sample, uniform on [0, 1)."""
    return numpy_stream(seed, "sampling", sample)


def choose(probabilities: Float[Tensor, "batch vocab"], numbers: Float[Tensor, " batch"]) -> Int[Tensor, " batch"]:
    """The token at which each row's cumulative mass passes its number: the inverse of the distribution function.

        token = min {w : p(0) + … + p(w) > u · total}

    Computed in float64; a token of probability 0 is never chosen, whatever u in [0, 1) is.

    >>> choose(torch.tensor([[0.5, 0.0, 0.5]]), torch.tensor([0.5])).tolist()
    [2]
    """
    cumulative = probabilities.double().cumsum(dim=-1)
    # A float64 below 1 times the total rounds to less than the total, so there always is a token that passes it.
    return torch.searchsorted(cumulative, numbers.double()[:, None] * cumulative[:, -1:], right=True)[:, 0]
