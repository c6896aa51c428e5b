"""The loss of a model on a part of a text: a full pass, every target scored once."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional

from vitral.core.errors import UsageError
from vitral.core.streams import numpy_stream
from vitral.data.batches import windows
from vitral.data.store import Split
from vitral.data.tokenizers import Tokenizer
from vitral.evaluation.masking import Masking
from vitral.model.transformer import Transformer, first_target


@dataclass(frozen=True)
class SplitLoss:
    """What a full pass over a part found.

    Attributes:
        loss: nats per token.
        num_targets: tokens that were predicted.
        num_characters: characters of those tokens (BPE and byte tokens: bytes that begin a UTF-8 character).
        num_bytes: UTF-8 bytes of those tokens.
    """

    loss: float
    num_targets: int
    num_characters: int
    num_bytes: int

    @property
    def perplexity(self) -> float:
        """exp(loss): between how many equally likely tokens the model is as unsure; inf where no float holds it."""
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
        """Everything, the derived numbers included, as plain data."""
        return {
            "loss": self.loss,
            "perplexity": self.perplexity,
            "bits_per_character": self.bits_per_character,
            "bits_per_byte": self.bits_per_byte,
            "num_targets": self.num_targets,
            "num_characters": self.num_characters,
            "num_bytes": self.num_bytes,
        }


def nothing() -> None:
    """Do nothing."""


def evaluate_split(
    model: Transformer,
    part: Split,
    tokenizer: Tokenizer,
    *,
    batch_tokens: int | None = None,
    masking: Masking | None = None,
    tick: Callable[[], None] = nothing,
) -> SplitLoss:
    """The model's loss on a part, in nats per token, over consecutive windows of its context length.

        loss = -(1/n) Σ log p(target | the tokens before it in its window)

    Every token but the first of a stretch is a target once; nothing is carried from one window to the next. Under a
    prefix mask only targets the prefix has not shown count. Under a bidirectional mask every target has been shown:
    all are scored, and the number says how well the model copies, not how well it predicts. Losses are summed in
    float64; the model is run without dropout and left in the mode it was in.

    With blanks another loss is measured: the windows are the same, some of their inputs are hidden, and what stood
    there is scored, each from all that its window shows. Which those are comes from a stream of seed 0, so it is the
    same whenever and for whatever run it is measured. Such a loss is of another task: it is not to be compared with
    one of next tokens, nor with n-gram lines.

    Args:
        model: whose loss it is.
        part: the tokens of train, validation or test.
        tokenizer: the model's, for the characters and bytes of each token.
        batch_tokens: tokens computed side by side; changes speed and memory, not the result. Left out: 4,096 on a CPU,
            whose caches they fit, 16,384 elsewhere.
        masking: how tokens are hidden, for a model that was trained to tell hidden ones.
        tick: is called after each batch; what it raises ends the pass.

    Raises:
        UsageError: a tokenizer that is not the model's, or a part in which nothing can be scored.
    """
    if model.vocab_size != tokenizer.vocab_size:
        raise UsageError(
            f"the model has {model.vocab_size} tokens and the tokenizer {tokenizer.vocab_size}: "
            "they do not come from the same run"
        )
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            on_cpu = model.token_embedding.weight.device.type == "cpu"
            passing = _pass if masking is None else partial(_masked_pass, masking=masking)
            nats, counts = passing(model, part, batch_tokens or (4096 if on_cpu else 16384), tick)
    finally:
        model.train(training)
    return _loss_of(nats, counts, part, model.config.context_length, tokenizer)


def bits_per_nat(part: Split, context_length: int, tokenizer: Tokenizer) -> float:
    """Bits per character of a model whose loss on the part is one nat per token: 1/ln 2 · tokens / characters.

    Raises:
        UsageError: a part in which nothing can be scored.
    """
    counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    for _, targets in windows(part, context_length, 256):
        counts += np.bincount(targets.numpy().ravel(), minlength=tokenizer.vocab_size)
    return _loss_of(float(counts.sum()), counts, part, context_length, tokenizer).bits_per_character


def _loss_of(
    nats: float, counts: Int[np.ndarray, " vocab"], part: Split, context_length: int, tokenizer: Tokenizer
) -> SplitLoss:
    """The sum of the targets' losses as a loss, from how often each token was a target."""
    characters, size = _sizes(tokenizer)
    num_targets, num_characters, num_bytes = int(counts.sum()), int(counts @ characters), int(counts @ size)
    if not num_targets or not num_characters:
        raise UsageError(
            f"nothing to score: the part's {len(part.tokens)} tokens hold no target for a model that sees "
            f"{context_length} at once; use a longer text"
        )
    return SplitLoss(nats / num_targets, num_targets, num_characters, num_bytes)


def _pass(
    model: Transformer, part: Split, batch_tokens: int, tick: Callable[[], None]
) -> tuple[float, Int[np.ndarray, " vocab"]]:
    """The sum of all targets' losses, and how often each token was a target."""
    first = first_target(model.mask)
    context_length = model.config.context_length
    device = model.token_embedding.weight.device
    nats, counts = 0.0, np.zeros(model.vocab_size, dtype=np.int64)
    for inputs, targets in windows(part, context_length, max(1, batch_tokens // context_length)):
        scored = targets[:, first:]
        if scored.numel():
            nats += _nats(model(inputs.to(device))[:, first:], scored.to(device))
            counts += np.bincount(scored.numpy().ravel(), minlength=model.vocab_size)
        tick()
    return nats, counts


def _masked_pass(
    model: Transformer, part: Split, batch_tokens: int, tick: Callable[[], None], *, masking: Masking
) -> tuple[float, Int[np.ndarray, " vocab"]]:
    """The sum of all hidden tokens' losses, and how often each token was hidden."""
    context_length, device = model.config.context_length, model.token_embedding.weight.device
    stream = numpy_stream(0, "blanks", "evaluation")
    nats, counts = 0.0, np.zeros(model.vocab_size, dtype=np.int64)
    for tokens, _ in windows(part, context_length, max(1, batch_tokens // context_length)):
        inputs, hidden = masking.hide(tokens, stream)
        scored = tokens[hidden][None, :]
        nats += _nats(model(inputs.to(device))[hidden.to(device)][None, :], scored.to(device))
        counts += np.bincount(scored.numpy().ravel(), minlength=model.vocab_size)
        tick()
    return nats, counts


def _nats(logits: Tensor, targets: Tensor) -> float:
    """The summed cross-entropy of [batch, time, vocab] logits, added up in float64."""
    each = functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none")
    return float(each.cpu().double().sum())


def _sizes(tokenizer: Tokenizer) -> tuple[Int[np.ndarray, " vocab"], Int[np.ndarray, " vocab"]]:
    """Characters and bytes of every token of the vocabulary."""
    pieces: Sequence[bytes] = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]
    # A UTF-8 character has one byte that is not of the form 10xxxxxx.
    characters = [sum(byte & 0b1100_0000 != 0b1000_0000 for byte in piece) for piece in pieces]
    return np.array(characters, dtype=np.int64), np.array([len(piece) for piece in pieces], dtype=np.int64)
