"""The residual stream after every half-layer: its logit lens and its norms.

Legend of axes: batch = rows of tokens, time = positions, d_model = width of the stream, vocab = tokens.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitral.core.taps import SILENT, Tap
from vitral.data import Tokenizer
from vitral.evaluation import Masking
from vitral.inspection.numbers import number, numbers
from vitral.inspection.targets import UNSCORED, Scored, passes, text_targets, text_tokens
from vitral.model import ModelConfig, Transformer


def stream_points(config: ModelConfig) -> list[str]:
    """Names of the stream after the embedding and after every sublayer the model has.

    >>> stream_points(ModelConfig(num_layers=1))
    ['embed', 'blocks.0.resid_mid', 'blocks.0.resid_post']
    """
    mixes = config.attention != "none" or config.recurrence is not None
    after = ["resid_mid"] * mixes + ["resid_post"] * (config.feed_forward != "none")
    return ["embed", *(f"blocks.{layer}.{point}" for layer in range(config.num_layers) for point in after)]


def contribution_points(config: ModelConfig) -> list[str]:
    """Names of what each sublayer contributes to the stream, in the order of `stream_points` after the first.

    >>> contribution_points(ModelConfig(num_layers=1))
    ['blocks.0.attn.out', 'blocks.0.mlp.out']
    """
    outputs = ["attn.out"] * (config.attention != "none") + ["recurrence.out"] * (config.recurrence is not None)
    outputs += ["mlp.out"] * (config.feed_forward != "none")
    return [f"blocks.{layer}.{output}" for layer in range(config.num_layers) for output in outputs]


def lens_logits(model: Transformer, stream: Float[Tensor, "batch time d_model"]) -> Float[Tensor, "batch time vocab"]:
    """Logits read off the stream at any point: W_head · final_norm(x) (logit lens, nostalgebraist 2020).

    At the last point these are the model's logits. A model without a final norm (usually post-norm, or no norm) applies
    the head alone.
    """
    with torch.inference_mode():
        return model.unembed(model.final_norm(stream))


class Predicted(NamedTuple):
    """How the true token fares at each position.

    Attributes:
        log_probability: ln p(target), float64; NaN where there is no target.
        rank: 1 + the number of tokens with a higher logit, so that ties share the better rank; 0 without a target.
    """

    log_probability: Float[Tensor, " time"]
    rank: Int[Tensor, " time"]


def predicted(logits: Float[Tensor, "time vocab"], targets: Int[Tensor, " time"]) -> Predicted:
    """Log-probability and rank of each position's target.

    >>> found = predicted(torch.tensor([[0.0, 0.0, 5.0]]), torch.tensor([1]))
    >>> found.rank.tolist()
    [2]
    """
    known = targets != UNSCORED
    chosen = targets.clamp(min=0)[:, None]
    logs = logits.double().log_softmax(dim=-1).gather(1, chosen)[:, 0]
    above = (logits > logits.gather(1, chosen)).sum(dim=1)
    return Predicted(torch.where(known, logs, torch.nan), torch.where(known, above + 1, 0))


def token_norms(stream: Float[Tensor, "batch time d_model"]) -> Float[Tensor, "batch time"]:
    """The Euclidean norm |x| = √(Σ x_i²) of each position's vector, in float64."""
    return stream.double().norm(dim=-1)


def logit_lens(
    model: Transformer, tokenizer: Tokenizer, text: str, *, top: int = 5, masking: Masking | None = None
) -> dict[str, Any]:
    """The logit lens of a text, after the embedding and after every sublayer.

    Of a masked language model each position is masked in turn and read where it is masked, so that its target is the
    token of the text at that very position.

    Args:
        model: in evaluation mode.
        tokenizer: the model's.
        text: what it reads.
        top: how many of the most probable tokens are listed.
        masking: of a masked language model.

    Returns:
        `targets`: for each position the true token as {"id", "label"}, or None. `points`: for each point of the stream
        `point` (its name), `loss` (mean nats per token over the targets, None without any) and `positions`, each with
        `top` ([{"id", "label", "probability"}], the most probable first; of equals the lower id), `probability`, `rank`
        and `loss` of the target, None where there is none.

    Raises:
        UsageError: an empty text, one longer than the context, or a character without a token.
    """
    tokens = text_tokens(model, tokenizer, text)
    scored = text_targets(model, tokens, masking)
    targets = (scored.targets[0] if masking is None else tokens[0]).cpu()
    streams = seen_at_targets(model, scored, masking, stream_points(model.config))
    points = []
    for point in stream_points(model.config):
        logits = lens_logits(model, streams[point])[0].cpu()  # not every device has float64
        points.append({"point": point} | told_predictions(logits, targets, tokenizer, top))
    plain = [None if token == UNSCORED else _named(tokenizer, token) for token in targets.tolist()]
    return {"targets": plain, "points": points}


def _named(tokenizer: Tokenizer, token: int) -> dict[str, Any]:
    return {"id": token, "label": tokenizer.label(token)}


def told_predictions(
    logits: Float[Tensor, "time vocab"], targets: Int[Tensor, " time"], tokenizer: Tokenizer, top: int
) -> dict[str, Any]:
    """A sentence's predictions as plain data: `loss` (mean over the targets) and `positions`, as of `logit_lens`."""
    likely, found = _most_probable(logits, top), predicted(logits, targets)
    positions = []
    for place, (log, rank) in enumerate(zip(found.log_probability.tolist(), found.rank.tolist(), strict=True)):
        known = rank > 0
        first = [_named(tokenizer, token) | {"probability": number(share)} for share, token in likely[place]]
        positions.append(
            {
                "top": first,
                "probability": number(math.exp(log)) if known else None,
                "rank": rank if known else None,
                "loss": number(-log) if known else None,
            }
        )
    mean = found.log_probability[found.rank > 0].mean()
    return {"loss": number(-mean), "positions": positions}


def _most_probable(logits: Float[Tensor, "time vocab"], top: int) -> list[list[tuple[float, int]]]:
    """For each position the probability and id of the most probable tokens; of equals the lower id first."""
    order = logits.sort(dim=-1, descending=True, stable=True).indices[:, : max(0, top)]
    shares = logits.double().softmax(dim=-1).gather(1, order)
    return [list(zip(*row, strict=True)) for row in zip(shares.tolist(), order.tolist(), strict=True)]


def seen_at_targets(
    model: Transformer, scored: Scored, masking: Masking | None, names: Sequence[str], tap: Tap = SILENT
) -> dict[str, Float[Tensor, "1 time width"]]:
    """Activations of a text; of a masked language model those at the masked position of each row: row t gives t."""
    if masking is None:
        return model.trace(scored.inputs, names, tap=tap)
    kept: dict[str, list[Tensor]] = {name: [] for name in names}
    place = torch.arange(len(scored.inputs), device=scored.inputs.device)
    for rows, seen in passes(model, scored.inputs, names, tap):
        for name, value in seen.items():
            kept[name].append(value[torch.arange(len(value)), place[rows]])
    return {name: torch.cat(pieces)[None] for name, pieces in kept.items()}


def residual_norms(model: Transformer, tokenizer: Tokenizer, text: str) -> dict[str, Any]:
    """Norms of the stream, and of what each sublayer contributes to it, at every position of a text.

    Args:
        model: in evaluation mode.
        tokenizer: the model's.
        text: what it reads; a masked language model reads it with nothing masked.

    Returns:
        `stream`: for the embedding, the stream after each sublayer, and after the final norm, {"point", "mean",
        "positions"}; `added`: the same for the output of each sublayer, before a post-norm.

    Raises:
        UsageError: an empty text, one longer than the context, or a character without a token.
    """
    tokens = text_tokens(model, tokenizer, text)
    names = {"stream": [*stream_points(model.config), "final_norm"], "added": contribution_points(model.config)}
    seen = model.trace(tokens, [*names["stream"], *names["added"]])
    norms = {name: token_norms(value.cpu())[0] for name, value in seen.items()}
    return {
        kind: [
            {"point": name, "mean": number(norms[name].mean()), "positions": numbers(norms[name])} for name in points
        ]
        for kind, points in names.items()
    }
