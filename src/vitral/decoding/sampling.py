"""Sampling: from logits through filters to the distribution of the next token, and the choice of a token.

Each filter is a pure function of logits [batch, vocab] that sets excluded tokens to -inf; `distribution` applies the
filters in order. Ties go to the lower ids, so a filter that keeps k tokens keeps exactly k.

One uniform random number per sample and position turns probabilities into a choice. The t-th number of sample i under
seed s comes from a stream keyed by (s, "sampling", i), so a sample's text does not depend on its batch, on the cache or
on other samples.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from vitral.core.config import Config
from vitral.core.errors import UsageError
from vitral.core.graphs import is_tracing
from vitral.core.language import N_
from vitral.core.streams import numpy_stream

# Sums of float64 probabilities have errors of about 1e-16: a mass that should equal top_p must not fall below it.
ROUNDING = 1e-12


class Sampling(Config):
    """Sampling settings.

    Attributes:
        temperature: divisor of the logits; 0 is greedy decoding (ties go to the lowest id).
        top_k: keep the k most probable tokens (Fan et al. 2018).
        top_p: nucleus sampling: keep the smallest set with total probability p (Holtzman et al. 2020).
        min_p: drop tokens below p times the top probability (Nguyen et al. 2025).
        repetition_penalty: penalize repeated tokens (1 = off) (Keskar et al. 2019).
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
    """The probabilities of the next token after all filters, in float64 on the CPU.

    The order is that of Hugging Face transformers: forbidden tokens, repetition penalty, temperature, top-k, top-p,
    min-p, softmax. Each filter works on the output of the previous one. Temperature 0 keeps only the top token.

    Args:
        logits: logits of any floating type, on any device.
        sampling: the sampling settings.
        history: all tokens so far, for the repetition penalty.
        forbidden: ids that must not be chosen.

    Raises:
        UsageError: the logits are NaN or infinite, top_k exceeds the vocabulary, or no token is left.

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
    """Exclude these token ids.

    Raises:
        UsageError: an id is outside the vocabulary, or no token is left.
    """
    vocab = logits.shape[-1]
    for token in tokens:
        if not 0 <= token < vocab:
            raise UsageError("forbidden token {token}: the vocabulary has ids 0 to {last}", token=token, last=vocab - 1)
    if tokens:
        logits = logits.index_fill(-1, torch.tensor(tokens, device=logits.device), -math.inf)
    if not is_tracing() and float(logits.amax(dim=-1).amin()) == -math.inf:
        raise UsageError("no token is left to choose from: every one is forbidden or impossible")
    return logits


def penalise_repetition(
    logits: Float[Tensor, "batch vocab"], history: Int[Tensor, "batch seen"], penalty: float
) -> Float[Tensor, "batch vocab"]:
    """Reduce the probability of tokens in the history (CTRL, Keskar et al. 2019, §4.1); a penalty below 1 raises it.

    The logit of a token in the history is divided by the penalty if positive and multiplied by it if negative.

    Raises:
        UsageError: the penalty is not positive, or so small that logits overflow.

    >>> penalise_repetition(torch.tensor([[2.0, -2.0, 1.0]]), torch.tensor([[0, 1, 1]]), 2.0).tolist()
    [[1.0, -4.0, 1.0]]
    """
    _require(
        not isinstance(penalty, bool) and 0 < penalty < math.inf,
        N_("repetition_penalty: must be greater than 0, not {penalty}"),
        penalty=penalty,
    )
    occurred = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, history, True)
    penalised = torch.where(logits > 0, logits / penalty, logits * penalty)
    # Overflow must not make a token impossible or certain: 0 · inf and inf - inf are NaN.
    overflow = penalised.isinf() & logits.isfinite() & occurred
    _require(
        not bool(overflow.any()),
        N_("repetition_penalty: {penalty} makes logits overflow; choose one nearer to 1"),
        penalty=penalty,
    )
    return torch.where(occurred, penalised, logits)


def apply_temperature(logits: Float[Tensor, "batch vocab"], temperature: float) -> Float[Tensor, "batch vocab"]:
    """Divide by the temperature, after shifting each row's largest logit to 0 (Ackley, Hinton & Sejnowski 1985).

    The shift changes no probability and makes every positive temperature work: as it approaches 0, the result
    approaches the top token, or equal shares of tied top tokens.

    Raises:
        UsageError: a temperature that is not positive and finite.
    """
    _require(
        not isinstance(temperature, bool) and 0 < temperature < math.inf,
        N_("temperature: must be positive and finite here, not {temperature}"),
        temperature=temperature,
    )
    logits = logits.double()
    shifted = logits - logits.amax(dim=-1, keepdim=True)
    return shifted if temperature == 1 else shifted / temperature


def keep_top_k(logits: Float[Tensor, "batch vocab"], k: int) -> Float[Tensor, "batch vocab"]:
    """Keep exactly the k most probable tokens (Fan, Lewis & Dauphin 2018, §5.1); ties go to the lower ids.

    Raises:
        UsageError: k is below 1 or above the vocabulary size.

    >>> keep_top_k(torch.tensor([[1.0, 3.0, 1.0, 0.0]]), 2).tolist()
    [[1.0, 3.0, -inf, -inf]]
    """
    check_top_k(k, logits.shape[-1])
    least = logits.topk(k, dim=-1).values[:, -1:]
    above, equal = logits > least, logits == least
    spare = k - above.sum(dim=-1, keepdim=True)
    return logits.masked_fill(~(above | (equal & (equal.cumsum(dim=-1) <= spare))), -math.inf)


def keep_top_p(logits: Float[Tensor, "batch vocab"], p: float) -> Float[Tensor, "batch vocab"]:
    """Nucleus sampling: keep the smallest set with total probability at least p (Holtzman et al. 2020, §3.1).

    At least one token stays; ties go to the lower ids; p = 1 keeps everything. Probabilities are compared up to a
    relative 1e-12, so that ten equal tokens and p = 0.8 give eight.

    Raises:
        UsageError: p is outside 0 < p ≤ 1.
    """
    _require(not isinstance(p, bool) and 0 < p <= 1, N_("top_p: must be greater than 0 and at most 1, not {p}"), p=p)
    if p == 1:
        return logits
    order = logits.sort(dim=-1, descending=True, stable=True).indices
    masses = torch.softmax(logits.double().gather(-1, order), dim=-1)
    before = masses.cumsum(dim=-1) - masses
    kept = before < p * (1 - ROUNDING)
    return logits.masked_fill(~torch.zeros_like(kept).scatter(-1, order, kept), -math.inf)


def keep_min_p(logits: Float[Tensor, "batch vocab"], p: float) -> Float[Tensor, "batch vocab"]:
    """Drop tokens below p times the top probability (min-p, Nguyen et al. 2025, §3).

    At least the top token stays; p = 0 keeps everything; probabilities are compared up to a relative 1e-12.

    Raises:
        UsageError: p is outside 0 ≤ p ≤ 1.
    """
    _require(not isinstance(p, bool) and 0 <= p <= 1, N_("min_p: must be between 0 and 1, not {p}"), p=p)
    relative = torch.exp(logits.double() - logits.double().amax(dim=-1, keepdim=True))
    return logits.masked_fill(relative < p * (1 - ROUNDING), -math.inf)


def check_top_k(k: int, vocab: int) -> None:
    """Check k against the size of the vocabulary.

    Raises:
        UsageError: k is below 1 or above the vocabulary size; names both.
    """
    _require(not isinstance(k, bool) and k >= 1, N_("top_k: must be at least 1, not {k}"), k=k)
    _require(
        k <= vocab,
        N_("top_k: {k} is more than the vocabulary's {vocab} tokens; choose at most {vocab}, or none"),
        k=k,
        vocab=vocab,
    )


def _checked(logits: Tensor) -> Tensor:
    """Refuse NaN and +inf; -inf is valid (an impossible token). A graph has no numbers to look at (`core.graphs`)."""
    _require(
        is_tracing() or float(logits.amax()) < math.inf,  # the maximum propagates NaN
        N_(
            "the model's logits are NaN or infinite: its weights are damaged or its training diverged; use "
            "an earlier checkpoint"
        ),
    )
    return logits


def _require(fits: bool, complaint: str, **values: Any) -> None:
    if not fits:
        raise UsageError(complaint, **values)


def uniforms(seed: int, sample: int) -> np.random.Generator:
    """The random stream of a sample: its t-th `random()`, uniform on [0, 1), chooses the t-th token."""
    return numpy_stream(seed, "sampling", sample)


def choose(probabilities: Float[Tensor, "batch vocab"], numbers: Float[Tensor, " batch"]) -> Int[Tensor, " batch"]:
    """The token at which each row's cumulative probability exceeds its number (inverse transform sampling).

        token = min {w : p(0) + … + p(w) > u · total}

    Computed in float64; a token of probability 0 is never chosen.

    >>> choose(torch.tensor([[0.5, 0.0, 0.5]]), torch.tensor([0.5])).tolist()
    [2]
    """
    cumulative = probabilities.double().cumsum(dim=-1)
    # A float64 below 1 times the total rounds to less than the total, so such a token always exists.
    return torch.searchsorted(cumulative, numbers.double()[:, None] * cumulative[:, -1:], right=True)[:, 0]
