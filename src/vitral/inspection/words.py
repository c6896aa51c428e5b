"""Words: nearest neighbours, contexts counted in a text, one word in two senses, and minimal pairs of sentences.

The distributional hypothesis says that words of similar meaning occur in similar contexts (Harris 1954). Contexts
counted in the training text need no model, so they measure similarity independently of the model's own vectors.

A minimal pair is two sentences of which one is right, and which differ only in the word that makes it so. A model that
gives the right one more probability more often than chance knows something of the rule (Linzen et al. 2016; Marvin &
Linzen 2018). Probabilities are of whole sentences and are not divided by their length: a pair differs in one word, and
where a tokenizer cuts its two forms into different numbers of tokens, that is part of what the model predicts.

`word_measures` does all of it for one model, with the lists of `vitral.inspection.word_lists`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from vitral.core.errors import UsageError
from vitral.core.streams import numpy_stream
from vitral.data import Split, Tokenizer
from vitral.data.batches import thinned
from vitral.evaluation import WittenBell
from vitral.inspection.targets import Scored, loss_by_target
from vitral.inspection.word_lists import PairKind, Sense, language_of, word_lists
from vitral.model import Transformer

Plain = dict[str, Any]
LEAST_WORDS = 20
"""With fewer whole words among the tokens, neighbours are not measured."""
LEAST_COUNT, LEAST_SHARE = 50, 0.5
"""A whole word occurs at least so often, and ends a word in at least this share of its occurrences."""
REACH = 2
"""Tokens before and after a word that count as its context."""
SHUFFLES = 99
SHOWN_WORDS, SHOWN_NEIGHBOURS = 8, 5
LANGUAGE_TOKENS = 200_000
"""Tokens of the training split from which its language is recognized."""
ORDER = 3
"""Of the counted n-grams: with a million subword tokens, longer ones predict worse."""
MOST_COUNTED = 2**23
"""Tokens of a longer training split that are counted."""
CHANCE = 0.5
TIE = 1e-4
"""Nats of preference below which two sentences count as equally probable: rounding alone gives some."""


def word_measures(model: Transformer, tokenizer: Tokenizer, splits: Mapping[str, Split], *, most_words: int) -> Plain:
    """Neighbours, senses and minimal pairs of one model, in the language of its training text.

    Args:
        model: in evaluation mode, trained to predict the next token.
        tokenizer: of the model.
        splits: "train", in which contexts are counted, and "test", from which the passage before a sentence is taken.
        most_words: number of words compared as neighbours, at most.

    Returns:
        `language`, its code; `neighbours`, see `neighbours`; `places`, the names of the points in the residual stream;
        `senses`, see `senses`; `pairs`, see `preferences`.

    Raises:
        UsageError: there are no word lists for the language of the text.
    """
    train = splits["train"]
    language = language_of(tokenizer.decode(np.asarray(train.tokens[:LANGUAGE_TOKENS])))
    lists = word_lists()[language]
    return {
        "language": language,
        "neighbours": neighbours(model, tokenizer, train, lists.neighbours, most_words=most_words),
        "places": _places(model),
        "senses": senses(model, tokenizer, splits["test"], lists.senses),
        "pairs": preferences(lists.pairs, partial(preference, model, tokenizer)),
    }


def neighbours(
    model: Transformer, tokenizer: Tokenizer, part: Split, shown: Sequence[str], *, most_words: int
) -> Plain | None:
    """Nearest words in the token embedding and by counted contexts, and the rank correlation of the two.

    Args:
        model: only its token embedding is used.
        tokenizer: of the model.
        part: text in which contexts are counted.
        shown: words whose neighbours are listed, as far as they are tokens, `SHOWN_WORDS` at most.
        most_words: number of words compared, at most; the most frequent are taken.

    Returns:
        `words`, their number; `correlation`, Spearman's, of the two cosines over all pairs of words; `shuffled`, the
        same for each of `SHUFFLES` permutations of the words (Mantel 1967); `of`, for each listed word its nearest
        words with their cosines, `embedded` and `counted`. None with fewer than `LEAST_WORDS` words.
    """
    similarity = counted_similarity(tokenizer, part, most_words)
    if similarity is None:
        return None
    words, similar_counted = similarity
    embedded = model.token_embedding.weight.detach()[torch.from_numpy(words)]
    shuffles = np.stack([numpy_stream(0, "meaning", "shuffle", i).permutation(len(words)) for i in range(SHUFFLES)])
    similar = cosines(embedded, embedded).numpy()
    correlation, shuffled = spearman(similar, similar_counted, shuffles)
    spelled = [tokenizer.token_bytes(int(word)).decode("utf-8", "replace").strip() for word in words]
    rows = [spelled.index(word) for word in shown if word in spelled][:SHOWN_WORDS]

    def nearest(similar: np.ndarray, row: int) -> list[Plain]:
        order = [other for other in np.argsort(-similar[row], kind="stable").tolist() if other != row]
        return [{"word": spelled[other], "cosine": float(similar[row, other])} for other in order[:SHOWN_NEIGHBOURS]]

    return {
        "words": len(words),
        "correlation": correlation,
        "shuffled": shuffled,
        "of": [
            {"word": spelled[row], "embedded": nearest(similar, row), "counted": nearest(similar_counted, row)}
            for row in rows
        ],
    }


# ---------------------------------------------------------------- vectors and counted contexts


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


def spearman(
    one: Float[np.ndarray, "words words"], other: Float[np.ndarray, "words words"], shuffles: Int[np.ndarray, "n words"]
) -> tuple[float, list[float]]:
    """Spearman's rank correlation of two similarities over all pairs of different words, and of shuffled ones.

    Pairs that share a word are not independent, so chance is estimated by permuting the words of the first similarity,
    rows and columns alike (Mantel 1967).

    Args:
        one: symmetric.
        other: symmetric.
        shuffles: permutations of the words.

    Returns:
        The correlation, and that of every shuffle; 0 where one similarity is the same for all pairs.
    """
    from scipy.stats import rankdata

    pairs = np.triu_indices(len(one), 1)
    ranks, fixed = np.zeros(one.shape), rankdata(other[pairs])
    ranks[pairs] = rankdata(one[pairs])
    ranks, fixed = ranks + ranks.T, fixed - fixed.mean()
    norm = ranks[pairs].std() * np.sqrt(len(fixed)) * np.linalg.norm(fixed)

    def correlation(order: np.ndarray) -> float:
        return float(ranks[np.ix_(order, order)][pairs] @ fixed / norm) if norm else 0.0

    return correlation(np.arange(len(one))), [correlation(order) for order in shuffles]


# ---------------------------------------------------------------- one word in two senses


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
        For each word that fits the tokenizer and the model: `word`, `first`, `second` (the senses), and `within` and
        `across`, the mean cosine in the embedding and after every block, within a sense and across senses.
    """
    before = passage(tokenizer, part, model.config.context_length // 2)
    return sense_cosines(words, partial(_vectors, model, tokenizer, before))


def sense_cosines(
    words: Sequence[Sense], vectors: Callable[[str, str], Float[Tensor, "places d_model"]]
) -> list[Plain]:
    """What `senses` returns, of the vectors of a word in a sentence; words for which there are none are left out."""
    found = []
    for one in words:
        try:
            first, second = (
                [vectors(sentence, one.word) for sentence in sentences]
                for sentences in (one.first_sentences, one.second_sentences)
            )
        except UsageError:
            continue
        within = [pair for group in (first, second) for pair in combinations(group, 2)]
        cosines_of = {"within": _mean_cosines(within), "across": _mean_cosines(list(product(first, second)))}
        found.append({"word": one.word, "first": one.first, "second": one.second, **cosines_of})
    return found


def context_separations(model: Transformer, tokenizer: Tokenizer, words: Sequence[Sense]) -> dict[str, float]:
    """By word, the cosine within a sense less that across senses of the mean embedding of the tokens before the word.

    It shows how far apart the contexts are before any attention has mixed them into the word.
    """

    def before(sentence: str, word: str) -> Tensor:
        tokens, place = place_of(tokenizer, sentence, word)
        if place < 2:
            raise UsageError("there is no word before the word")
        embedding = model.token_embedding.weight.detach()
        return embedding[tokens[1:place].to(embedding.device)].mean(dim=0)[None]

    measured = sense_cosines(words, before)
    return {one["word"]: each[0] for one, each in zip(measured, separations(measured), strict=True)}


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


def _places(model: Transformer) -> list[str]:
    return ["embed", *(f"blocks.{layer}.resid_post" for layer in range(model.config.num_layers))]


def _vectors(
    model: Transformer, tokenizer: Tokenizer, before: Int[Tensor, " time"], sentence: str, word: str
) -> Float[Tensor, "places d_model"]:
    tokens, place = place_of(tokenizer, sentence, word)
    if not 0 < place <= len(before):
        raise UsageError(
            "{place} tokens up to the word {word!r}; half of the model's context is {before}",
            place=place,
            word=word,
            before=len(before),
        )
    until = torch.cat([before[place - 1 :], tokens[1 : place + 1]])
    kept = model.trace(until[None], _places(model))
    return torch.stack([kept[name][0, -1] for name in _places(model)])


def _mean_cosines(pairs: Sequence[tuple[Tensor, Tensor]]) -> list[float]:
    each = [functional.cosine_similarity(one.double(), other.double(), dim=-1) for one, other in pairs]
    return torch.stack(each).mean(dim=0).tolist()


# ---------------------------------------------------------------- minimal pairs


Forms = Sequence[tuple[str, str]]
"""Words, each in its two forms: singular and plural, or masculine and feminine."""


class MinimalPair(NamedTuple):
    """A right sentence, and the same with the other form of one word."""

    good: str
    bad: str


def fill(templates: Sequence[str], subjects: Forms, elements: Forms, between: Forms = ()) -> list[MinimalPair]:
    """Two pairs for each subject, one for each of its forms; templates and other words take turns.

    `{element}`, the only difference within a pair, has the subject's form in the good sentence and the other form in
    the bad one. Each form is right as often as wrong, so a model that prefers one form whatever the subject is right in
    half of the pairs. `{same}` is a word in the subject's form, `{other}` one in the other form.

    >>> fill(["{subject} {element}."], [("A dog", "Dogs")], [("runs", "run")])[1]
    MinimalPair(good='Dogs run.', bad='Dogs runs.')
    """
    pairs = []
    for index, subject in enumerate(subjects):
        template = templates[index % len(templates)]
        element = elements[index // len(templates) % len(elements)]
        middle = between[index % len(between)] if between else ("", "")
        for form in (0, 1):
            words = {"subject": subject[form], "same": middle[form], "other": middle[1 - form]}
            good, bad = (template.format(**words, element=element[choice]) for choice in (form, 1 - form))
            pairs.append(MinimalPair(good, bad))
    return pairs


def preferences(kinds: Sequence[PairKind], preference: Callable[[MinimalPair], float]) -> list[Plain]:
    """The preference in every minimal pair of these kinds.

    Returns:
        For each pair: `kind`, `good`, `bad`, and `preference`, ln p(good) - ln p(bad) in nats, or None where the
        tokenizer or the model cannot take a sentence.
    """
    found = []
    for kind in kinds:
        for pair in fill(kind.templates, kind.subjects, kind.elements, kind.between):
            try:
                preferred = preference(pair)
            except UsageError:
                preferred = None
            found.append({"kind": kind.kind, "good": pair.good, "bad": pair.bad, "preference": preferred})
    return found


def counted_pairs(tokenizer: Tokenizer, train: Split, kinds: Sequence[PairKind]) -> list[Plain]:
    """The `preferences` of an n-gram model, which knows only which words stand side by side.

    Args:
        tokenizer: of the split.
        train: tokens that are counted.
        kinds: of minimal pairs.
    """
    counted = WittenBell(thinned(train, MOST_COUNTED), tokenizer.vocab_size, ORDER)

    def nats(sentence: str) -> float:
        tokens = np.concatenate([[tokenizer.start], tokenizer.encode(sentence)]).astype(np.int64)
        return float(counted.nats(Split(tokens, np.array([[0, len(tokens)]])))[-1].sum())

    return preferences(kinds, lambda pair: nats(pair.bad) - nats(pair.good))


def pair_scores(pairs: Sequence[Plain], kind: str | None = None) -> list[float]:
    """Of each scored pair of a kind (of all kinds if None): 1 if the right sentence is more probable, 0.5 in a tie."""
    preferences = [pair["preference"] for pair in pairs if kind in (None, pair["kind"])]
    return [_score(one) for one in preferences if one is not None]


def item_scores(pairs: Sequence[Plain], kind: str | None = None) -> dict[int, float]:
    """By subject, numbered over all kinds, the mean score of its pairs of a kind (of all kinds if None).

    A subject has two consecutive pairs, which share their words, so it is the unit that a test can count.
    """
    found: dict[int, list[float]] = {}
    for index, pair in enumerate(pairs):
        if kind in (None, pair["kind"]) and pair["preference"] is not None:
            found.setdefault(index // 2, []).append(_score(pair["preference"]))
    return {item: sum(scores) / len(scores) for item, scores in found.items()}


def subject_scores(pairs: Sequence[Plain]) -> list[float]:
    """Of each subject with two scored pairs: 1 if its form moves the preference the right way, 0.5 in a tie, else 0.

    A subject has two consecutive pairs, one for each of its forms. A model that prefers one form whatever the subject
    gains in the one pair as much as it loses in the other, so their sum shows whether the subject matters.
    """
    both = zip(pairs[::2], pairs[1::2], strict=True)
    two = ((one["preference"], other["preference"]) for one, other in both)
    return [_score(one + other) for one, other in two if one is not None and other is not None]


def _score(preference: float) -> float:
    if abs(preference) < TIE:
        return CHANCE
    return 1.0 if preference > 0 else 0.0


def log_probability(model: Transformer, tokens: Int[np.ndarray, " time"], start: int) -> float:
    """Ln p of a text's tokens given the start token: Σ ln p(token | start and the tokens before it), in float64.

    Raises:
        UsageError: no tokens, or more than the model's context.
    """
    if not 0 < len(tokens) <= model.config.context_length:
        raise UsageError(
            "a sentence of {tokens} tokens; the model takes 1 to {context_length}",
            tokens=len(tokens),
            context_length=model.config.context_length,
        )
    row = torch.from_numpy(np.concatenate([[start], tokens]).astype(np.int64))[None]
    return -float(loss_by_target(model, Scored(row[:, :-1], row[:, 1:])).sum())


def preference(model: Transformer, tokenizer: Tokenizer, pair: MinimalPair) -> float:
    """Ln p(good) - ln p(bad), each a sentence that begins a line; positive where the right one is more probable.

    Raises:
        UsageError: the tokenizer has no token for a character, or a sentence is longer than the model's context.
    """
    good, bad = (
        log_probability(model, tokenizer.encode(sentence), tokenizer.start) for sentence in (pair.good, pair.bad)
    )
    return good - bad


def place_of(tokenizer: Tokenizer, sentence: str, word: str) -> tuple[Int[Tensor, " time"], int]:
    """The tokens of a sentence after the start token, and the index of the last token of a word in them.

    Args:
        tokenizer: of the model; it may split the word into several tokens.
        sentence: contains the word, whole, in lower case, once.
        word: ends where a token of the sentence ends.

    Raises:
        UsageError: the word does not occur in the sentence exactly once, or does not end where a token does.
    """
    letter = r"[^\W\d_]"
    found = [each.end() for each in re.finditer(f"(?<!{letter}){re.escape(word)}(?!{letter})", sentence)]
    if len(found) != 1:
        raise UsageError(
            "the word {word!r} occurs {found} times in {sentence!r}, not once",
            word=word,
            found=len(found),
            sentence=sentence,
        )
    return tokens_until(tokenizer, sentence, found[0])


def tokens_until(tokenizer: Tokenizer, sentence: str, end: int) -> tuple[Int[Tensor, " time"], int]:
    """The tokens of a sentence after the start token, and how many of them the first `end` characters are.

    Raises:
        UsageError: no token ends there.
    """
    whole, until = tokenizer.encode(sentence), tokenizer.encode(sentence[:end])
    if whole[: len(until)].tolist() != until.tolist():
        raise UsageError("in {sentence!r} no token ends with the word {word!r}", sentence=sentence, word=sentence[:end])
    return torch.from_numpy(np.concatenate([[tokenizer.start], whole]).astype(np.int64)), len(until)
