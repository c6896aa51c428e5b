"""Loss by position: inside the trained context length, and in windows longer than it.

Inside: consecutive windows; the loss at position p is the mean over windows of -log p(target at p).

Beyond: a model with context length L reads windows of mL tokens. If each position were scored on its own targets, easy
and hard passages would look like near and far positions. So the windows start a quarter of L apart, and only targets
that occur in every quarter of the long window are scored: two quarters differ only in how much text precedes a target.


The loss by the amount of context: how much a model gains from tokens that are far back (Khandelwal et al. 2018, §4).

Every target is predicted from 1, 2, 3-4, 5-8, … tokens before it, the nearest ones, and the targets are the same at
every amount: what a model cannot use is what it does not lose. A model reads windows of 2n tokens, n apart, and is
scored in their second halves, where n + 1 to 2n tokens precede a target. Windows begin as in training, with position 0
and, in a recurrent model, a state of zeros.
"""

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from vitral.core.errors import UsageError, reason
from vitral.core.language import N_
from vitral.data import Split
from vitral.inspection.targets import Scored, loss_by_target
from vitral.inspection.windows import read_windows, window_starts
from vitral.model import Transformer, first_target

QUARTERS = 4
"""Quarters of a context length, at each of which the same targets are scored."""
RUN = 4
"""A run has at most RUN windows for each place (quarter) of a long window; more windows score more shared targets."""
BATCH_TOKENS = 4096


def loss_by_position(model: Transformer, split: Split, *, most_tokens: int, multiple: int) -> dict[str, Any]:
    """The losses inside and beyond the trained context length, in nats per token.

    Args:
        model: in evaluation mode, trained to predict next tokens.
        split: the tokens, of which windows are spread evenly.
        most_tokens: read inside, and as many beyond.
        multiple: length of the longer windows in context lengths.

    Returns:
        `context_length`; `inside`, see `loss_inside`; `beyond`, see `loss_beyond`.

    Raises:
        UsageError: the split has no whole window.
    """
    return {
        "context_length": model.config.context_length,
        "inside": loss_inside(model, split, most_tokens=most_tokens),
        "beyond": loss_beyond(model, split, multiple, most_tokens=most_tokens),
    }


def loss_inside(model: Transformer, split: Split, *, most_tokens: int) -> dict[str, Any]:
    """The loss at every position of the context: `nats`, None where the mask has shown the target; `windows` read.

    Raises:
        UsageError: the split has no whole window.
    """
    length = model.config.context_length
    starts = window_starts(split, length + 1, most_tokens // length, stride=length)
    if not len(starts):
        raise UsageError("the test part has no {length} tokens in a row", length=length + 1)
    nats = window_nats(model, split, starts, length).mean(axis=0)
    return {"windows": len(starts), "nats": _scored(nats, first_target(model.mask), 1)}


def loss_beyond(model: Transformer, split: Split, multiple: int, *, most_tokens: int) -> dict[str, Any]:
    """The loss at every quarter of a context length in windows `multiple` times as long, on the same targets.

    A model that cannot read so far is scored on the same targets in the quarters of its own context length.

    Returns:
        `length` of the long windows; `nats` by quarter, None where the mask has shown a target or the model cannot
        read, None altogether where the split or the context length is too short; `targets` scored at each quarter;
        `why`, the reason, where a model, split or context length does not allow it.
    """
    context_length = model.config.context_length
    length = multiple * context_length
    nothing = {"length": length, "nats": None, "targets": 0}
    if context_length % QUARTERS:
        return nothing | {"why": N_("a context length of {length} has no whole quarters").format(length=context_length)}
    width, places = context_length // QUARTERS, multiple * QUARTERS
    longest = int((split.segments[:, 1] - split.segments[:, 0]).max(initial=0))
    windows = min(RUN * places, (longest - 1 - length) // width + 1)
    if windows < places:
        needed = length + 1 + width * (places - 1)
        why = N_("it takes {needed} test tokens in a row, and there are {longest}")
        return nothing | {"why": why.format(needed=needed, longest=longest)}
    why = _refusal(model, length)
    read = context_length if why else length
    stride = length + width * (windows - 1)
    runs = window_starts(split, stride + 1, max(1, most_tokens // (windows * length)), stride=stride)
    losses = [
        same_targets(window_nats(model, split, run + width * np.arange(windows), read), width, places) for run in runs
    ]
    nats = _scored(np.mean(losses, axis=0), first_target(model.mask), width)
    return {
        "length": length,
        "nats": nats + [None] * (places - len(nats)),
        "targets": len(runs) * (windows - places + 1) * width,
        **({"why": why} if why else {}),
    }


def window_nats(
    model: Transformer, split: Split, starts: Int[np.ndarray, " windows"], length: int
) -> Float[np.ndarray, "windows time"]:
    """-log p of the target at every position of every window of `length` inputs, in float64."""
    rows = read_windows(split, starts, length + 1).to(model.token_embedding.weight.device)
    scored = Scored(rows[:, :-1], rows[:, 1:])
    return loss_by_target(model, scored, most_rows=max(1, BATCH_TOKENS // length)).numpy()


def same_targets(nats: Float[np.ndarray, "windows time"], width: int, places: int) -> Float[np.ndarray, " shown"]:
    """The mean loss at each place of `width` positions, over the targets that occur at all of `places` places.

    Window k begins k places after the first, so place g of window j - g contains the same targets for every g.

    Args:
        nats: of windows of `places` places, or of shorter ones, whose fewer places are scored on the same targets.
        width: positions of a place.
        places: of the longest windows.

    >>> same_targets(np.array([[9.0, 1.0], [2.0, 3.0], [4.0, 9.0]]), 1, 2).tolist()  # 1 and 2, 3 and 4 share a target
    [3.0, 2.0]
    """
    windows = len(nats)
    blocks = nats.reshape(windows, -1, width)
    return np.array([blocks[places - 1 - g : windows - g, g].mean() for g in range(blocks.shape[1])])


def _scored(nats: Float[np.ndarray, " places"], first: int, width: int) -> list[float | None]:
    """The losses of places of `width` positions; None before the first target and where a loss is not finite."""
    return [
        float(value) if place * width >= first and math.isfinite(value) else None for place, value in enumerate(nats)
    ]


def _refusal(model: Transformer, length: int) -> str:
    """The reason why the model cannot read so many tokens at once; empty where it can."""
    try:
        with torch.inference_mode():
            model(torch.zeros(1, length, dtype=torch.int64, device=model.token_embedding.weight.device))
    except UsageError as error:
        return reason(error).removeprefix("model: ")
    return ""


NEAR = 0.01
"""A context is long enough if a target's loss is at most this share above the loss with the longest one."""


def loss_by_context(model: Transformer, split: Split, *, most_targets: int) -> dict[str, Any]:
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
