"""What a mask lets flow, seen from outside: the leak, filling a gap, continuing a text.

All of it is for one trained model and windows of a text, and goes by the model's mask and by what it was trained for,
not by its name. A model trained to fill blanks is given a blank where an answer is wanted; any other gives its answer
at the position before.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from vitral.core.errors import UsageError
from vitral.data import Split
from vitral.model import Transformer
from vitral.studies.probes.protocol import Plain

CHUNK = 256
"""Windows computed side by side."""


@dataclass(frozen=True, eq=False)
class Asked:
    """A model, and how it is asked.

    Attributes:
        model: in evaluation mode.
        blank: the token put where an answer is wanted; None for a model that predicts the next token.
        specials: ids that stand for no text, and so are no answer.
    """

    model: Transformer
    blank: int | None
    specials: tuple[int, ...]

    @property
    def hides_the_future(self) -> bool:
        """Whether what comes later cannot reach a position, at least behind a prefix."""
        return self.blank is None and (self.model.mask is None or self.model.mask.joint_prefix() is not None)

    @property
    def first_target(self) -> int:
        """The first position whose next token is not shown to it."""
        return (0 if self.model.mask is None else self.model.mask.first_target()) or 0

    def sees_next(self, position: int, time: int) -> bool:
        """Whether the mask lets a position of a window of `time` tokens see the one after it."""
        mask = self.model.mask
        return mask is not None and bool(mask.allowed(time, time)[..., position, position + 1].any())

    def logs(self, tokens: Int[Tensor, "rows time"], position: int) -> Float[Tensor, "rows vocab"]:
        """Log-probabilities at a position, float64, none for tokens that are no answer."""
        pieces = []
        with torch.inference_mode():
            for piece in tokens.split(CHUNK):
                logits = self.model(piece)[:, position].double()
                logits[:, list(self.specials)] = -torch.inf
                pieces.append(logits.log_softmax(-1))
        return torch.cat(pieces)


def spread_windows(part: Split, time: int, count: int) -> Int[Tensor, "windows time"]:
    """At most `count` windows of a part that do not overlap, evenly spread; none crosses a border."""
    begins = [
        begin + time * np.arange((end - begin) // time) for begin, end in part.segments.tolist() if end - begin >= time
    ]
    every = np.concatenate(begins) if begins else np.zeros(0, dtype=np.int64)
    chosen = every[np.linspace(0, len(every), min(count, len(every)), endpoint=False).astype(int)]
    tokens = np.asarray(part.tokens)
    return torch.from_numpy(tokens[chosen[:, None] + np.arange(time)].astype(np.int64))


def answers(logs: Float[Tensor, "rows vocab"], truth: Int[Tensor, " rows"]) -> Plain:
    """How often the likeliest token is the true one, and the mean nats of the true one.

    >>> answers(torch.tensor([[0.25, 0.75], [0.5, 0.5]]).log(), torch.tensor([1, 0]))["num"]
    2
    """
    nats = -logs.gather(1, truth[:, None])[:, 0].double()
    right = logs.argmax(dim=1) == truth
    return {"accuracy": float(right.double().mean()), "nats": float(nats.mean()), "num": len(truth)}


def leak(asked: Asked, windows: Int[Tensor, "rows time"], position: int) -> Plain:
    """What a position says of the token after it while that token is there to be seen, and after it is changed.

    The token after `position` is replaced by that of the window before, everything else stays; windows in which those
    are the same are left out of the change. If nothing later reaches the position, nothing there can change.

    Returns:
        position: as given.
        visible: whether the mask lets the position see the token after it.
        accuracy, nats, num: of the true next token, read at `position` from the whole window.
        moved: mean total variation, ½ Σ |p - p'|, between the probabilities before and after the change.
        follows: how often the likeliest token after the change is the one that was put there.

    Raises:
        UsageError: a single window, or none: there is no other to take a token from.
    """
    if len(windows) < 2:
        raise UsageError(f"a token is changed to that of another window; there are {len(windows)} windows")
    true = windows[:, position + 1]
    other = true.roll(1)
    changed = windows.clone()
    changed[:, position + 1] = other
    differs = true != other
    before, after = asked.logs(windows, position), asked.logs(changed, position)
    moved = 0.5 * (before.exp() - after.exp()).abs().sum(dim=1)[differs]
    follows = (after.argmax(dim=1) == other)[differs].double()
    num = max(1, int(differs.sum()))
    return {
        "position": position,
        "visible": asked.sees_next(position, windows.shape[1]),
        **answers(before, true),
        "moved": float(moved.sum()) / num,
        "follows": float(follows.sum()) / num,
    }


def continuing(asked: Asked, contexts: Int[Tensor, "rows time"]) -> Float[Tensor, "rows vocab"]:
    """Log-probabilities of the token after each context: at a blank put there, or at the context's last position."""
    if asked.blank is None:
        return asked.logs(contexts, contexts.shape[1] - 1)
    blank = torch.full_like(contexts[:, :1], asked.blank)
    return asked.logs(torch.cat([contexts, blank], dim=1), contexts.shape[1])


def filling(asked: Asked, windows: Int[Tensor, "rows time"], gap: int) -> Float[Tensor, "rows vocab"] | None:
    """Log-probabilities of the token at `gap` from both sides of it; None for a model that can say nothing of it.

    With a blank the model says it at once. Without, a model that hides the future is asked by the chain rule

        p(c | left, right) = p(c | left) p(right | left, c) / Σ_c' p(c' | left) p(right | left, c')

    over all tokens c, so each window costs as many passes over its right side as there are tokens.

    Raises:
        UsageError: there is no window.
    """
    if not len(windows):
        raise UsageError("there is no window with a gap to fill")
    if asked.blank is not None:
        hidden = windows.clone()
        hidden[:, gap] = asked.blank
        return asked.logs(hidden, gap)
    if not asked.hides_the_future:
        return None
    logs = continuing(asked, windows[:, :gap])
    candidates = torch.arange(asked.model.vocab_size)
    with torch.inference_mode():
        right = torch.stack([_right_side(asked.model, window, gap, candidates) for window in windows])
    return (logs + right).log_softmax(-1)


def _right_side(
    model: Transformer, window: Int[Tensor, " time"], gap: int, candidates: Int[Tensor, " vocab"]
) -> Float[Tensor, " vocab"]:
    """The log-probability of the right side after the left side and c, for every c; the left side is computed once."""
    cache, right = model.new_cache(1, len(window)), window[gap + 1 :]
    model(window[None, :gap], cache=cache)
    cache.select(torch.zeros_like(candidates))
    given = torch.cat([candidates[:, None], right[:-1].expand(len(candidates), -1)], dim=1)
    logits = model(given, cache=cache)
    targets = right.expand(len(candidates), -1)
    nats = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return -nats.double().reshape(len(candidates), -1).sum(dim=1)


def pooled(model: Transformer, tokens: Int[Tensor, "rows time"]) -> Float[np.ndarray, "rows d_model"]:
    """The activations after the final norm, averaged over the positions of each row, float64."""
    pieces = [model.trace(piece, ["final_norm"])["final_norm"].double().mean(dim=1) for piece in tokens.split(CHUNK)]
    return torch.cat(pieces).numpy()
