"""The residual stream after every half-layer: its logit lens and its norms.

Legend of axes: batch = rows of tokens, time = positions, d_model = width of the stream, vocab = tokens.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitral.core.taps import SILENT, Tap
from vitral.data import Tokenizer
from vitral.inspection.numbers import number, numbers
from vitral.inspection.targets import UNSCORED, Scored, Tokens, passes
from vitral.model import ModelConfig, Transformer


def sublayer_outputs(config: ModelConfig) -> dict[str, str]:
    """The names, within a block, of what each sublayer of the model contributes to the stream."""
    attends, recurs = config.attention != "none", config.recurrence is not None
    there = {"attention": attends, "recurrence": recurs, "cross": config.encoder is not None}
    there["feed_forward"] = config.feed_forward != "none"
    names = {"attention": "attn.out", "recurrence": "recurrence.out", "cross": "cross.out", "feed_forward": "mlp.out"}
    return {part: name for part, name in names.items() if there[part]}


def stream_points(config: ModelConfig) -> list[str]:
    """Names of the stream after the embedding and after every sublayer the model has.

    >>> stream_points(ModelConfig(num_layers=1))
    ['embed', 'blocks.0.resid_mid', 'blocks.0.resid_post']
    """
    outputs = sublayer_outputs(config)
    after = ["resid_mid"] * bool({"attention", "recurrence"} & outputs.keys())
    after += ["resid_cross"] * ("cross" in outputs) + ["resid_post"] * ("feed_forward" in outputs)
    first = "embed_norm" if config.embedding_norm else "embed"
    return [first, *(f"blocks.{layer}.{point}" for layer in range(config.num_layers) for point in after)]


def contribution_points(config: ModelConfig) -> list[str]:
    """Names of what each sublayer contributes to the stream, in the order of `stream_points` after the first.

    >>> contribution_points(ModelConfig(num_layers=1))
    ['blocks.0.attn.out', 'blocks.0.mlp.out']
    """
    return [
        f"blocks.{layer}.{name}" for layer in range(config.num_layers) for name in sublayer_outputs(config).values()
    ]


def lens_logits(model: Transformer, stream: Float[Tensor, "batch time d_model"]) -> Float[Tensor, "batch time vocab"]:
    """Logits read off the stream at any point: W_head · final_norm(x) (logit lens, nostalgebraist 2020).

    At the last point these are the model's logits. A model without a final norm (usually post-norm, or no norm) applies
    the head alone.
    """
    with torch.inference_mode():
        return model.unembed(model.final_norm(stream))


def predicted(
    logits: Float[Tensor, "time vocab"], targets: Int[Tensor, " time"]
) -> tuple[Float[Tensor, " time"], Int[Tensor, " time"]]:
    """Log-probability and rank of each position's target.

    >>> predicted(torch.tensor([[0.0, 0.0, 5.0]]), torch.tensor([1]))[1].tolist()
    [2]

    Returns:
        ln p(target), float64, NaN where there is no target; and 1 + the number of tokens with a higher logit, so that
        ties share the better rank, 0 without a target.
    """
    known = targets != UNSCORED
    chosen = targets.clamp(min=0)[:, None]
    logs = logits.double().log_softmax(dim=-1).gather(1, chosen)[:, 0]
    above = (logits > logits.gather(1, chosen)).sum(dim=1)
    return torch.where(known, logs, torch.nan), torch.where(known, above + 1, 0)


def logit_lens(model: Transformer, tokenizer: Tokenizer, scored: Scored, *, top: int = 5) -> dict[str, Any]:
    """The logit lens of a text, after the embedding and after every sublayer.

    Of a masked language model each position is masked in turn and read where it is masked, so that its target is the
    token of the text at that very position.

    Args:
        model: in evaluation mode.
        tokenizer: the model's.
        scored: the text with its targets, as of `text_targets`.
        top: how many of the most probable tokens are listed.

    Returns:
        `targets`: for each position the true token as {"id", "label"}, or None. `points`: for each point of the stream
        `point` (its name), `loss` (mean nats per token over the targets, None without any) and `positions`, each with
        `top` ([{"id", "label", "probability"}], the most probable first; of equals the lower id), `probability`, `rank`
        and `loss` of the target, None where there is none.
    """
    targets, points = scored.targets.amax(dim=0).cpu(), []
    streams = seen_at_targets(model, scored, stream_points(model.config))
    for point in stream_points(model.config):
        logits = lens_logits(model, streams[point])[0].cpu()  # not every device has float64
        points.append({"point": point} | plain_predictions(logits, targets, tokenizer, top))
    plain = [None if token == UNSCORED else _named(tokenizer, token) for token in targets.tolist()]
    return {"targets": plain, "points": points}


def _named(tokenizer: Tokenizer, token: int) -> dict[str, Any]:
    return {"id": token, "label": tokenizer.label(token)}


def plain_predictions(
    logits: Float[Tensor, "time vocab"], targets: Int[Tensor, " time"], tokenizer: Tokenizer, top: int
) -> dict[str, Any]:
    """A sentence's predictions as plain data: `loss` (mean over the targets) and `positions`, as of `logit_lens`."""
    logs, ranks = predicted(logits, targets)
    order = logits.sort(dim=-1, descending=True, stable=True).indices[:, :top]
    shares = logits.double().softmax(dim=-1).gather(1, order)
    positions = []
    for log, rank, *likely in zip(logs.tolist(), ranks.tolist(), shares.tolist(), order.tolist(), strict=True):
        known = rank > 0
        positions.append(
            {
                "top": [
                    _named(tokenizer, token) | {"probability": number(share)}
                    for share, token in zip(*likely, strict=True)
                ],
                "probability": number(math.exp(log)) if known else None,
                "rank": rank if known else None,
                "loss": number(-log) if known else None,
            }
        )
    return {"loss": number(-logs[ranks > 0].mean()), "positions": positions}


def seen_at_targets(
    model: Transformer, scored: Scored, names: Sequence[str], tap: Tap = SILENT
) -> dict[str, Float[Tensor, "1 time width"]]:
    """Activations of a text; of several rows those at the position that is masked in each: row t gives t."""
    if len(scored.inputs) == 1:
        return model.trace(scored.inputs, names, tap=tap)
    kept: dict[str, list[Tensor]] = {name: [] for name in names}
    position = torch.arange(len(scored.inputs), device=scored.inputs.device)
    for rows, seen in passes(model, scored.inputs, names, tap):
        for name, value in seen.items():
            kept[name].append(value[torch.arange(len(value)), position[rows]])
    return {name: torch.cat(pieces)[None] for name, pieces in kept.items()}


def residual_norms(model: Transformer, tokens: Tokens) -> dict[str, Any]:
    """Norms of the stream, and of what each sublayer contributes to it, at every position of a text.

    Args:
        model: in evaluation mode.
        tokens: the text, `[1, time]`; a masked language model reads it with nothing masked.

    Returns:
        `stream`: for the embedding, the stream after each sublayer, and after the final norm, {"point", "mean",
        "positions"}; `added`: the same for the output of each sublayer, before a post-norm.
    """
    names = {"stream": [*stream_points(model.config), "final_norm"], "added": contribution_points(model.config)}
    seen = model.trace(tokens, [*names["stream"], *names["added"]])
    norms = {name: value[0].cpu().double().norm(dim=-1) for name, value in seen.items()}
    return {
        kind: [
            {"point": name, "mean": number(norms[name].mean()), "positions": numbers(norms[name])} for name in points
        ]
        for kind, points in names.items()
    }
