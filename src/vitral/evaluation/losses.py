"""The loss of a model on a split: one full pass that scores every target once."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from vitral.core.allocation import keep_freed_memory
from vitral.core.errors import UsageError
from vitral.core.language import N_
from vitral.core.streams import numpy_stream
from vitral.data.batches import Split, window_begins, windows
from vitral.data.tokenizers import Tokenizer
from vitral.evaluation.masking import Masking
from vitral.model.modes import evaluating
from vitral.model.transformer import Transformer, first_target


@dataclass(frozen=True)
class SplitLoss:
    """The result of a full pass over a split.

    Attributes:
        loss: nats per token.
        num_targets: number of predicted tokens.
        num_characters: characters of those tokens (BPE and byte tokens: bytes that begin a UTF-8 character).
        num_bytes: UTF-8 bytes of those tokens.
    """

    loss: float
    num_targets: int
    num_characters: int
    num_bytes: int

    @property
    def perplexity(self) -> float:
        """exp(loss), the effective number of choices per token; inf on overflow."""
        return math.inf if self.loss > 709 else math.exp(self.loss)

    @property
    def bits_per_character(self) -> float:
        """Total nats / ln 2 / characters: comparable across tokenizers of one text."""
        return self._bits / self.num_characters

    @property
    def bits_per_byte(self) -> float:
        """Total nats / ln 2 / bytes: comparable across tokenizers and alphabets."""
        return self._bits / self.num_bytes

    @property
    def _bits(self) -> float:
        return self.loss * self.num_targets / math.log(2)

    def plain(self) -> dict[str, float | int]:
        """All numbers, including derived ones, as plain data."""
        return {
            "loss": self.loss,
            "perplexity": self.perplexity,
            "bits_per_character": self.bits_per_character,
            "bits_per_byte": self.bits_per_byte,
            "num_targets": self.num_targets,
            "num_characters": self.num_characters,
            "num_bytes": self.num_bytes,
        }


NO_CHARACTER = N_(
    "nothing to score: the tokens after the first contain no whole character of the text; use a longer text"
)


def no_tick() -> None:
    """The default progress callback: do nothing."""


def evaluate_split(
    model: Transformer,
    split: Split,
    tokenizer: Tokenizer,
    *,
    batch_tokens: int | None = None,
    masking: Masking | None = None,
    sizes: tuple[Int[np.ndarray, " tokens"], Int[np.ndarray, " tokens"]] | None = None,
    tick: Callable[[], None] = no_tick,
) -> SplitLoss:
    """The model's loss on a split, in nats per token, over consecutive windows of its context length.

        loss = -(1/n) Σ log p(target | the tokens before it in its window)

    Every token except the first of a segment is a target once; windows share no state. Under a prefix mask, targets
    inside the prefix do not count. Under a bidirectional mask every target is visible: all are scored, and the loss
    measures copying, not prediction. Losses are summed in float64; the model runs without dropout and returns to
    its previous mode.

    With `masking` the loss is that of a masked language model: the windows are the same, some input tokens are replaced
    by the mask token, and these positions are scored. The masked positions come from a stream of seed 0, so they are
    the same for every run and at every step. This loss belongs to another task and cannot be compared with next-token
    losses or n-gram baselines.

    Args:
        model: the model.
        split: the tokens of train, validation or test.
        tokenizer: the model's tokenizer, for the characters and bytes of each token.
        batch_tokens: tokens per batch; affects speed and memory, not the result. Default: 4,096 on a CPU, to fit its
            caches, 16,384 elsewhere.
        masking: the masking of a masked language model; None for next-token prediction.
        sizes: characters and bytes of the text that each token of the split stands for, where they are not those of
            the token (`vitral.evaluation.text_sizes`).
        tick: called after each batch; an exception it raises ends the pass.

    Raises:
        UsageError: the tokenizer is not the model's, or the split contains no target.
    """
    model.require_vocabulary(tokenizer.vocab_size)
    device = model.token_embedding.weight.device
    if device.type == "cpu":
        keep_freed_memory()
    most = batch_tokens or (4096 if device.type == "cpu" else 16384)
    nats, counts = 0.0, np.zeros(model.vocab_size, dtype=np.int64)
    with evaluating(model):
        for inputs, place, targets in _scored(model, split, masking, most):
            if targets.numel():
                logits = model(inputs.to(device))[place].flatten(0, -2).float()
                each = functional.cross_entropy(logits, targets.flatten().to(device), reduction="none")
                nats += float(each.cpu().double().sum())
                counts += np.bincount(targets.numpy().ravel(), minlength=model.vocab_size)
            tick()
    found = _loss_of(nats, counts, split, model.config.context_length, tokenizer)
    if sizes is None:
        return found
    everywhere = Split(np.arange(len(split.tokens)), split.segments)
    places = [targets.numpy().ravel() for _, _, targets in _scored(model, everywhere, masking, most)]
    characters, bytes_ = (sum(int(each[some].sum()) for some in places) for each in sizes)
    if not characters:
        raise UsageError(NO_CHARACTER)
    return replace(found, num_characters=characters, num_bytes=bytes_)


def _scored(
    model: Transformer, split: Split, masking: Masking | None, batch_tokens: int
) -> Iterator[tuple[Tensor, Any, Tensor]]:
    """Batches: inputs, the index of the scored positions, and the targets there."""
    context_length, stream = model.config.context_length, numpy_stream(0, "blanks", "evaluation")
    seen = slice(None), slice(first_target(model.mask), None)
    for inputs, targets in windows(split, context_length, max(1, batch_tokens // context_length)):
        if masking is None:
            yield inputs, seen, targets[seen]
        else:
            blanked, hidden = masking.hide(inputs, stream)
            yield blanked, hidden, inputs[hidden]


def token_losses(
    model: Transformer, split: Split, *, batch_tokens: int = 4096, tick: Callable[[], None] = no_tick
) -> Float[np.ndarray, " targets"]:
    """The next-token loss of each target on its own, in nats, in the order of the text.

    The targets are all tokens but the first of each segment, so that models with different contexts have the same ones.
    A target that a prefix mask shows to its position is NaN. The mean of the others is the loss of `evaluate_split`.

    Args:
        model: the model; it runs without dropout and returns to its previous mode.
        split: the tokens; its segments are in the order of the text.
        batch_tokens: tokens per batch; affects speed and memory, not the result.
        tick: called after each batch; an exception it raises ends the pass.
    """
    context_length, first = model.config.context_length, first_target(model.mask)
    begins, sizes = split.segments[:, 0], np.maximum(split.segments[:, 1] - split.segments[:, 0] - 1, 0)
    targets_before = np.cumsum(sizes) - sizes
    tokens, device = split.tokens, model.token_embedding.weight.device
    found = np.full(int(sizes.sum()), np.nan)
    with evaluating(model):
        for length, starts in window_begins(split, context_length):
            rows = max(1, batch_tokens // length)
            for row in range(0, starts.size, rows):
                some = starts[row : row + rows]
                ids = torch.from_numpy(tokens[some[:, None] + np.arange(length + 1)].astype(np.int64))
                logits = model(ids[:, :-1].to(device)).float().flatten(0, 1)
                nats = functional.cross_entropy(logits, ids[:, 1:].to(device).flatten(), reduction="none")
                each = nats.cpu().double().numpy().reshape(len(some), length)
                segment = np.searchsorted(begins, some, side="right") - 1
                places = targets_before[segment] + some - begins[segment]
                found[(places[:, None] + np.arange(length))[:, first:]] = each[:, first:]
                tick()
    return found


def bits_per_nat(split: Split, context_length: int, tokenizer: Tokenizer) -> float:
    """Bits per character of a model whose loss on the split is one nat per token: 1/ln 2 · tokens / characters.

    Raises:
        UsageError: the split contains no target.
    """
    counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    for _, targets in windows(split, context_length, 256):
        counts += np.bincount(targets.numpy().ravel(), minlength=tokenizer.vocab_size)
    return _loss_of(float(counts.sum()), counts, split, context_length, tokenizer).bits_per_character


def _loss_of(
    nats: float, counts: Int[np.ndarray, " vocab"], split: Split, context_length: int, tokenizer: Tokenizer
) -> SplitLoss:
    """The loss from the summed loss in nats and the number of times each token was a target."""
    characters, size = token_sizes(tokenizer)
    num_targets, num_characters, num_bytes = int(counts.sum()), int(counts @ characters), int(counts @ size)
    if not num_targets:
        raise UsageError(
            "nothing to score: the split's {tokens} tokens contain no target for a context of "
            "{context_length}; use a longer text",
            tokens=len(split.tokens),
            context_length=context_length,
        )
    if not num_characters:
        raise UsageError(NO_CHARACTER)
    return SplitLoss(nats / num_targets, num_targets, num_characters, num_bytes)


def token_sizes(tokenizer: Tokenizer) -> tuple[Int[np.ndarray, " vocab"], Int[np.ndarray, " vocab"]]:
    """Characters and bytes of every token of the vocabulary."""
    pieces: Sequence[bytes] = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]
    # A UTF-8 character has one byte that is not of the form 10xxxxxx.
    characters = [sum(byte & 0b1100_0000 != 0b1000_0000 for byte in piece) for piece in pieces]
    return np.array(characters, dtype=np.int64), np.array([len(piece) for piece in pieces], dtype=np.int64)
