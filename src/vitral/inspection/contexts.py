"""What stands beside a word: contexts counted in a text, and how well two measures of likeness agree.

The distributional hypothesis says that words of like meaning stand in like contexts (Harris 1954). Counted contexts
need no model, so they are a measure of likeness from outside, by which a model's own can be judged.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

from vitral.data import Split, Tokenizer


def whole_words(
    tokenizer: Tokenizer, part: Split, *, least_count: int, most: int, least_share: float
) -> Int[np.ndarray, " words"]:
    """Tokens that are mostly whole words of the text, the most frequent first; of equals the smaller id.

    Such a token is a space and then letters only, and is mostly not followed by a token that begins with a letter, as a
    part of a longer word is.

    Args:
        tokenizer: of the part.
        part: the text.
        least_count: fewer occurrences leave a token out.
        most: how many tokens at most.
        least_share: of a token's occurrences, how many must end a word.
    """
    tokens = np.asarray(part.tokens).astype(np.int64)
    pieces = [tokenizer.token_bytes(token).decode("utf-8", "replace") for token in range(tokenizer.vocab_size)]
    spelled = np.array([len(piece) > 1 and piece[0] == " " and piece[1:].isalpha() for piece in pieces])
    goes_on = np.array([piece[:1].isalpha() or piece[:1] == "\ufffd" for piece in pieces])
    counts = np.bincount(tokens, minlength=len(pieces))
    inside = np.bincount(tokens[:-1], weights=goes_on[tokens[1:]], minlength=len(pieces))
    ends = 1 - inside / np.maximum(counts, 1)
    chosen = np.flatnonzero(spelled & (counts >= least_count) & (ends >= least_share))
    return chosen[np.argsort(-counts[chosen], kind="stable")][:most]


def co_occurrences(
    part: Split, words: Int[np.ndarray, " words"], vocab_size: int, *, reach: int
) -> Int[np.ndarray, "words two_sides"]:
    """How often each token of the vocabulary stands up to `reach` tokens before, and after, each of `words`.

    Args:
        part: the text; no pair crosses from one stretch to the next.
        words: ids.
        vocab_size: of the tokenizer.
        reach: in tokens.

    Returns:
        Counts, one row for each word: first of what stands before it, then of what stands after it.
    """
    tokens = np.asarray(part.tokens).astype(np.int64)
    segment = np.repeat(np.arange(len(part.segments)), part.segments[:, 1] - part.segments[:, 0])
    row = np.full(vocab_size, -1)
    row[words] = np.arange(len(words))
    counts = np.zeros((2, len(words) * vocab_size), dtype=np.int64)
    for away in range(1, reach + 1):
        together = segment[:-away] == segment[away:]
        earlier, later = tokens[:-away][together], tokens[away:][together]
        for side, (word, context) in enumerate(((later, earlier), (earlier, later))):
            rows = row[word]
            counts[side] += np.bincount(rows[rows >= 0] * vocab_size + context[rows >= 0], minlength=counts.shape[1])
    return np.concatenate([side.reshape(len(words), vocab_size) for side in counts], axis=1)


def positive_pmi(counts: Int[np.ndarray, "words contexts"]) -> Float[np.ndarray, "words contexts"]:
    """max(0, ln p(w, c) / (p(w) p(c))), with 0 for pairs that never occur: how much more often than by chance.

    Church & Hanks (1990); clipped at zero and compared by cosine as by Bullinaria & Levy (2007).
    """
    total = counts.sum()
    expected = counts.sum(axis=1, keepdims=True) * (counts.sum(axis=0, keepdims=True) / max(total, 1))
    ratio = np.divide(counts, expected, out=np.zeros(counts.shape), where=counts > 0)
    return np.log(np.maximum(ratio, 1.0))


def spearman(
    one: Float[np.ndarray, "words words"], other: Float[np.ndarray, "words words"], shuffles: Int[np.ndarray, "n words"]
) -> tuple[float, list[float]]:
    """Spearman's rank correlation of two likenesses over all pairs of different words, and of shuffled ones.

    Shuffling gives the first likeness' words to one another, rows and columns alike: what is left is chance, for pairs
    of the same words are not independent (Mantel 1967).

    Args:
        one: symmetric.
        other: symmetric.
        shuffles: permutations of the words.

    Returns:
        The correlation, and that of every shuffle; 0 where one likeness is the same for all pairs.
    """
    upper = np.triu(np.ones(one.shape, dtype=bool), 1)
    ranks = _centred_ranks(one, upper)
    fixed = _centred_ranks(other, upper)[upper]
    norm = np.sqrt((ranks[upper] ** 2).sum() * (fixed**2).sum())

    def correlation(order: np.ndarray) -> float:
        return float((ranks[np.ix_(order, order)][upper] * fixed).sum() / norm) if norm else 0.0

    return correlation(np.arange(len(one))), [correlation(order) for order in shuffles]


def _centred_ranks(
    values: Float[np.ndarray, "words words"], upper: Bool[np.ndarray, "words words"]
) -> Float[np.ndarray, "words words"]:
    """A symmetric matrix of the ranks of the pairs above the diagonal, ties shared, less their mean."""
    from scipy.stats import rankdata

    ranks = np.zeros(values.shape)
    ranks[upper] = rankdata(values[upper])
    ranks[upper] -= ranks[upper].mean()
    return ranks + ranks.T
