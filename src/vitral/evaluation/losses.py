"""The loss of a model on a split: one full pass that scores every target once."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from vitral.core.errors import UsageError
from vitral.core.language import N_
from vitral.core.machine import keep_freed_memory
from vitral.core.streams import numpy_stream
from vitral.data.batches import IGNORED, Reading, Split, reading_of, thinned, window_indices, windows
from vitral.data.dataset import Dataset
from vitral.data.tokenizers import Tokenizer
from vitral.evaluation.masking import Masking
from vitral.model.config import ModelConfig
from vitral.model.modes import evaluating
from vitral.model.transformer import Transformer, first_target

FINAL_TOKENS = 5_000_000
"""Most tokens of the test split on which final losses are measured."""


@dataclass(frozen=True)
class AnswerScore:
    """Right answers.

    Attributes:
        right: their number.
        total: of all answers that were asked for.
        left_out: number of records that are longer than the model reads, whose answers were not asked for.
    """

    right: int
    total: int
    left_out: int = 0

    @property
    def share(self) -> float:
        """Right answers as a share of all."""
        return self.right / self.total

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share (Wilson)."""
        from scipy.stats import binomtest  # slow to import

        low, high = binomtest(self.right, self.total).proportion_ci(method="wilson")
        return float(low), float(high)

    def plain(self) -> dict[str, Any]:
        """All numbers as plain data."""
        return {**vars(self), "share": self.share, "interval": list(self.interval)}


@dataclass(frozen=True)
class SplitLoss:
    """The result of a full pass over a split.

    Attributes:
        loss: nats per token; of labels, per text.
        num_targets: number of predicted tokens.
        num_characters: characters of those tokens (BPE and byte tokens: bytes that begin a UTF-8 character).
        num_bytes: UTF-8 bytes of those tokens.
        answers: of records, how many answers the model gives exactly, its most probable token at a time.
    """

    loss: float
    num_targets: int
    num_characters: int
    num_bytes: int
    answers: AnswerScore | None = None

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

    def plain(self) -> dict[str, Any]:
        """All numbers, including derived ones, as plain data."""
        return {
            "loss": self.loss,
            "perplexity": self.perplexity,
            "bits_per_character": self.bits_per_character,
            "bits_per_byte": self.bits_per_byte,
            "num_targets": self.num_targets,
            "num_characters": self.num_characters,
            "num_bytes": self.num_bytes,
            **({} if self.answers is None else {"exact_match": self.answers.plain()}),
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
    by the mask token, always by it, and these positions are scored. The masked positions come from a stream of seed 0,
    so they are the same for every run and at every step. This loss belongs to another task and cannot be compared with
    next-token losses or n-gram baselines.

    Args:
        model: the model.
        split: the tokens of train, validation or test.
        tokenizer: the model's tokenizer, for the characters and bytes of each token.
        batch_tokens: tokens per batch; affects speed and memory, not the result. Default: 4,096 on a CPU, to fit its
            caches, 16,384 elsewhere.
        masking: how tokens are hidden of a masked language model, or of a mixed one; None for next-token prediction.
        sizes: characters and bytes of the text that each token of the split stands for, where they are not those of
            the token (`vitral.evaluation.measures`).
        tick: called after each batch; an exception it raises ends the pass.

    Raises:
        UsageError: the tokenizer is not the model's, or the split contains no target.
    """
    model.require_vocabulary(tokenizer.vocab_size)
    nats, counts, text_sizes = 0.0, np.zeros(model.vocab_size, dtype=np.int64), np.zeros(2, dtype=np.int64)
    right, by_label = [np.empty(0, dtype=np.bool_)], model.config.num_labels is not None
    for logits, targets, indices in _scored(model, split, masking, batch_tokens, tick):
        nats += float(_nats(logits, targets).sum())
        counts += np.bincount(split.tokens[indices], minlength=model.vocab_size)
        text_sizes += 0 if sizes is None else [each[indices].sum() for each in sizes]
        if split.answers is not None:
            logits[:, [] if by_label else list(tokenizer.specials)] = -math.inf  # which are never generated
            is_right = (logits.argmax(-1) == targets).cpu().numpy()
            right.append(is_right if by_label else _right_answers(is_right, indices))
    result = _loss_of(nats, counts, split, model.config.context_length, tokenizer)
    every = np.concatenate(right)
    if split.answers is not None:
        fit = reading_of_config(model.config).fits(split)
        result = replace(result, answers=AnswerScore(int(every.sum()), len(every), len(fit) - int(fit.sum())))
    if by_label:
        result = replace(result, loss=nats / max(1, len(every)), num_targets=len(every))
    if sizes is None:
        return result
    if not text_sizes[0]:
        raise UsageError(NO_CHARACTER)
    return replace(result, num_characters=int(text_sizes[0]), num_bytes=int(text_sizes[1]))


def _scored(
    model: Transformer, split: Split, masking: Masking | None, batch_tokens: int | None, tick: Callable[[], None]
) -> Iterator[tuple[Tensor, Tensor, Int[np.ndarray, " targets"]]]:
    """Batches: the logits where a target is scored, these targets, and their indices in the split's tokens.

    Of labels the indices are those of the tokens of the labels.
    """
    reading, stream = reading_of_config(model.config), numpy_stream(0, "blanks", "evaluation")
    device, answers, first = model.token_embedding.weight.device, split.answers, first_target(model.mask)
    if device.type == "cpu":
        keep_freed_memory()
    most = batch_tokens or (4096 if device.type == "cpu" else 16384)
    opened = masking is not None and masking.is_shifted
    with evaluating(model):
        for indices in window_indices(split, reading, max(1, most // reading.context_length)):
            inputs, targets = reading.pair(split, indices)
            at, where = indices[1][:, 1:], (slice(None), slice(first, None))
            if masking is not None:
                inputs, targets = replace(masking, among=0).asked(inputs, stream)
                at, where = at if opened else indices[1][:, :-1], targets != IGNORED
            elif answers is not None and not reading.by_label:
                where = (targets != IGNORED) & (torch.arange(targets.shape[1]) >= first)
            if answers is not None and reading.by_label:
                at, where = at[answers.scored(split.tokens[indices[1]])[:, 1:]], slice(None)
            else:
                at = torch.from_numpy(at)[where].numpy().ravel()
            if at.size:
                logits = predicted(model, inputs.to(device), bidirectional=opened)[where].flatten(0, -2).float()
                yield logits, targets[where].flatten().to(device), at
            tick()


def _nats(logits: Tensor, targets: Tensor) -> Float[np.ndarray, " targets"]:
    return functional.cross_entropy(logits, targets, reduction="none").cpu().double().numpy()


def _right_answers(
    is_right: Bool[np.ndarray, " targets"], indices: Int[np.ndarray, " targets"]
) -> Bool[np.ndarray, " answers"]:
    """Whether all targets of each answer are right; those of one follow one another.

    Greedy decoding writes exactly the right answers: as long as it is right, it has read the same tokens.
    """
    begins = np.flatnonzero(np.diff(indices, prepend=-2) != 1)
    return np.logical_and.reduceat(is_right, begins)


def reading_of_config(config: ModelConfig, objective: Any = None) -> Reading:
    """How much a model reads of a record; before labels are counted, the objective tells that there are any."""
    return Reading(config.context_length, config.source_length, objective == "label" or config.num_labels is not None)


def predicted(
    model: Transformer, inputs: Int[Tensor, "batch time"], *, bidirectional: bool = False
) -> Float[Tensor, "batch *time outputs"]:
    """The logits of a batch as `windows` makes it."""
    length = model.config.source_length or 0
    source = inputs[:, :length] if length else None
    return model(inputs[:, length:], source=source, bidirectional=bidirectional)


def token_losses(model: Transformer, split: Split, *, batch_tokens: int = 4096) -> Float[np.ndarray, " targets"]:
    """The next-token loss of each target on its own, in nats, in the order of the text.

    The targets are all tokens but the first of each segment, so that models with different contexts have the same ones;
    of records they are the tokens of the answers. A target that a prefix mask shows to its position is NaN, and so are
    those of a record that is longer than the model reads. The mean of the others is the loss of `evaluate_split`.

    Args:
        model: the model; it runs without dropout and returns to its previous mode.
        split: the tokens; its segments are in the order of the text.
        batch_tokens: tokens per batch; affects speed and memory, not the result.
    """
    losses = np.full(len(split.tokens), np.nan)
    for logits, targets, indices in _scored(model, split, None, batch_tokens, no_tick):
        losses[indices] = _nats(logits, targets)
    everywhere = [np.arange(begin + 1, end) for begin, end in split.segments.tolist()]
    indices = np.concatenate([*everywhere, np.empty(0, dtype=np.int64)])
    return losses[indices if split.answers is None else indices[split.answers.scored(split.tokens)[indices]]]


def bits_per_nat(split: Split, context_length: int | Reading, tokenizer: Tokenizer) -> float:
    """Bits per character of a model whose loss on the split is one nat per token: 1/ln 2 · tokens / characters.

    Raises:
        UsageError: the split contains no target.
    """
    counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    for _, targets in windows(split, context_length, 256):
        counts += np.bincount(targets[targets != IGNORED].numpy(), minlength=tokenizer.vocab_size)
    return _loss_of(
        float(counts.sum()), counts, split, reading_of(context_length).context_length, tokenizer
    ).bits_per_character


def _loss_of(
    nats: float, counts: Int[np.ndarray, " vocab"], split: Split, context_length: int, tokenizer: Tokenizer
) -> SplitLoss:
    """The loss from the summed loss in nats and the number of times each token was a target."""
    characters, size = sizes_in(split, tokenizer)
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


def sizes_in(split: Split, tokenizer: Tokenizer) -> tuple[Int[np.ndarray, " vocab"], Int[np.ndarray, " vocab"]]:
    """The same in a split: of records the tokens that mark an answer have none."""
    sizes = token_sizes(tokenizer)
    if split.answers is not None:
        for each in sizes:
            each[[split.answers.opens, split.answers.closes]] = 0
    return sizes


def final_split(dataset: Dataset) -> Split:
    """The test split, thinned to FINAL_TOKENS where it is longer: for final losses and n-gram baselines."""
    return thinned(dataset.splits["test"], FINAL_TOKENS)
