"""Capabilities under a mask: next-token leakage, infilling and continuation.

Each is measured on one trained model and windows of tokens, and depends on the model's mask and training objective
alone. A masked language model answers at a mask token; any other model answers at the position before. A model of both
objectives is asked as a causal one, and for a gap with both sides as it was trained, at the position before a mask
token and without the causal mask.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from vitral.core.errors import UsageError
from vitral.data import Split, Tokenizer
from vitral.evaluation import Masking
from vitral.inspection.targets import read_activation, spread_windows
from vitral.model import Transformer, first_target

LEAST_CONTEXT = 5
"""Tokens, so that two positions have a token after them and a gap has two sides."""
SWAPPED = 256
"""About so many windows have their next token swapped."""


@dataclass(frozen=True, eq=False)
class Predictor:
    """A model and the way it is asked for a token.

    Attributes:
        model: in evaluation mode.
        mask_token: put where an answer is wanted; None for a model that predicts the next token.
        specials: ids that represent no text and therefore are no answer.
        shifted_token: put in a gap that a model of both objectives fills; None for other models.
    """

    model: Transformer
    mask_token: int | None
    specials: tuple[int, ...]
    shifted_token: int | None = None

    def log_probabilities(
        self, tokens: Int[Tensor, "rows time"], position: int, *, bidirectional: bool = False
    ) -> Float[Tensor, "rows vocab"]:
        """Log-probabilities at a position, float64; -inf for special tokens. `bidirectional`: without a causal mask."""
        read = lambda seen: seen[:, position].double()  # noqa: E731
        logits = read_activation(self.model, tokens, "logits", read, bidirectional=bidirectional)
        logits[:, list(self.specials)] = -torch.inf
        return logits.log_softmax(-1)


def capabilities(
    model: Transformer,
    tokenizer: Tokenizer,
    split: Split,
    contexts: int,
    gaps: int,
    *,
    masking: Masking | None,
) -> dict[str, Any]:
    """Leakage, infilling and continuation on windows of a split.

    The gap, which is also the token to continue with, is at the first token after half of the context, or later where
    a longer prefix would show it. An eighth of the context follows it.

    Args:
        model: in evaluation mode.
        tokenizer: of the model.
        split: the tokens.
        contexts: windows for leakage and continuation, at most.
        gaps: windows for infilling, at most; by the chain rule each costs as many passes as there are tokens.
        masking: of a model trained on masked tokens, alone or besides; None for one that predicts the next token alone.

    Returns:
        `context` length; `gap`, its position; `right`, tokens after it; `targets` of a training step in each window;
        `leak`, `early` and `late` in the window, see `leakage`; `filling`, see `scores`, from `both` sides (None where
        the model cannot) and from the `left`, and of a model of both objectives by the `chain` rule; `continuing`, see
        `scores`.

    Raises:
        UsageError: the context is too short, the prefix leaves nothing after it, or the split has no two windows.
    """
    causal = Predictor(model, None, tuple(tokenizer.specials))
    is_mixed = masking is not None and masking.is_shifted
    asked = {} if masking is None else {"shifted_token" if is_mixed else "mask_token": masking.token}
    predictor = replace(causal, **asked)
    time, first = model.config.context_length, first_target(model.mask)
    if time < max(LEAST_CONTEXT, first + 3):
        raise UsageError("under this mask a context of {time} tokens has no room for a gap and two sides", time=time)
    gap = max(time // 2, first + 1)
    end = min(gap + 1 + max(1, time // 8), time)
    whole = spread_windows(split, time, contexts)
    if len(whole) < 2:  # a token is swapped for that of another window
        raise UsageError("the test part has no two windows of {time} tokens", time=time)
    windows, swapped = spread_windows(split, time, gaps)[:, :end], whole[:: max(1, len(whole) // SWAPPED)]
    both = infilling(predictor, windows, gap)
    return {
        "context": time,
        "gap": gap,
        "right": end - gap - 1,
        "targets": time - first if masking is None or is_mixed else masking.count(time),
        "leak": {
            name: leakage(predictor, swapped, position)
            for name, position in (("early", time // 4), ("late", 3 * time // 4))
        },
        "filling": {
            "both": None if both is None else scores(both, windows[:, gap]),
            "left": scores(continuation(predictor, windows[:, :gap]), windows[:, gap]),
            **({"chain": scores(by_chain_rule(causal, windows, gap), windows[:, gap])} if is_mixed else {}),
        },
        "continuing": scores(continuation(predictor, whole[:, :gap]), whole[:, gap]),
    }


def scores(logs: Float[Tensor, "rows vocab"], truth: Int[Tensor, " rows"]) -> dict[str, Any]:
    """`accuracy` of the most probable token, mean `nats` of the true token, `num` rows.

    >>> scores(torch.tensor([[0.25, 0.75], [0.5, 0.5]]).log(), torch.tensor([1, 0]))["num"]
    2
    """
    nats = -logs.gather(1, truth[:, None])[:, 0].double()
    right = logs.argmax(dim=1) == truth
    return {"accuracy": float(right.double().mean()), "nats": float(nats.mean()), "num": len(truth)}


def leakage(predictor: Predictor, windows: Int[Tensor, "rows time"], position: int) -> dict[str, Any]:
    """How far the prediction at a position depends on the token after it.

    That token is swapped for the one in the window before; all else stays. Windows in which the two are equal do not
    count as swapped. Where no later token reaches the position, its prediction cannot change.

    Returns:
        `position`; `visible`, whether the mask lets it see the token after it; `moved`, the mean total variation
        ½ Σ |p - p'| between the probabilities before and after the swap.
    """
    true = windows[:, position + 1]
    other = true.roll(1)
    changed = windows.clone()
    changed[:, position + 1] = other
    differs = true != other
    before, after = (predictor.log_probabilities(rows, position) for rows in (windows, changed))
    moved = 0.5 * (before.exp() - after.exp()).abs().sum(dim=1)[differs]
    mask, time = predictor.model.mask, windows.shape[1]
    return {
        "position": position,
        "visible": mask is not None and bool(mask.allowed(time, time)[position, position + 1]),
        "moved": float(moved.sum()) / max(1, len(moved)),
    }


def continuation(predictor: Predictor, contexts: Int[Tensor, "rows time"]) -> Float[Tensor, "rows vocab"]:
    """Log-probabilities of the token after each context: at a mask token put there, or at the last position."""
    if predictor.mask_token is None:
        return predictor.log_probabilities(contexts, contexts.shape[1] - 1)
    masked = torch.full_like(contexts[:, :1], predictor.mask_token)
    return predictor.log_probabilities(torch.cat([contexts, masked], dim=1), contexts.shape[1])


def infilling(predictor: Predictor, windows: Int[Tensor, "rows time"], gap: int) -> Float[Tensor, "rows vocab"] | None:
    """Log-probabilities of the token at `gap` given both sides; None for a next-token model that sees its targets.

    A model trained on masked tokens reads them off, any other one uses the chain rule.
    """
    model, is_mixed = predictor.model, predictor.shifted_token is not None
    token = predictor.shifted_token if is_mixed else predictor.mask_token
    if token is not None:
        hidden = windows.clone()
        hidden[:, gap] = token
        return predictor.log_probabilities(hidden, gap - is_mixed, bidirectional=is_mixed)
    if model.mask is not None and model.mask.first_target() is None:
        return None
    return by_chain_rule(predictor, windows, gap)


def by_chain_rule(predictor: Predictor, windows: Int[Tensor, "rows time"], gap: int) -> Float[Tensor, "rows vocab"]:
    """Log-probabilities of the token at `gap` given both sides, of a model that predicts the next token.

        p(c | left, right) = p(c | left) p(right | left, c) / Σ_c' p(c' | left) p(right | left, c')

    over all tokens c, so each window costs as many passes over its right side as there are tokens.
    """
    model = predictor.model
    candidates, log_likelihoods = torch.arange(model.vocab_size), []
    for window in windows:  # log p(right side | left side, c) for every token c; the left side is computed once
        cache, right = model.new_cache(1, len(window)), window[gap + 1 :].expand(len(candidates), -1)
        with torch.inference_mode():
            model(window[None, :gap], cache=cache)
            cache.select(torch.zeros_like(candidates))
            logits = model(torch.cat([candidates[:, None], right[:, :-1]], dim=1), cache=cache)
        nats = functional.cross_entropy(logits.flatten(0, 1), right.flatten(), reduction="none")
        log_likelihoods.append(-nats.double().view(right.shape).sum(dim=1))
    return (continuation(predictor, windows[:, :gap]) + torch.stack(log_likelihoods)).log_softmax(-1)
