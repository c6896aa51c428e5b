"""The loss by the amount of context: how much a model gains from tokens that are far back (Khandelwal et al. 2018, §4).

Every target is predicted from 1, 2, 3-4, 5-8, … tokens before it, the nearest ones, and the targets are the same at
every amount: what a model cannot use is what it does not lose. A model reads windows of 2n tokens, n apart, and is
scored in their second halves, where n + 1 to 2n tokens precede a target. Windows begin as in training, with position 0
and, in a recurrent model, a state of zeros.
"""

from typing import Any

import numpy as np

from vitral.core.checked import Count, checked
from vitral.core.errors import UsageError
from vitral.data import Split
from vitral.inspection.positions import window_nats
from vitral.inspection.windows import window_starts
from vitral.model import Transformer

NEAR = 0.01
"""A context is long enough if a target's loss is at most this share above the loss with the longest one."""


@checked(first=True)
def loss_by_context(model: Transformer, split: Split, *, most_targets: Count) -> dict[str, Any]:
    """The loss on the same targets from ever more tokens of context, in nats per token.

    Args:
        model: in evaluation mode, trained to predict next tokens.
        split: the tokens, over which the targets are spread evenly in runs of half the longest context.
        most_targets: about the number of targets.

    Returns:
        `context`, the largest amounts of context (1, 2, 4, …, at most the context length); `nats`, the mean loss at
        each; `targets`, their number; `effective`, see `effective_context`.

    Raises:
        UsageError: the model is not causal, or the split has no segment of its longest context.
    """
    if model.mask is not None and model.mask.first_target() != 0:
        raise UsageError("loss_by_context: under this mask a position sees tokens that follow it")
    longest = 1 << (model.config.context_length.bit_length() - 1)
    half = max(1, longest // 2)
    runs = window_starts(split, longest + 1, max(1, most_targets // half), stride=half)
    if not len(runs):
        raise UsageError("the test part has no {length} tokens in a row", length=longest + 1)
    amounts = [1 << power for power in range(longest.bit_length())]
    nats = [float(_nats(model, split, runs, longest, amount).mean()) for amount in amounts]
    return {
        "context": amounts,
        "nats": nats,
        "targets": len(runs) * half,
        "effective": effective_context(amounts, nats),
    }


def _nats(model: Transformer, split: Split, runs: np.ndarray, longest: int, amount: int) -> np.ndarray:
    """The losses of all targets from amount / 2 + 1 to `amount` tokens.

    The targets of a run are the tokens after those at longest / 2 … longest - 1.
    """
    half, scored = max(1, longest // 2), max(1, amount // 2)
    firsts = np.arange(longest - half, longest, scored) + scored - amount
    starts = (runs[:, None] + firsts).ravel()
    return window_nats(model, split, starts, amount)[:, amount - scored :]


def effective_context(amounts: list[int], nats: list[float]) -> float:
    """The number of tokens beyond which the loss falls by no more than `NEAR` of it, between amounts on a log scale.

    >>> effective_context([1, 2, 4], [2.0, 1.01, 1.0])
    2.0
    >>> effective_context([1, 2, 4], [1.03, 1.02, 1.0])
    2.8284271247461903
    """
    enough = nats[-1] * (1 + NEAR)
    beyond = [place for place, loss in enumerate(nats) if loss > enough * (1 + 1e-12)]
    if not beyond:
        return float(amounts[0])
    last = beyond[-1]
    share = (nats[last] - enough) / (nats[last] - nats[last + 1])
    return float(amounts[last] * (amounts[last + 1] / amounts[last]) ** share)
