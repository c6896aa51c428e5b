"""Filters: what turns a model's logits into the distribution the next token is drawn from.

Each filter is a pure function from logits to logits, [batch, vocab] both; what it rules out becomes -inf. The order
in which they follow one another stands once, in `distribution`. Where several tokens are equally good, lower ids
come first, so that a filter that keeps k tokens keeps exactly k.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from vitral.core.config import Config
from vitral.core.errors import UsageError
from vitral.core.streams import numpy_stream

# Sums of float64 probabilities are off by a few 1e-16: a mass that should equal top_p must not fall short of it.
ROUNDING = 1e-12


class Sampling(Config):
    """How the next token is chosen.

    Attributes:
        temperature: logits are divided by it; 0 is greedy: the likeliest token, the lowest id of several.
        top_k: only the k likeliest tokens stay (Fan et al. 2018).
        top_p: only the likeliest tokens that together reach this mass stay (Holtzman et al. 2020).
        min_p: only tokens at least this likely, relative to the likeliest, stay (Nguyen et al. 2025).
        repetition_penalty: above 1, tokens that have occurred become less likely (Keskar et al. 2019).
    """

    temperature: Annotated[float, Field(ge=0)] = 1.0
    top_k: Annotated[int, Field(ge=1)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0)] = 1.0


GREEDY = Sampling(temperature=0.0)
PLAIN = Sampling()


def distribution(
    logits: Float[Tensor, "batch vocab"],
    sampling: Sampling = PLAIN,
    *,
    history: Int[Tensor, "batch seen"] | None = None,
    forbidden: Sequence[int] = (),
) -> Float[Tensor, "batch vocab"]:
    """The probabilities of the next token, in float64 on the CPU: the one place where the order of filters stands.

    Forbidden tokens, repetition penalty, temperature, top-k, top-p, min-p, softmax: the order of Hugging Face
    transformers. Each filter sees what the one before it has left. A temperature of 0 keeps the likeliest token alone.

    Args:
        logits: the model's, of any floating type, on any device.
        sampling: the filters' settings.
        history: the tokens read and written so far, for the repetition penalty.
        forbidden: ids that must not be chosen.

    Raises:
        UsageError: logits that are not numbers, a top_k beyond the vocabulary, or no token left.

    >>> distribution(torch.tensor([[1.0, 1.0]])).tolist()
    [[0.5, 0.5]]
    >>> distribution(torch.tensor([[2.0, 2.0, 1.0]]), GREEDY).tolist()
    [[1.0, 0.0, 0.0]]
    """
    if not len(logits):
        return logits.detach().cpu().double()
    logits = forbid(_checked(logits.detach().cpu().double()), forbidden)
    if sampling.top_k is not None:
        check_top_k(sampling.top_k, logits.shape[-1])
    if history is not None and sampling.repetition_penalty != 1:
        logits = penalise_repetition(logits, history.cpu(), sampling.repetition_penalty)
    logits = keep_top_k(logits, 1) if sampling.temperature == 0 else apply_temperature(logits, sampling.temperature)
    if sampling.top_k is not None:
        logits = keep_top_k(logits, sampling.top_k)
    if sampling.top_p is not None:
        logits = keep_top_p(logits, sampling.top_p)
    if sampling.min_p is not None:
        logits = keep_min_p(logits, sampling.min_p)
    return torch.softmax(logits, dim=-1)


def forbid(logits: Float[Tensor, "batch vocab"], tokens: Sequence[int]) -> Float[Tensor, "batch vocab"]:
    """Rule out these token ids.

    Raises:
        UsageError: an id outside the vocabulary, or nothing left to choose from.
    """
    vocab = logits.shape[-1]
    for token in tokens:
        if not 0 <= token < vocab:
            raise UsageError(f"forbidden token {token}: the vocabulary has ids 0 to {vocab - 1}")
    if tokens:
        logits = logits.index_fill(-1, _index(tuple(tokens)).to(logits.device), -math.inf)
    if float(logits.amax(dim=-1).amin()) == -math.inf:
        raise UsageError("no token is left to choose from: every one is forbidden or impossible")
    return logits


@lru_cache(maxsize=16)
def _index(tokens: tuple[int, ...]) -> Int[Tensor, " tokens"]:
    """Ids as a tensor, the same for every token that is generated."""
    with torch.inference_mode(False):  # it outlives the mode it is made in
        return torch.tensor(tokens)


def penalise_repetition(
    logits: Float[Tensor, "batch vocab"], history: Int[Tensor, "batch seen"], penalty: float
) -> Float[Tensor, "batch vocab"]:
    """Make tokens that have occurred less likely (CTRL, Keskar et al. 2019, §4.1); a penalty below 1, more likely.

    A token that has occurred, however often, has its logit divided by the penalty where it is positive; where it is
    negative it is multiplied, since dividing would make the token likelier.

    Raises:
        UsageError: a penalty that is not positive, or one so small that logits overflow.

    >>> penalise_repetition(torch.tensor([[2.0, -2.0, 1.0]]), torch.tensor([[0, 1, 1]]), 2.0).tolist()
    [[1.0, -4.0, 1.0]]
    """
    _require(penalty > 0, f"repetition_penalty: must be greater than 0, not {penalty}")
    occurred = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, history, True)
    penalised = torch.where(logits > 0, logits / penalty, logits * penalty)
    # No likelier token may become impossible or infinitely likely: 0 · inf and inf - inf are not numbers.
    overflow = penalised.isinf() & logits.isfinite() & occurred
    _require(not bool(overflow.any()), f"repetition_penalty: {penalty} makes logits overflow; choose one nearer to 1")
    return torch.where(occurred, penalised, logits)


def apply_temperature(logits: Float[Tensor, "batch vocab"], temperature: float) -> Float[Tensor, "batch vocab"]:
    """Divide by the temperature, after shifting each row's largest logit to 0 (Ackley, Hinton & Sejnowski 1985).

    The shift changes no probability and makes every positive temperature work: however small, what it leaves is the
    limit, the likeliest token, or equal shares of the likeliest tokens.

    Raises:
        UsageError: a temperature that is not positive and finite.
    """
    _require(0 < temperature < math.inf, f"temperature: must be positive and finite here, not {temperature}")
    logits = logits.double()
    shifted = logits - logits.amax(dim=-1, keepdim=True)
    return shifted if temperature == 1 else shifted / temperature


def keep_top_k(logits: Float[Tensor, "batch vocab"], k: int) -> Float[Tensor, "batch vocab"]:
    """Keep exactly the k likeliest tokens (Fan, Lewis & Dauphin 2018, §5.1); of equal ones the lower ids.

    Raises:
        UsageError: a k below 1 or beyond the vocabulary.

    >>> keep_top_k(torch.tensor([[1.0, 3.0, 1.0, 0.0]]), 2).tolist()
    [[1.0, 3.0, -inf, -inf]]
    """
    check_top_k(k, logits.shape[-1])
    least = logits.topk(k, dim=-1).values[:, -1:]
    above, equal = logits > least, logits == least
    spare = k - above.sum(dim=-1, keepdim=True)
    return logits.masked_fill(~(above | (equal & (equal.cumsum(dim=-1) <= spare))), -math.inf)


def keep_top_p(logits: Float[Tensor, "batch vocab"], p: float) -> Float[Tensor, "batch vocab"]:
    """Keep the smallest set of likeliest tokens whose mass is at least p: the nucleus (Holtzman et al. 2020, §3.1).

    At least one token stays; of equal ones the lower ids come first; p = 1 keeps everything. Masses are compared up to
    a relative 1e-12, so that ten equal tokens and p = 0.8 give eight.

    Raises:
        UsageError: a p outside 0 < p ≤ 1.
    """
    _require(0 < p <= 1, f"top_p: must be greater than 0 and at most 1, not {p}")
    if p == 1:
        return logits
    order = _descending(logits)
    masses = torch.softmax(logits.double().gather(-1, order), dim=-1)
    before = masses.cumsum(dim=-1) - masses
    return _keep(logits, order, before < p * (1 - ROUNDING))


def keep_min_p(logits: Float[Tensor, "batch vocab"], p: float) -> Float[Tensor, "batch vocab"]:
    """Keep the tokens whose probability is at least p times the likeliest one's (min-p, Nguyen et al. 2025, §3).

    At least the likeliest stays; p = 0 keeps everything; masses are compared up to a relative 1e-12.

    Raises:
        UsageError: a p outside 0 ≤ p ≤ 1.
    """
    _require(0 <= p <= 1, f"min_p: must be between 0 and 1, not {p}")
    relative = torch.exp(logits.double() - logits.double().amax(dim=-1, keepdim=True))
    return logits.masked_fill(relative < p * (1 - ROUNDING), -math.inf)


def check_top_k(k: int, vocab: int) -> None:
    """Refuse a k that a vocabulary of this size does not have.

    Raises:
        UsageError: naming k and the vocabulary's size.
    """
    _require(k >= 1, f"top_k: must be at least 1, not {k}")
    _require(k <= vocab, f"top_k: {k} is more than the vocabulary's {vocab} tokens; choose at most {vocab}, or none")


def _descending(logits: Tensor) -> Tensor:
    """Token ids from the likeliest to the least likely; of equal ones the lower first."""
    return logits.sort(dim=-1, descending=True, stable=True).indices


def _keep(logits: Tensor, order: Tensor, kept: Bool[Tensor, "batch vocab"]) -> Tensor:
    """Rule out the tokens at the places of `order` that are not kept."""
    return logits.masked_fill(~torch.zeros_like(kept).scatter(-1, order, kept), -math.inf)


def _checked(logits: Tensor) -> Tensor:
    """Refuse what no softmax can be taken of; -inf is an answer (impossible), NaN and +inf are not."""
    _require(
        float(logits.amax()) < math.inf,  # a NaN is the maximum of whatever it is among
        "the model's logits are not numbers (NaN or infinite): its weights are damaged or its training diverged; "
        "use an earlier checkpoint",
    )
    return logits


def _require(fits: bool, complaint: str) -> None:
    """Raise the complaint unless it fits."""
    if not fits:
        raise UsageError(complaint)


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
