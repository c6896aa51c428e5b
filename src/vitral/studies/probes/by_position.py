"""The loss at every position of the window, and of windows longer than those a model was trained on.

Inside: consecutive windows of the test part; the loss at position p is the mean over windows of -log p(target at p).

Beyond: a model with context length L reads windows of mL tokens. Were each position scored on targets of its own, easy
and hard passages would pass for near and far positions. So the windows follow one another at a quarter of L, and only
the targets that stand in every quarter of the long window are scored: what differs between two quarters is how much
text lies before a target, and nothing else.
"""

import math

import numpy as np
import torch
from jaxtyping import Float, Int
from torch.nn import functional

from vitral.core.errors import UsageError
from vitral.data import Split
from vitral.model import Transformer
from vitral.studies.probes.by_position_shown import show
from vitral.studies.probes.protocol import Plain, RunProbe, Trained, require_next_tokens

TOKENS = {"quick": 60_000, "standard": 160_000, "full": 400_000}
"""Tokens read inside, and as many beyond."""
LONGER = {"quick": 2, "standard": 4, "full": 4}
"""The longest window, in context lengths."""
QUARTERS = 4
"""Places in a context length at which the same targets are scored."""
RUN = 4
"""Long windows of a run, in places: of RUN · places windows all but places - 1 blocks of targets are used."""
BATCH_TOKENS = 4096


def measure(trained: Trained) -> Plain:
    """The losses by position.

    Returns:
        `context_length`; `inside`: `nats` for every position (None where the mask has shown the target) and `windows`;
        `beyond`: `length` of the long windows, `nats` for every quarter of a context length (None where the mask has
        shown a target), `targets` scored at each;
        where the model cannot read so far, None for the quarters beyond its own length, and `why`; where the text or
        the context length is too short, no `nats` at all, and `why`.

    Raises:
        UsageError: the run is not trained to tell next tokens, or the test part has no whole window.
    """
    require_next_tokens(trained)
    model, part = trained.run.model, trained.dataset.splits["test"]
    context_length = model.config.context_length
    starts = window_starts(part, context_length, TOKENS[trained.budget] // context_length)
    if not len(starts):
        raise UsageError(f"the test part has no {context_length + 1} tokens in a row")
    inside = window_nats(model, part, starts, context_length).mean(axis=0)
    return {
        "context_length": context_length,
        "inside": {
            "windows": len(starts),
            "nats": _scored(inside, first_target(model), 1),
        },
        "beyond": _beyond(model, part, LONGER[trained.budget], TOKENS[trained.budget]),
    }


def first_target(model: Transformer) -> int:
    """The first position of a window whose target the model has not already seen."""
    return (0 if model.mask is None else model.mask.first_target()) or 0


def window_starts(part: Split, length: int, most: int, stride: int | None = None) -> Int[np.ndarray, " windows"]:
    """Where windows of `length` inputs begin, one after the other in every stretch; at most `most`, spread evenly.

    Args:
        part: the tokens.
        length: inputs of a window; the token after the last is a target too.
        most: windows wanted.
        stride: tokens from one beginning to the next; left out: the length.
    """
    step = stride or length
    starts = np.concatenate(
        [np.arange(begin, end - length, step) for begin, end in part.segments.tolist()] or [np.empty(0, np.int64)]
    )
    if len(starts) <= most:
        return starts
    return starts[np.linspace(0, len(starts), max(1, most), endpoint=False).astype(np.int64)]


def window_nats(
    model: Transformer, part: Split, starts: Int[np.ndarray, " windows"], length: int
) -> Float[np.ndarray, "windows time"]:
    """-log p of the target at every position of every window, in float64."""
    tokens, offsets = np.asarray(part.tokens), np.arange(length + 1)
    device = model.token_embedding.weight.device
    rows, batch = [], max(1, BATCH_TOKENS // length)
    with torch.inference_mode():
        for begin in range(0, len(starts), batch):
            window = tokens[starts[begin : begin + batch, None] + offsets].astype(np.int64)
            ids = torch.from_numpy(window).to(device)
            logits = model(ids[:, :-1]).float()
            nats = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
            rows.append(nats.view(len(window), length).cpu().double().numpy())
    return np.concatenate(rows)


def same_targets(nats: Float[np.ndarray, "windows time"], width: int, places: int) -> Float[np.ndarray, " shown"]:
    """The mean loss at each place of `width` positions, over targets that stand at all of `places` places.

    Window k begins k places after the first, so that place g of window j - g holds the same targets for every g.

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


def _beyond(model: Transformer, part: Split, multiple: int, most_tokens: int) -> Plain:
    """The loss at every quarter of a context length in windows `multiple` times as long.

    A model that cannot read so far is scored on the same targets in the quarters of its own length.
    """
    context_length = model.config.context_length
    length = multiple * context_length
    nothing = {"length": length, "nats": None, "targets": 0}
    if context_length % QUARTERS:
        return nothing | {"why": f"a context length of {context_length} has no whole quarters"}
    width, places = context_length // QUARTERS, multiple * QUARTERS
    longest = int((part.segments[:, 1] - part.segments[:, 0]).max(initial=0))
    windows = min(RUN * places, (longest - 1 - length) // width + 1)
    if windows < places:
        needed = length + 1 + width * (places - 1)
        return nothing | {"why": f"it takes {needed} test tokens in a row, and there are {longest}"}
    why = _refusal(model, length)
    read = context_length if why else length
    runs = window_starts(part, length + width * (windows - 1), max(1, most_tokens // (windows * length)))
    losses = [
        same_targets(window_nats(model, part, run + width * np.arange(windows), read), width, places) for run in runs
    ]
    nats = _scored(np.mean(losses, axis=0), first_target(model), width)
    return {
        "length": length,
        "nats": nats + [None] * (places - len(nats)),
        "targets": len(runs) * (windows - places + 1) * width,
        **({"why": why} if why else {}),
    }


def _scored(nats: Float[np.ndarray, " places"], first: int, width: int) -> list[float | None]:
    """The losses of places of `width` positions; None where one lies before the first target, or it is not finite."""
    return [
        float(value) if place * width >= first and math.isfinite(value) else None for place, value in enumerate(nats)
    ]


def _refusal(model: Transformer, length: int) -> str:
    """Why the model cannot read so many tokens at once; empty where it can."""
    try:
        with torch.inference_mode():
            model(torch.zeros(1, length, dtype=torch.int64, device=model.token_embedding.weight.device))
    except UsageError as error:
        return str(error).removeprefix("model: ")
    return ""


BY_POSITION = RunProbe("by-position", measure, show, seconds={"quick": 3, "standard": 8, "full": 10})
