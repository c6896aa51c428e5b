"""Word lists of languages, and minimal pairs: two sentences of which one is right, that differ in one word alone.

A model that gives the right one more probability more often than chance knows something of the rule (Linzen et al.
2016; Marvin & Linzen 2018). Probabilities are of whole sentences and are not divided by their length: a pair differs in
one word, and where a tokenizer cuts its two forms into different numbers of tokens, that is part of what the model
predicts. `agreeing_weights` compares the attention within the two sentences of a pair, so place and distance are equal
by construction.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitral.core.config import read_toml
from vitral.core.errors import UsageError
from vitral.data import Split, Tokenizer
from vitral.data.batches import thinned
from vitral.evaluation import WittenBell
from vitral.inspection.attention import weight_names
from vitral.inspection.targets import Scored, loss_by_target, require_readable
from vitral.model import Transformer

LEAST_FREQUENT = 0.05
"""Least share of a text's words that are frequent words of its language.

They are 10% of Shakespeare's words and 8% of Machado de Assis's. A frequent word that another language shares makes 1
to 4%, as "que" does in French and Spanish.
"""
Plain = dict[str, Any]
PAIR_ORDER = 3
"""Of the counted n-grams: with a million subword tokens, longer ones predict worse."""
MOST_COUNTED = 2**23
"""Tokens of a longer training split that are counted."""
CHANCE = 0.5
TIE = 1e-4
"""Nats of preference below which two sentences count as equally probable: rounding alone gives some."""
_WORD = re.compile(r"\w+")


TwoForms = Sequence[Sequence[str]]


class Sense(NamedTuple):
    """A word with two senses.

    Attributes:
        word: as it is written in the sentences.
        first_sentences: contain the word once each, in its first sense.
        second_sentences: likewise.
    """

    word: str
    first_sentences: Sequence[str]
    second_sentences: Sequence[str]


class PairKind(NamedTuple):
    """Lists from which the minimal pairs of one kind are made, see `pairs_of`."""

    kind: str
    templates: Sequence[str]
    elements: TwoForms
    subjects: TwoForms
    between: TwoForms = ()


class WordLists(NamedTuple):
    """The lists of one language.

    Attributes:
        frequent: words by which the language is recognized.
        senses: words with two senses.
        pairs: kinds of minimal pairs.
    """

    frequent: Sequence[str]
    senses: Sequence[Sense]
    pairs: Sequence[PairKind]


@cache
def word_lists() -> dict[str, WordLists]:
    """The lists of every language, by its code ("en", "pt")."""
    return {
        language: WordLists(
            table["frequent"], [Sense(**one) for one in table["senses"]], [PairKind(**one) for one in table["pairs"]]
        )
        for language, table in read_toml(Path(__file__).with_name("word_lists.toml")).items()
    }


def language_of(text: str) -> str:
    """The code of the language whose frequent words are most frequent in a text; of equals, the first in the file.

    Raises:
        UsageError: in every language they are less than `LEAST_FREQUENT` of the text's words.
    """
    words = text.lower().split()
    known = word_lists()
    counts = {language: sum(words.count(word) for word in lists.frequent) for language, lists in known.items()}
    most = max(counts, key=lambda language: counts[language])
    if counts[most] < LEAST_FREQUENT * max(1, len(words)):
        raise UsageError(
            "the text is in none of the languages that there are word lists for ({known})", known=", ".join(known)
        )
    return most


class MinimalPair(NamedTuple):
    """A right sentence, and the same with the other form of one word."""

    good: str
    bad: str


def pairs_of(kind: PairKind) -> list[MinimalPair]:
    """Two pairs for each subject, one for each of its forms; templates and other words take turns.

    `{element}`, the only difference within a pair, has the subject's form in the good sentence and the other form in
    the bad one. Each form is right as often as wrong, so a model that prefers one form whatever the subject is right in
    half of the pairs. `{same}` is a word in the subject's form, `{other}` one in the other form.
    """
    pairs = []
    for index, subject in enumerate(kind.subjects):
        template = kind.templates[index % len(kind.templates)]
        element = kind.elements[index // len(kind.templates) % len(kind.elements)]
        middle = kind.between[index % len(kind.between)] if kind.between else ("", "")
        for form in (0, 1):
            words = {"subject": subject[form], "same": middle[form], "other": middle[1 - form]}
            good, bad = (template.format(**words, element=element[choice]) for choice in (form, 1 - form))
            pairs.append(MinimalPair(good, bad))
    return pairs


def preferences(kinds: Sequence[PairKind], log_probability: Callable[[str], float]) -> list[Plain]:
    """The preference in every minimal pair of these kinds.

    Args:
        kinds: of minimal pairs.
        log_probability: ln p of a sentence.

    Returns:
        For each pair: `kind`, `good`, `bad`, and `preference`, ln p(good) - ln p(bad) in nats, or None where the
        tokenizer or the model cannot take a sentence.
    """
    measured = []
    for kind in kinds:
        for good, bad in pairs_of(kind):
            try:
                preferred = log_probability(good) - log_probability(bad)
            except UsageError:
                preferred = None
            measured.append({"kind": kind.kind, "good": good, "bad": bad, "preference": preferred})
    return measured


def counted_pairs(tokenizer: Tokenizer, train: Split, kinds: Sequence[PairKind]) -> list[Plain]:
    """The `preferences` of an n-gram model, which knows only which words stand side by side.

    Args:
        tokenizer: of the split.
        train: tokens that are counted.
        kinds: of minimal pairs.
    """
    counted = WittenBell(thinned(train, MOST_COUNTED), tokenizer.vocab_size, PAIR_ORDER)

    def log_probability(sentence: str) -> float:
        tokens = np.concatenate([[tokenizer.start], tokenizer.encode(sentence)]).astype(np.int64)
        return -float(counted.nats(Split(tokens, np.array([[0, len(tokens)]])))[-1].sum())

    return preferences(kinds, log_probability)


def pair_scores(pairs: Sequence[Plain], kind: str | None = None) -> list[float]:
    """Of each scored pair of a kind (of all kinds if None): 1 if the right sentence is more probable, 0.5 in a tie."""
    preferences = [pair["preference"] for pair in pairs if kind in (None, pair["kind"])]
    return [_score(one) for one in preferences if one is not None]


def item_scores(pairs: Sequence[Plain], kind: str | None = None) -> dict[int, float]:
    """By subject, numbered over all kinds, the mean score of its pairs of a kind (of all kinds if None).

    A subject has two consecutive pairs, which share their words, so it is the unit that a test can count.
    """
    by_subject: dict[int, list[float]] = {}
    for index, pair in enumerate(pairs):
        if kind in (None, pair["kind"]) and pair["preference"] is not None:
            by_subject.setdefault(index // 2, []).append(_score(pair["preference"]))
    return {item: sum(scores) / len(scores) for item, scores in by_subject.items()}


def _score(preference: float) -> float:
    if abs(preference) < TIE:
        return CHANCE
    return 1.0 if preference > 0 else 0.0


def log_probability(model: Transformer, tokenizer: Tokenizer, sentence: str) -> float:
    """Ln p of a sentence that begins a line: Σ ln p(token | start and the tokens before it), in float64.

    Raises:
        UsageError: the tokenizer has no token for a character, or there are more tokens than the model's context.
    """
    row = torch.from_numpy(np.concatenate([[tokenizer.start], tokenizer.encode(sentence)]).astype(np.int64))[None]
    require_readable(model, row[:, 1:])
    return -float(loss_by_target(model, Scored(row[:, :-1], row[:, 1:])).sum())


def tokens_until(tokenizer: Tokenizer, sentence: str, end: int) -> tuple[Int[Tensor, " time"], int] | None:
    """The tokens of a sentence after the start token, and how many of them the first `end` characters are.

    None where a character has no token, or no token ends there.
    """
    try:
        whole, until = (tokenizer.encode(text) for text in (sentence, sentence[:end]))
    except UsageError:
        return None
    if whole[: len(until)].tolist() != until.tolist():
        return None
    return torch.from_numpy(np.concatenate([[tokenizer.start], whole]).astype(np.int64)), len(until)


def agreeing_weights(model: Transformer, tokenizer: Tokenizer, kinds: Sequence[PairKind]) -> list[Plain]:
    """The weight of a form on its subject, where the two agree and where they do not.

    In each minimal pair the form (the verb, or the pronoun) is the query and the last token of the subject the key. The
    two sentences have the same places, and each form is right as often as wrong, so only agreement can make the mean
    weights differ.

    Args:
        model: in evaluation mode, with attention.
        tokenizer: of the model.
        kinds: kinds of minimal pairs whose sentences begin with the subject.

    Returns:
        For each subject whose sentences fit: `kind`, `subject`, and `agree` and `disagree`, mean weights over its two
        forms, by block and head. Empty without attention.
    """
    measured = []
    for kind in kinds if model.mask is not None else ():
        pairs = pairs_of(kind)
        for index, subject in enumerate(kind.subjects):
            both: list[list[Any]] = [
                [_weight(model, tokenizer, sentence, form, _end(pair, sentence)) for sentence in pair]
                for pair, form in zip(pairs[2 * index : 2 * index + 2], subject, strict=True)
            ]
            agree, disagree = ([weights[which] for weights in both] for which in (0, 1))
            if all(weights is not None for weights in (*agree, *disagree)):
                means = {"agree": np.mean(agree, axis=0).tolist(), "disagree": np.mean(disagree, axis=0).tolist()}
                measured.append({"kind": kind.kind, "subject": subject[0], **means})
    return measured


def _end(pair: MinimalPair, sentence: str) -> int:
    """Where the word ends in which the two sentences differ."""
    differs = next(index for index, (one, other) in enumerate(zip(*pair, strict=False)) if one != other)
    return next(word.end() for word in _WORD.finditer(sentence) if word.end() > differs)


def _weight(
    model: Transformer, tokenizer: Tokenizer, sentence: str, subject: str, end: int
) -> Float[np.ndarray, "layers heads"] | None:
    """The weight of the word that ends at `end` on the last token of the subject; None where the words do not fit."""
    of_subject, of_form = (tokens_until(tokenizer, sentence, characters) for characters in (len(subject), end))
    if of_subject is None or of_form is None or of_form[1] >= model.config.context_length:
        return None
    (tokens, query), key = of_form, of_subject[1]
    seen = model.trace(tokens[None, : query + 1], weight_names(model))
    return np.stack([weights[0, :, query, key].double().cpu().numpy() for weights in seen.values()])
