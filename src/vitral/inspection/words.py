"""Words: similar words, contexts counted in a text, one word in two senses, attention between similar words.

The distributional hypothesis says that words of similar meaning occur in similar contexts (Harris 1954). Contexts
counted in the training text need no model, so they measure similarity independently of the model's own vectors.

`word_measures` does all of it for one model, and minimal pairs, with the lists of `word_lists`.

The score of a query and a key depends on more than the two words: on their distance, on the query alone, and on the key
alone (a head may look at commas). `similar_word_scores` takes these away from both the scores and the similarity of the
words, and correlates what remains: a partial correlation.

Legend of axes: batch = windows, time = queries, source = keys, heads.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from vitral.core.streams import numpy_stream
from vitral.data import Split, Tokenizer
from vitral.inspection.attention import visible_by_layer, weight_names
from vitral.inspection.minimal_pairs import Sense, language_of, log_probability, preferences, tokens_until, word_lists
from vitral.inspection.targets import passes, window_targets
from vitral.model import Transformer

Plain = dict[str, Any]
LEAST_WORDS = 20
"""With fewer whole words among the tokens, neighbours are not measured."""
LEAST_COUNT, LEAST_SHARE = 50, 0.5
"""A whole word occurs at least so often, and ends a word in at least this share of its occurrences."""
REACH = 2
"""Tokens before and after a word that count as its context."""
SHUFFLES = 99
LANGUAGE_TOKENS = 200_000
"""Tokens of the training split from which its language is recognized."""


def word_measures(model: Transformer, tokenizer: Tokenizer, splits: Mapping[str, Split], *, most_words: int) -> Plain:
    """Neighbours, senses and minimal pairs of one model, in the language of its training text.

    Args:
        model: in evaluation mode, trained to predict the next token.
        tokenizer: of the model.
        splits: "train", in which contexts are counted, and "test", from which the passage before a sentence is taken.
        most_words: number of words compared as neighbours, at most.

    Returns:
        `language`, its code; `neighbours`, see `neighbours`; `senses`, see `senses`; `pairs`, see `preferences`.

    Raises:
        UsageError: there are no word lists for the language of the text.
    """
    train = splits["train"]
    language = language_of(tokenizer.decode(np.asarray(train.tokens[:LANGUAGE_TOKENS])))
    lists = word_lists()[language]
    return {
        "language": language,
        "neighbours": neighbours(model, tokenizer, train, most_words=most_words),
        "senses": senses(model, tokenizer, splits["test"], lists.senses),
        "pairs": preferences(lists.pairs, partial(log_probability, model, tokenizer)),
    }


def neighbours(model: Transformer, tokenizer: Tokenizer, part: Split, *, most_words: int) -> Plain | None:
    """Rank correlation of the similarities of words in the token embedding and by counted contexts.

    Args:
        model: only its token embedding is used.
        tokenizer: of the model.
        part: text in which contexts are counted.
        most_words: number of words compared, at most; the most frequent are taken.

    Returns:
        `correlation`, Spearman's, of the two cosines over all pairs of words; `shuffled`, the
        same for each of `SHUFFLES` permutations of the words (Mantel 1967). None with fewer than `LEAST_WORDS` words.
    """
    from scipy.stats import spearmanr

    similarity = counted_similarity(tokenizer, part, most_words)
    if similarity is None:
        return None
    words, similar_counted = similarity
    embedded = model.token_embedding.weight.detach()[torch.from_numpy(words)]
    similar = cosines(embedded, embedded).numpy()
    pairs, orders = np.triu_indices(len(words), 1), with_shuffles(len(words))
    tests: list[Any] = [spearmanr(similar[np.ix_(one, one)][pairs], similar_counted[pairs]) for one in orders]
    correlation, *shuffled = (float(each.statistic) for each in tests)
    return {"correlation": correlation, "shuffled": shuffled}


def cosines(one: Float[Tensor, "rows width"], other: Float[Tensor, "columns width"]) -> Float[Tensor, "rows columns"]:
    """cos(a, b) = a·b / (|a| |b|) of every row with every row, in float64; 0 where a vector is zero."""
    unit, other_unit = (functional.normalize(rows.detach().double(), dim=-1) for rows in (one, other))
    return unit @ other_unit.T


def counted_similarity(
    tokenizer: Tokenizer, part: Split, most_words: int
) -> tuple[Int[np.ndarray, " words"], Float[np.ndarray, "words words"]] | None:
    """The most frequent whole words of a text, and the cosines of their counted contexts; None for too few words."""
    words = whole_words(tokenizer, part, least_count=LEAST_COUNT, most=most_words, least_share=LEAST_SHARE)
    if len(words) < LEAST_WORDS:
        return None
    counted = torch.from_numpy(positive_pmi(co_occurrences(part, words, tokenizer.vocab_size, reach=REACH)))
    return words, cosines(counted, counted).numpy()


def whole_words(
    tokenizer: Tokenizer, part: Split, *, least_count: int, most: int, least_share: float
) -> Int[np.ndarray, " words"]:
    """Ids of tokens that are mostly whole words of the text, the most frequent first; of equals the smaller id.

    Such a token is a space followed by letters only, and the token after it mostly does not begin with a letter, which
    would make it a part of a longer word.

    Args:
        tokenizer: of the part.
        part: the text.
        least_count: fewer occurrences leave a token out.
        most: number of tokens, at most.
        least_share: share of a token's occurrences that must end a word.
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
    """How often each token of the vocabulary occurs up to `reach` tokens before, and after, each of `words`.

    Args:
        part: the text; no pair crosses from one segment to the next.
        words: ids.
        vocab_size: of the tokenizer.
        reach: in tokens.

    Returns:
        Counts, one row for each word: first of the tokens before it, then of the tokens after it.
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
    """Positive pointwise mutual information, max(0, ln p(w, c) / (p(w) p(c))); 0 for pairs that never occur.

    Church & Hanks (1990); clipped at zero and compared by cosine as by Bullinaria & Levy (2007).
    """
    total = counts.sum()
    expected = counts.sum(axis=1, keepdims=True) * (counts.sum(axis=0, keepdims=True) / max(total, 1))
    ratio = np.divide(counts, expected, out=np.zeros(counts.shape), where=counts > 0)
    return np.log(np.maximum(ratio, 1.0))


def with_shuffles(count: int) -> list[Int[np.ndarray, " words"]]:
    """The order of so many words as it is, and `SHUFFLES` permutations of it.

    Pairs that share a word are not independent, so chance is estimated by permuting the words of one similarity, rows
    and columns alike (Mantel 1967).
    """
    streams = (numpy_stream(0, "meaning", "shuffle", i) for i in range(SHUFFLES))
    return [np.arange(count), *(stream.permutation(count) for stream in streams)]


def senses(model: Transformer, tokenizer: Tokenizer, part: Split, words: Sequence[Sense]) -> list[Plain]:
    """Cosines of a word's vectors between sentences of the same sense and of different senses.

    A vector is the residual stream at the word's last token. The start of every sentence is filled up with the end of
    one passage so that the word is always at the same position, and the text after the word is left out.

    Args:
        model: in evaluation mode.
        tokenizer: of the model.
        part: text from which the passage is taken.
        words: words with their sentences.

    Returns:
        For each word that fits the tokenizer and the model `within` and `across`, the mean cosine in the embedding and
        after every block, within a sense and across senses.
    """
    before = passage(tokenizer, part, model.config.context_length // 2)
    measured = []
    for one in words:
        groups = [
            [_vectors(model, tokenizer, before, sentence, one.word) for sentence in sentences]
            for sentences in (one.first_sentences, one.second_sentences)
        ]
        first, second = ([vector for vector in group if vector is not None] for group in groups)
        if (len(first), len(second)) != tuple(map(len, groups)):
            continue
        within = [pair for group in (first, second) for pair in combinations(group, 2)]
        measured.append({"within": _mean_cosines(within), "across": _mean_cosines(list(product(first, second)))})
    return measured


def separations(measured: Sequence[Plain]) -> list[list[float]]:
    """Of each word that `senses` measured, the cosine within a sense less that across senses, at every place."""
    return [[one - other for one, other in zip(word["within"], word["across"], strict=True)] for word in measured]


def passage(tokenizer: Tokenizer, part: Split, length: int) -> Int[Tensor, " length"]:
    """The `length` tokens up to the first line break of a segment that has so many before it, the break included.

    Where no segment has such a break: start tokens.
    """
    breaks = np.array([b"\n" in tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)])
    for begin, end in part.segments.tolist():
        segment = np.asarray(part.tokens[begin:end]).astype(np.int64)
        ends = np.flatnonzero(breaks[segment]) + 1
        if (ends >= length).any():
            last = int(ends[ends >= length][0])
            return torch.from_numpy(segment[last - length : last])
    return torch.full((length,), tokenizer.start)


def _stream_points(model: Transformer) -> list[str]:
    return ["embed", *(f"blocks.{layer}.resid_post" for layer in range(model.config.num_layers))]


def _vectors(
    model: Transformer, tokenizer: Tokenizer, before: Int[Tensor, " time"], sentence: str, word: str
) -> Float[Tensor, "places d_model"] | None:
    """The residual stream at a word after a passage; None where the word does not fit tokenizer or passage."""
    fitting = word_position(tokenizer, sentence, word)
    if fitting is None or fitting[1] > len(before):
        return None
    tokens, position = fitting
    until = torch.cat([before[position - 1 :], tokens[1 : position + 1]])
    kept = model.trace(until[None], _stream_points(model))
    return torch.stack([kept[name][0, -1] for name in _stream_points(model)])


def _mean_cosines(pairs: Sequence[tuple[Tensor, Tensor]]) -> list[float]:
    each = [functional.cosine_similarity(one.double(), other.double(), dim=-1) for one, other in pairs]
    return torch.stack(each).mean(dim=0).tolist()


def word_position(tokenizer: Tokenizer, sentence: str, word: str) -> tuple[Int[Tensor, " time"], int] | None:
    """The tokens of a sentence after the start token, and the index of the last token of a word in them.

    Args:
        tokenizer: of the model; it may split the word into several tokens.
        sentence: contains the word, whole and in lower case.
        word: the first of its occurrences is taken.

    Returns:
        None where `tokens_until` has none.
    """
    letter = r"[^\W\d_]"
    match = re.search(f"(?<!{letter}){re.escape(word)}(?!{letter})", sentence)
    assert match is not None, f"{word!r} is not in {sentence!r}"
    return tokens_until(tokenizer, sentence, match.end())


# ---------------------------------------------------------------- related words

LEAST_DISTANCE = 2
"""Neighbouring words are left out: they stand together for grammar, not for similarity."""
ROUNDS = 20
"""Of taking means away in turn; the means that are left are then far below rounding of what is printed."""


def similar_word_scores(
    model: Transformer, tokenizer: Tokenizer, train: Split, test: Split, *, windows: int, most_words: int
) -> Plain | None:
    """Partial correlation of a head's scores with the similarity of the two words, beside that of shuffled words.

    Pairs are a query and an earlier key, at least `LEAST_DISTANCE` apart, both whole words that are one token, and
    different words. The similarity is the cosine of their contexts counted in the training text (see
    `vitral.inspection.words`), which needs no model. From scores and similarities the means of each query, each
    distance and each key word are taken away, in turn. Any matrix of weights prefers some pairs of words, so chance is
    estimated by exchanging the words of the similarity, rows and columns alike (Mantel 1967).

    Args:
        model: in evaluation mode, with attention.
        tokenizer: of the model.
        train: text in which contexts are counted.
        test: text of the windows.
        windows: their number, at most.
        most_words: number of words, at most; the most frequent are taken.

    Returns:
        `heads`: for each block and head its `correlation` and `shuffled`, that of
        each of `SHUFFLES` permutations, the same ones for all heads. None without attention, or with fewer than
        `LEAST_WORDS` words.
    """
    similarity = None if model.mask is None else counted_similarity(tokenizer, train, most_words)
    if similarity is None:
        return None
    words, similar = similarity
    row = np.full(tokenizer.vocab_size, -1)
    row[words] = np.arange(len(words))
    inputs = window_targets(model, test, windows).inputs
    tokens = row[inputs.cpu().numpy()]
    visible = torch.stack(visible_by_layer(model, inputs.shape[1])).all(0).cpu().numpy()
    position = np.arange(inputs.shape[1])
    known = (tokens[:, :, None] >= 0) & (tokens[:, None, :] >= 0) & (tokens[:, :, None] != tokens[:, None, :])
    pairs = np.argwhere(known & visible & (position[:, None] - position >= LEAST_DISTANCE))  # window, query, key
    if not len(pairs):
        return None
    window, query, key = pairs.T
    one, other = tokens[window, query], tokens[window, key]
    means = (window * inputs.shape[1] + query, query - key, other)
    orders = with_shuffles(len(words))
    similarities = np.stack([_unit(_without_means(similar[order[one], order[other]], means)) for order in orders])
    heads = []
    for block in _scores(model, inputs, pairs):
        correlations = [(similarities @ _unit(_without_means(head, means))).tolist() for head in block]
        heads.append([{"correlation": own, "shuffled": shuffled} for own, *shuffled in correlations])
    return {"heads": heads}


def _scores(model: Transformer, inputs: Tensor, pairs: np.ndarray) -> list[Float[np.ndarray, "heads pairs"]]:
    """The scaled scores of all pairs in each block."""
    scores = {name.replace(".weights", ".scaled"): list[np.ndarray]() for name in weight_names(model)}
    for rows, seen in passes(model, inputs, list(scores)):
        window, query, key = pairs[(pairs[:, 0] >= rows.start) & (pairs[:, 0] < rows.stop)].T
        for name, pieces in scores.items():
            pieces.append(seen[name][window - rows.start, :, query, key].cpu().double().numpy().T)
    return [np.concatenate(pieces, axis=1) for pieces in scores.values()]


def _without_means(values: Float[np.ndarray, " pairs"], keys: Sequence[np.ndarray]) -> Float[np.ndarray, " pairs"]:
    """The residuals of the values on the indicators of each key, by alternating projections."""
    left = values - values.mean()
    sizes = [np.maximum(np.bincount(key), 1) for key in keys]
    for _round, (key, size) in product(range(ROUNDS), zip(keys, sizes, strict=True)):
        left = left - (np.bincount(key, weights=left, minlength=len(size)) / size)[key]
    return left


def _unit(values: Float[np.ndarray, " pairs"]) -> Float[np.ndarray, " pairs"]:
    norm = np.linalg.norm(values)
    return values / norm if norm else values
