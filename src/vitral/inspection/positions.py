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


Examples in a prompt: whether a passage is predicted better after examples of it than after controls.

A row of the model's input is several passages of equal length, the last of which is scored. The passages before it are
the same one again (the examples), the same one with its tokens in random order (which gives away the tokens, not their
order), or other passages of the text (which give away its style). All rows are equally long, whatever the number of
examples: further examples take the place of other passages, so that no position is compared with another.
"""

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from vitral.core.errors import UsageError, reason
from vitral.core.language import N_
from vitral.core.streams import numpy_stream
from vitral.data import Split
from vitral.inspection.ablation import effect
from vitral.inspection.targets import UNSCORED, Scored, loss_by_row, loss_by_target, read_windows, window_starts
from vitral.model import Transformer, first_target

QUARTERS = 4
"""Quarters of a context length, at each of which the same targets are scored."""
RUN = 4
"""A run has at most RUN windows for each quarter of a long window; more windows score more shared targets."""
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
    width, quarters = context_length // QUARTERS, multiple * QUARTERS
    longest = int((split.segments[:, 1] - split.segments[:, 0]).max(initial=0))
    windows = min(RUN * quarters, (longest - 1 - length) // width + 1)
    if windows < quarters:
        needed = length + 1 + width * (quarters - 1)
        why = N_("it takes {needed} test tokens in a row, and there are {longest}")
        return nothing | {"why": why.format(needed=needed, longest=longest)}
    why = _refusal(model, length)
    read = context_length if why else length
    stride = length + width * (windows - 1)
    runs = window_starts(split, stride + 1, most_tokens // (windows * length), stride=stride)
    losses = [
        same_targets(window_nats(model, split, run + width * np.arange(windows), read), width, quarters) for run in runs
    ]
    nats = _scored(np.mean(losses, axis=0), first_target(model.mask), width)
    return {
        "length": length,
        "nats": nats + [None] * (quarters - len(nats)),
        "targets": len(runs) * (windows - quarters + 1) * width,
        **({"why": why} if why else {}),
    }


def window_nats(
    model: Transformer, split: Split, starts: Int[np.ndarray, " windows"], length: int
) -> Float[np.ndarray, "windows time"]:
    """-log p of the target at every position of every window of `length` inputs, in float64."""
    rows = read_windows(split, starts, length + 1).to(model.token_embedding.weight.device)
    scored = Scored(rows[:, :-1], rows[:, 1:])
    return loss_by_target(model, scored, most_rows=max(1, BATCH_TOKENS // length)).numpy()


def same_targets(nats: Float[np.ndarray, "windows time"], width: int, quarters: int) -> Float[np.ndarray, " shown"]:
    """The mean loss at each quarter of `width` positions, over the targets that occur at all of `quarters` quarters.

    Window k begins k quarters after the first, so quarter g of window j - g contains the same targets for every g.

    Args:
        nats: of windows of `quarters` quarters, or of shorter ones, whose fewer quarters have the same targets.
        width: positions of a quarter.
        quarters: of the longest windows.

    >>> same_targets(np.array([[9.0, 1.0], [2.0, 3.0], [4.0, 9.0]]), 1, 2).tolist()  # 1 and 2, 3 and 4 share a target
    [3.0, 2.0]
    """
    windows = len(nats)
    blocks = nats.reshape(windows, -1, width)
    return np.array([blocks[quarters - 1 - g : windows - g, g].mean() for g in range(blocks.shape[1])])


def _scored(nats: Float[np.ndarray, " places"], first: int, width: int) -> list[float | None]:
    """The losses of places of `width` positions; None before the first target and where a loss is not finite."""
    return [
        float(value) if index * width >= first and math.isfinite(value) else None for index, value in enumerate(nats)
    ]


def _refusal(model: Transformer, length: int) -> str:
    """The reason why the model cannot read so many tokens at once; empty where it can."""
    try:
        with torch.inference_mode():
            model(torch.zeros(1, length, dtype=torch.int64, device=model.token_embedding.weight.device))
    except UsageError as error:
        return reason(error).removeprefix("model: ")
    return ""


def loss_by_context(model: Transformer, split: Split, *, most_targets: int) -> dict[str, Any]:
    """The loss on the same targets from ever more tokens of context, in nats per token.

    Args:
        model: in evaluation mode, trained to predict next tokens.
        split: the tokens, over which the targets are spread evenly in runs of half the longest context.
        most_targets: about the number of targets.

    Returns:
        `context`, the largest amounts of context (1, 2, 4, …, at most the context length); `nats`, the mean loss at
        each; `targets`, their number.

    Raises:
        UsageError: the model is not causal, or the split has no segment of its longest context.
    """
    if model.mask is not None and model.mask.first_target() != 0:
        raise UsageError("loss_by_context: under this mask a position sees tokens that follow it")
    longest = 1 << (model.config.context_length.bit_length() - 1)
    half = max(1, longest // 2)
    runs = window_starts(split, longest + 1, most_targets // half, stride=half)
    if not len(runs):
        raise UsageError("the test part has no {length} tokens in a row", length=longest + 1)
    amounts = [1 << power for power in range(longest.bit_length())]
    nats = []
    for amount in amounts:  # the targets of a run are the tokens after those at longest / 2 … longest - 1
        scored = max(1, amount // 2)
        firsts = np.arange(longest - half, longest, scored) + scored - amount
        starts = (runs[:, None] + firsts).ravel()
        nats.append(float(window_nats(model, split, starts, amount)[:, amount - scored :].mean()))
    return {"context": amounts, "nats": nats, "targets": len(runs) * half}


EXAMPLES = ("same", "shuffled", "other")
"""What precedes the scored passage."""


def few_shot_losses(
    model: Transformer, split: Split, *, length: int, passages: int, most_examples: int
) -> dict[str, Any]:
    """The loss of passages after 0 to `most_examples` examples of each kind.

    Args:
        model: in evaluation mode.
        split: the tokens, of which passages are spread evenly.
        length: tokens of a passage, at least two; its first token is not scored.
        passages: number of scored passages.
        most_examples: most examples before a passage; there are always so many passages before it.

    Returns:
        `length`, `passages`; `losses`: by kind a list over the number of examples, in nats per
        token; `effects`: by kind a list of the change against other passages, {"increase", "error"}, with the standard
        error over passages.

    Raises:
        UsageError: a passage is a single token, the row does not fit into the model's context, or the split has too
            few passages.
    """
    time = length * (most_examples + 1)
    if length < 2 or time > model.config.context_length:
        raise UsageError(
            "few-shot: {number} passages of {length} tokens do not fit into a context of {context}",
            number=most_examples + 1,
            length=length,
            context=model.config.context_length,
        )
    starts = window_starts(split, length, passages * (most_examples + 1), stride=length)
    number = len(starts) // (most_examples + 1)
    if number < 2:
        raise UsageError("few-shot: the test split has too few passages of {length} tokens", length=length)
    stream = numpy_stream(0, "few-shot")
    drawn = stream.permutation(read_windows(split, starts, length).numpy())[: number * (most_examples + 1)]
    others, scored = drawn[number:].reshape(number, most_examples, length), drawn[:number]
    same = np.repeat(scored[:, None], most_examples, axis=1)
    before = {"same": same, "shuffled": stream.permuted(same, axis=2), "other": others}

    def losses(kind: str, examples: int) -> torch.Tensor:
        rows = np.concatenate(
            [others[:, examples:], before[kind][:, :examples], scored[:, None]], axis=1, dtype=np.int64
        ).reshape(number, time)
        tokens = torch.from_numpy(rows).to(model.token_embedding.weight.device)
        targets = tokens[:, 1:].clone()
        targets[:, : 1 - length] = UNSCORED  # the last passage is scored, without its first token
        return loss_by_row(model, Scored(tokens[:, :-1], targets, sampled=True))

    counts = range(most_examples + 1)
    rows = {kind: [losses(kind, count) for count in counts] for kind in EXAMPLES}
    return {
        "length": length,
        "passages": number,
        "losses": {kind: [float(each.mean()) for each in several] for kind, several in rows.items()},
        "effects": {
            kind: [effect(rows["other"][count], rows[kind][count], sampled=True) for count in counts]
            for kind in EXAMPLES[:-1]
        },
    }
