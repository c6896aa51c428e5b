"""N-gram baselines: losses of n-gram models on a text, for comparison with a model's loss.

Witten-Bell interpolation (Witten & Bell 1991, method C; Chen & Goodman 1998, §2.4):

    p_n(w | h) = (c(h w) + T(h) p_{n-1}(w | h')) / (c(h) + T(h))

h: the n - 1 tokens before w; h': h without its first token; c: count in the training split (c(h): followed by a token);
T(h): number of distinct tokens after h. For an unseen h, p_n = p_{n-1}; p_0 = 1 / vocab.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from jaxtyping import Bool, Float, Int

from vitral.core.errors import UsageError
from vitral.data.batches import IGNORED, Split, thinned, windows
from vitral.evaluation.baselines import NgramBaselines
from vitral.evaluation.losses import no_tick

TABLE = 2**24
"""Up to this many possible n-grams are counted in a table, which is faster than sorting with equal results."""

LONG = 2**25
"""Above this number of tokens only a sample is counted: counting takes about a hundred bytes per token."""
WINDOWS_AT_ONCE = 1024
COUNTED = 2**20
"""Size of that sample: evenly spaced tokens of each split."""


def ngram_baselines(
    train: Split, test: Split, vocab_size: int, orders: int = 6, *, tick: Callable[[], None] = no_tick
) -> NgramBaselines:
    """Count n-grams on the training split and score the test split, at orders 1 to `orders`.

    As for a model, the first token of a segment is context and not scored, and contexts do not extend beyond the start
    of a segment; of records only the tokens of answers are counted and scored, and the others are context. If both
    splits together have more than LONG tokens, COUNTED tokens of each are used, which makes the baselines weaker.

    Raises:
        UsageError: there are no orders, no token to score, or a token is outside the vocabulary.
    """
    train, test, counted = counted_parts(train, test)
    nats = WittenBell(train, vocab_size, orders, tick=tick).nats(test)
    losses = {order: float(row.mean()) for order, row in enumerate(nats, start=1)}
    return NgramBaselines(losses, bigram_entropy(test, vocab_size), counted)


def counted_parts(train: Split, test: Split) -> tuple[Split, Split, int | None]:
    """The parts of both splits that are counted and scored, and the number of counted tokens; None if all are."""
    if len(train.tokens) + len(test.tokens) <= LONG:
        return train, test, None
    train, test = thinned(train, COUNTED), thinned(test, COUNTED)
    return train, test, int(train.lengths.sum())


def counts_by_order(train: Split, vocab_size: int) -> "Iterator[Counts]":
    """The counts of a split at orders 1, 2, 3 and so on without end, each counted when it is asked for.

    Raises:
        UsageError: a token is outside the vocabulary.
    """
    tokens, depths = laid_out(train, vocab_size)
    contexts, num_contexts = np.zeros_like(tokens), 1
    counted = None if train.answers is None else train.answers.scored(tokens)
    while True:
        counts, grams = _count(contexts, tokens, num_contexts, vocab_size, counted)
        yield counts
        contexts, num_contexts = _as_contexts(grams, depths), len(counts.keys)


class WittenBell:
    """Witten-Bell n-gram model of a split.

    A context is an integer: its index among the distinct contexts of its length. Context and next token are again one
    integer (index · vocab + token), so counting is sorting.

    Attributes:
        vocab_size: number of tokens in the vocabulary.
        num_orders: the highest order.
    """

    def __init__(self, train: Split, vocab_size: int, num_orders: int, *, tick: Callable[[], None] = no_tick) -> None:
        """Count all n-grams of orders 1 to `num_orders`.

        Raises:
            UsageError: `num_orders` is below 1, or a token is outside the vocabulary.
        """
        self.vocab_size, self.num_orders = vocab_size, num_orders
        self._counts: list[Counts] = []
        for counts in islice(counts_by_order(train, vocab_size), num_orders):
            self._counts.append(counts)
            tick()

    @classmethod
    def of_counts(cls, counts: "Sequence[Counts]", vocab_size: int) -> "WittenBell":
        """The model of counts that have been made (`counts_by_order`), those of order 1 first."""
        made = cls.__new__(cls)
        made.vocab_size, made.num_orders, made._counts = vocab_size, len(counts), list(counts)
        return made

    def following(self, tokens: Int[np.ndarray, " time"]) -> Float[np.ndarray, " vocab"]:
        """The probability of every token after these, of the highest order.

        Raises:
            UsageError: a token is outside the vocabulary.
        """
        before = np.asarray(tokens, dtype=np.int64)[len(tokens) - min(len(tokens), self.num_orders - 1) :]
        if len(before) and not 0 <= before.min() <= before.max() < self.vocab_size:
            raise UsageError(
                "n-grams: token {token} is outside the vocabulary of {vocab_size}",
                token=str(before.max()),
                vocab_size=self.vocab_size,
            )
        probabilities = np.full(self.vocab_size, 1 / self.vocab_size)
        every = np.arange(self.vocab_size)
        for order in range(1, min(self.num_orders, len(before) + 1) + 1):
            context = 0
            for depth, token in enumerate(before[len(before) - order + 1 :].tolist()):
                context = self._counts[depth].number(context, token, self.vocab_size)
            contexts = np.full(self.vocab_size, context)
            probabilities, _ = self._counts[order - 1].interpolate(contexts, every, probabilities, self.vocab_size)
        return probabilities

    def nats(self, split: Split) -> Float[np.ndarray, "orders targets"]:
        """-log p of every target (`scored_targets`), one row per order.

        Raises:
            UsageError: there is no such token, or a token is outside the vocabulary.
        """
        tokens, depths = laid_out(split, self.vocab_size)
        targets = scored_targets(split, tokens, depths)
        if not targets.any():
            raise UsageError(
                "n-grams: nothing to score: none of the split's {tokens} tokens has a predecessor", tokens=len(tokens)
            )
        rows = np.empty((self.num_orders, int(targets.sum())))
        probabilities = np.full(len(tokens), 1 / self.vocab_size)
        contexts = np.zeros_like(tokens)
        for row, counts in zip(rows, self._counts, strict=True):
            probabilities, grams = counts.interpolate(contexts, tokens, probabilities, self.vocab_size)
            row[:] = 0 - np.log(probabilities[targets])  # a certain token has 0, not -0
            contexts = _as_contexts(grams, depths)
        return rows


def bigram_entropy(split: Split, vocab_size: int) -> float:
    """H(w | v) = -Σ c(v w)/N log(c(v w)/c(v)) over the split's pairs of adjacent tokens, in nats (Shannon 1951, eq. 1).

    Raises:
        UsageError: the split contains no pair, or a token is outside the vocabulary.
    """
    tokens, depths = laid_out(split, vocab_size)
    targets = scored_targets(split, tokens, depths)
    ones, grams = _count(np.zeros_like(tokens), tokens, 1, vocab_size)
    contexts = np.where(targets, _as_contexts(grams, depths), -1)
    counts, _ = _count(contexts, tokens, len(ones.keys), vocab_size)
    total = counts.counts.sum()
    if not total:
        raise UsageError("bigram entropy: the split's {tokens} tokens contain no adjacent pair", tokens=len(tokens))
    shares = counts.counts / counts.context_counts[counts.keys // vocab_size]
    return float(0 - (counts.counts * np.log(shares)).sum() / total)


def entropy_by_place(split: Split, context_length: int) -> float:
    """H(w | v, p) of the split's targets w, v the token before and p its position in the window, in nats.

    The windows are those of `evaluate_split`, so by Gibbs' inequality no function of the current token and its position
    has a lower loss there, whatever it has learned.

    Raises:
        UsageError: the split contains no target.
    """
    seen, following = [], []
    for inputs, targets in windows(split, context_length, WINDOWS_AT_ONCE):
        positions = np.broadcast_to(np.arange(inputs.shape[1]), inputs.shape)
        scored = targets.numpy() != IGNORED
        seen.append((inputs.numpy() * context_length + positions)[scored])
        following.append(targets.numpy()[scored])
    if not sum(map(len, seen)):
        raise UsageError("entropy by place: the split has no target")
    _, contexts = np.unique(np.concatenate(seen), return_inverse=True)
    targets = np.concatenate(following)
    pairs, counts = np.unique(contexts * (int(targets.max()) + 1) + targets, return_counts=True)
    shares = counts / np.bincount(contexts)[pairs // (int(targets.max()) + 1)]
    return float(0 - (counts * np.log(shares)).sum() / counts.sum())


@dataclass(frozen=True)
class Counts:
    """The counts of one order.

    Attributes:
        keys: the distinct n-grams as context · vocab + token, sorted; an n-gram's index here is its number.
        counts: occurrences of each.
        context_counts: c(h) of every context.
        context_kinds: T(h) of every context.
    """

    keys: Int[np.ndarray, " grams"]
    counts: Int[np.ndarray, " grams"]
    context_counts: Int[np.ndarray, " contexts"]
    context_kinds: Int[np.ndarray, " contexts"]

    def number(self, context: int, token: int, vocab_size: int) -> int:
        """The number of an n-gram; -1 if it is unseen, or its context is."""
        key = context * vocab_size + token
        index = int(np.searchsorted(self.keys, key))
        return index if context >= 0 and index < len(self.keys) and self.keys[index] == key else -1

    def interpolate(
        self,
        contexts: Int[np.ndarray, " time"],
        tokens: Int[np.ndarray, " time"],
        lower: Float[np.ndarray, " time"],
        vocab_size: int,
    ) -> tuple[Float[np.ndarray, " time"], Int[np.ndarray, " time"]]:
        """p_n of each token from p_{n-1}; and the number of each n-gram, -1 if unseen.

        A missing or unseen context is -1; there p_n = p_{n-1}.
        """
        probabilities, grams = lower.copy(), np.full(len(tokens), -1)
        known = np.flatnonzero(contexts >= 0)
        known = known[self.context_counts[contexts[known]] > 0]
        if len(known):
            held = contexts[known]
            keys = held * vocab_size + tokens[known]
            indices = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
            is_seen = self.keys[indices] == keys
            kinds = self.context_kinds[held]
            seen = np.where(is_seen, self.counts[indices], 0)
            probabilities[known] = (seen + kinds * lower[known]) / (self.context_counts[held] + kinds)
            grams[known[is_seen]] = indices[is_seen]
        return probabilities, grams


def _count(
    contexts: Int[np.ndarray, " time"],
    tokens: Int[np.ndarray, " time"],
    num_contexts: int,
    vocab_size: int,
    counted: Bool[np.ndarray, " time"] | None = None,
) -> tuple[Counts, Int[np.ndarray, " time"]]:
    """Number every (context, token) and count those at `counted` places, or all; context -1 means none.

    The n-gram of a missing context is -1.
    """
    there = contexts >= 0
    # Contexts number at most the tokens of a split, so context · vocab + token stays far inside 63 bits.
    keys, indices, counts = _distinct(contexts[there] * vocab_size + tokens[there], num_contexts * vocab_size)
    if counted is not None:
        counts = np.bincount(indices, weights=counted[there], minlength=len(keys)).astype(np.int64)
    holders = keys // vocab_size
    context_kinds = np.bincount(holders, weights=counts > 0, minlength=num_contexts).astype(np.int64)
    context_counts = np.bincount(holders, weights=counts, minlength=num_contexts).astype(np.int64)
    grams = np.full(len(tokens), -1)
    grams[there] = indices
    return Counts(keys, counts, context_counts, context_kinds), grams


def _distinct(
    keys: Int[np.ndarray, " time"], size: int
) -> tuple[Int[np.ndarray, " grams"], Int[np.ndarray, " time"], Int[np.ndarray, " grams"]]:
    """The distinct keys, all below `size`, sorted; the index of each key among them; the occurrences of each."""
    if size > TABLE:
        return np.unique(keys, return_inverse=True, return_counts=True)
    table = np.bincount(keys, minlength=size)
    distinct = np.flatnonzero(table)
    indices = np.zeros(size, dtype=np.int64)
    indices[distinct] = np.arange(len(distinct))
    return distinct, indices[keys], table[distinct]


def _as_contexts(grams: Int[np.ndarray, " time"], depths: Int[np.ndarray, " time"]) -> Int[np.ndarray, " time"]:
    """The n-gram that ends before each token; -1 for an unseen n-gram or at the start of a segment."""
    contexts = np.full_like(grams, -1)
    contexts[1:] = grams[:-1]
    contexts[depths == 0] = -1
    return contexts


def scored_targets(
    split: Split, tokens: Int[np.ndarray, " time"], depths: Int[np.ndarray, " time"]
) -> Bool[np.ndarray, " time"]:
    """Whether each token that was laid out is a target: all but the first of a segment; of records those of answers."""
    return depths > 0 if split.answers is None else split.answers.scored(tokens)


def laid_out(split: Split, vocab_size: int) -> tuple[Int[np.ndarray, " time"], Int[np.ndarray, " time"]]:
    """The concatenated tokens of all segments, and the number of tokens before each in its segment.

    Raises:
        UsageError: a token is outside the vocabulary.
    """
    lengths = split.lengths
    pieces = [split.tokens[begin:end] for begin, end in split.segments]
    tokens = np.concatenate([*pieces, np.empty(0, dtype=split.tokens.dtype)]).astype(np.int64)
    if len(tokens) and tokens.max() >= vocab_size:
        raise UsageError(
            "n-grams: token {token} is outside the vocabulary of {vocab_size}",
            token=str(tokens.max()),
            vocab_size=vocab_size,
        )
    beginnings = np.cumsum(lengths) - lengths
    return tokens, np.arange(len(tokens)) - np.repeat(beginnings, lengths)
