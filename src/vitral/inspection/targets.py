"""Targets: the inputs of a forward pass and the tokens on which its loss is measured, of a text or of windows.

Legend of axes: batch = rows of tokens, time = positions, as in `vitral.core.names`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from vitral.core.errors import UsageError
from vitral.core.streams import numpy_stream
from vitral.core.taps import SILENT, Tap
from vitral.data import Split, Tokenizer
from vitral.data.batches import too_short
from vitral.evaluation import Masking
from vitral.model import Transformer, first_target

Tokens = Int[Tensor, "batch time"]
UNSCORED = -100
"""A target that does not count; the default `ignore_index` of `torch.nn.functional.cross_entropy`."""
MOST_BYTES = 200_000_000
"""A forward pass that would take more memory than this is split into several."""
SAMPLE_SEED = 0
"""Seed of the masked positions of a masked language model's windows: the same for every run."""


@dataclass(frozen=True, eq=False)
class Scored:
    """Rows of tokens with the targets on which a loss is measured; every row has equally many.

    Attributes:
        inputs: `[batch, time]`, ids as the model reads them.
        targets: `[batch, time]`, the id to be predicted at each position, or `UNSCORED`.
        sampled: whether the rows are a sample of a split's windows, so that their spread gives a standard error.
    """

    inputs: Tokens
    targets: Tokens
    sampled: bool = False

    @property
    def count(self) -> int:
        """Number of targets that count."""
        return int((self.targets != UNSCORED).sum())


def text_tokens(model: Transformer, tokenizer: Tokenizer, text: str) -> Int[Tensor, "1 time"]:
    """The ids of a text, on the model's device.

    Raises:
        UsageError: an empty text, one longer than the context, or a character without a token.
    """
    tokens = torch.from_numpy(tokenizer.encode(text))[None]
    require_readable(model, tokens)
    return tokens.to(model.token_embedding.weight.device)


def require_readable(model: Transformer, tokens: Int[Tensor, "1 time"]) -> None:
    """Refuse a text without tokens, and one longer than the context."""
    if not 1 <= tokens.shape[1] <= model.config.context_length:
        raise UsageError(
            "the text has {n:,} tokens; the model reads 1 to {most:,}",
            n=tokens.shape[1],
            most=model.config.context_length,
        )


def text_targets(model: Transformer, tokens: Tokens, masking: Masking | None = None) -> Scored:
    """The targets of one text.

    Of a model of next tokens: one row; the target of a position is the token after it. The last position has none, nor
    has a position inside a prefix, which sees its next token.

    Of a masked language model: one row for each position, in which that position alone is masked and is the only
    target, each predicted from all others (pseudo-log-likelihood, Salazar et al. 2020, eq. 1).

    Args:
        model: gives the mask, and with it the first target.
        tokens: the text; of a model of next tokens also several of one length.
        masking: of a masked language model; None for a model of next tokens.
    """
    time = tokens.shape[1]
    if masking is not None:
        hidden = torch.eye(time, dtype=torch.bool, device=tokens.device)
        rows = tokens.expand(time, time)
        return Scored(rows.masked_fill(hidden, masking.token), rows.masked_fill(~hidden, UNSCORED))
    following = torch.cat([tokens[:, 1:], torch.full_like(tokens[:, :1], UNSCORED)], dim=1)
    return next_token_targets(model, tokens, following)


def window_starts(split: Split, span: int, most: int | None, *, stride: int) -> Int[np.ndarray, " windows"]:
    """Indices of the first tokens of windows, in increasing order.

    Args:
        split: the tokens.
        span: tokens of a window, the target of its last position included where targets are wanted.
        most: windows wanted, at least one; of more, as many are chosen, evenly spread. None for all.
        stride: tokens from the start of one window to the start of the next in a segment.
    """
    starts = np.concatenate(
        [np.arange(begin, end - span + 1, stride) for begin, end in split.segments.tolist()] or [np.empty(0, np.int64)]
    )
    if most is None or len(starts) <= most:
        return starts
    return starts[np.linspace(0, len(starts), max(1, most), endpoint=False).astype(np.int64)]


def read_windows(split: Split, starts: Int[np.ndarray, " windows"], span: int) -> Int[Tensor, "windows span"]:
    """The `span` tokens from each start on, int64."""
    tokens = split.tokens
    return torch.from_numpy(tokens[starts[:, None] + np.arange(span)].astype(np.int64))


def spread_windows(split: Split, time: int, most: int) -> Int[Tensor, "windows time"]:
    """At most `most` windows of `time` tokens that do not overlap."""
    return read_windows(split, window_starts(split, time, most, stride=time), time)


def scored_windows(
    split: Split, context_length: int, most: int
) -> tuple[Int[Tensor, "windows time"], Int[Tensor, "windows time"]]:
    """At most `most` windows of a whole context, and their targets.

    Raises:
        UsageError: the split has no segment of `context_length` + 1 tokens.
    """
    starts = window_starts(split, context_length + 1, most, stride=context_length)
    if not len(starts):
        raise UsageError(too_short(split, context_length))
    rows = read_windows(split, starts, context_length + 1)
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def window_targets(model: Transformer, part: Split, count: int, masking: Masking | None = None) -> Scored:
    """Windows of a split with their targets, evenly spread over it, the same for every run.

    Args:
        model: gives the context length and the mask.
        part: the tokens of a split.
        count: number of windows; fewer where the split has fewer.
        masking: of a masked language model, whose targets are the masked tokens of each window.

    Raises:
        UsageError: a split shorter than a window.
    """
    device = model.token_embedding.weight.device
    inputs, following = (each.to(device) for each in scored_windows(part, model.config.context_length, count))
    if masking is None:
        return next_token_targets(model, inputs, following, sampled=True)
    masked, hidden = masking.hide(inputs, numpy_stream(SAMPLE_SEED, "blanks", "inspection"))
    return Scored(masked, inputs.masked_fill(~hidden, UNSCORED), sampled=True)


def next_token_targets(
    model: Transformer,
    inputs: Tokens,
    following: Tokens,
    *,
    sampled: bool = False,
) -> Scored:
    """Rows with the tokens that follow as targets, without those that the mask shows, unless it shows all."""
    kept = following.clone()
    kept[:, : first_target(model.mask)] = UNSCORED
    return Scored(inputs, kept, sampled)


def loss_by_row(model: Transformer, scored: Scored, tap: Tap = SILENT) -> Float[Tensor, " batch"]:
    """Mean cross-entropy of each row's targets in nats per token, in float64 on the CPU; NaN for a row without any."""
    counts = (scored.targets != UNSCORED).sum(dim=1).cpu()
    return loss_by_target(model, scored, tap).sum(dim=1) / counts


def loss_by_target(
    model: Transformer, scored: Scored, tap: Tap = SILENT, *, most_rows: int | None = None
) -> Float[Tensor, "batch time"]:
    """Cross-entropy of each target in nats, in float64 on the CPU; 0 where there is none; see `passes`."""
    each = []
    for rows, seen in passes(model, scored.inputs, ["logits"], tap, most_rows):
        logits, targets = seen["logits"], scored.targets[rows]
        losses = functional.cross_entropy(
            logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, 1),
            targets.flatten(),
            reduction="none",
            ignore_index=UNSCORED,
        )
        each.append(losses.cpu().double().view(targets.shape))
    return torch.cat(each)


def passes(
    model: Transformer,
    inputs: Tokens,
    names: Sequence[str],
    tap: Tap = SILENT,
    most_rows: int | None = None,
    *,
    bidirectional: bool = False,
) -> Iterator[tuple[slice, dict[str, Tensor]]]:
    """Forward passes over all rows, a few at a time: which rows, and their named activations after a tap's edits.

    At most `most_rows` at a time; if None, so few that a pass takes less than about `MOST_BYTES`. Counted per position:
    logits, their logarithms and float copies (three vocabularies), sixteen widths, and the weights of every head and
    layer with four copies of one layer's. `bidirectional`: without a causal mask.
    """
    time, config = inputs.shape[1], model.config
    weights = 0 if model.mask is None else config.num_heads * time * (config.num_layers + 4)
    each = 4 * time * (3 * model.vocab_size + 16 * config.d_model + weights)
    most = most_rows or max(1, MOST_BYTES // each)
    for begin in range(0, len(inputs), most):
        rows = slice(begin, begin + most)
        yield rows, model.trace(inputs[rows], names, tap=tap, bidirectional=bidirectional)


def read_activation(
    model: Transformer, inputs: Tokens, name: str, read: Callable[[Tensor], Tensor], *, bidirectional: bool = False
) -> Float[Tensor, "batch ..."]:
    """What `read` makes of one named activation, for all rows, on the CPU; `bidirectional`: without a causal mask."""
    traced = passes(model, inputs, [name], bidirectional=bidirectional)
    return torch.cat([read(seen[name]).cpu() for _rows, seen in traced])
