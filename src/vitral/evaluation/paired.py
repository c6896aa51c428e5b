"""The losses of two models on the same text, target by target, and their difference in blocks of the text.

The blocks are the units of a paired interval: contiguous pieces of the test split, equal in targets (the same tokens)
or in characters (other tokens). Such an interval is the uncertainty over texts like this one, for these two models; it
says nothing about other seeds.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from vitral.core.errors import UsageError
from vitral.data.batches import Split
from vitral.data.tokenizers import Tokenizer
from vitral.evaluation.losses import SplitLoss, sizes_in, token_losses
from vitral.evaluation.ngrams import LONG, WittenBell, laid_out, scored_targets
from vitral.model.transformer import Transformer

BLOCKS = 30
"""Blocks of a test split at most."""
LEAST = 200
"""Targets or characters of a block at least: neighbouring losses are not independent."""


@dataclass(frozen=True, eq=False)
class TargetLosses:
    """The losses of one model on the targets of a split.

    Attributes:
        nats: of each target, in the order of the text; NaN where the model's mask shows the target.
        offsets: characters of the split before each target.
        num_characters: of the whole split, first tokens of segments included.
        whole: the loss over all scored targets.
    """

    nats: Float[np.ndarray, " targets"]
    offsets: Int[np.ndarray, " targets"]
    num_characters: int
    whole: SplitLoss


def target_losses(model: Transformer, split: Split, tokenizer: Tokenizer) -> TargetLosses:
    """The next-token loss of every target of a split, with its place in the text.

    Raises:
        UsageError: the tokenizer is not the model's, or the split contains no target.
    """
    model.require_vocabulary(tokenizer.vocab_size)
    nats = token_losses(model, split)
    tokens, depths = laid_out(split, model.vocab_size)
    characters, sizes = sizes_in(split, tokenizer)
    ends = np.cumsum(characters[tokens])
    targets = scored_targets(split, tokens, depths)
    scored = tokens[targets][~np.isnan(nats)]
    if not scored.size or not characters[scored].sum():
        raise UsageError("nothing to score: the split's {tokens} tokens contain no target", tokens=len(tokens))
    loss = float(np.nansum(nats)) / scored.size
    whole = SplitLoss(loss, scored.size, int(characters[scored].sum()), int(sizes[scored].sum()))
    offsets = (ends - characters[tokens])[targets]
    return TargetLosses(nats, offsets, int(ends[-1]), whole)


def block_differences(one: TargetLosses, other: TargetLosses, *, same_tokens: bool) -> Float[np.ndarray, " blocks"]:
    """The loss of one model minus that of another in each block of the same text.

    The mean over the blocks is the difference over the whole text: with the same tokens in nats per token, over the
    targets that both models predict; with other tokens in bits per character.

    Args:
        one: losses of the first model.
        other: losses of the second model.
        same_tokens: whether the targets are the same tokens.

    Raises:
        UsageError: the texts are not the same, or too short for two blocks.
    """
    if (same_tokens and one.nats.shape != other.nats.shape) or one.num_characters != other.num_characters:
        raise UsageError("paired losses: the two test splits are not the same text")
    if same_tokens:
        both = ~np.isnan(one.nats) & ~np.isnan(other.nats)
        return _blocks_of((one.nats - other.nats)[both])
    size, blocks = one.num_characters, min(BLOCKS, one.num_characters // LEAST)
    _require_blocks(blocks, size)
    first, second = (_bits(each, blocks) for each in (one, other))
    return (first - second) * blocks


def ngram_differences(model: Transformer, train: Split, test: Split, orders: int) -> dict[int, list[float]]:
    """The loss of a model minus that of an n-gram baseline in each block of the test split, by order.

    Nats per token, over the targets that the model predicts; see `WittenBell` for the baselines. The mean over the
    blocks is the difference over the whole split.

    Args:
        model: in evaluation mode, causal.
        train: counted.
        test: scored, by both.
        orders: of the n-grams, from 1.

    Raises:
        UsageError: the splits are too long to be counted whole, or the test split is too short for two blocks.
    """
    if len(train.tokens) + len(test.tokens) > LONG:
        raise UsageError(
            "n-grams: {tokens:,} tokens are too many to be counted target by target",
            tokens=len(train.tokens) + len(test.tokens),
        )
    nats = token_losses(model, test)
    scored = ~np.isnan(nats)
    rows = WittenBell(train, model.vocab_size, orders).nats(test)
    return {order: _blocks_of((nats - row)[scored]).tolist() for order, row in enumerate(rows, start=1)}


def _blocks_of(differences: Float[np.ndarray, " targets"]) -> Float[np.ndarray, " blocks"]:
    """Sums over blocks of equal targets, scaled so that their mean is the mean of all."""
    size, blocks = differences.size, min(BLOCKS, differences.size // LEAST)
    _require_blocks(blocks, size)
    sums = np.bincount(np.arange(size) * blocks // size, weights=differences, minlength=blocks)
    return sums * blocks / size


def _bits(losses: TargetLosses, blocks: int) -> Float[np.ndarray, " blocks"]:
    """Bits of each block, divided by the scored characters of all."""
    block = np.minimum(losses.offsets * blocks // losses.num_characters, blocks - 1)
    sums = np.bincount(block, weights=np.nan_to_num(losses.nats), minlength=blocks)
    return sums / math.log(2) / losses.whole.num_characters


def _require_blocks(blocks: int, size: int) -> None:
    if blocks < 2:
        raise UsageError(
            "paired losses: {size:,} are too few for an interval, which needs {least:,}", size=size, least=2 * LEAST
        )
