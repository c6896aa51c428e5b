"""Minimal pairs: two sentences of which one is right, and which differ only in the word that makes it so.

A model that gives the right one more probability more often than chance knows something of the rule (Linzen et al.
2016; Marvin & Linzen 2018). Probabilities are of whole sentences and are not divided by their length: a pair differs in
one word, and where a tokenizer cuts its two forms into different numbers of tokens, that is part of what the model
predicts. `agreeing_weights` compares the attention within the two sentences of a pair, so place and distance are equal
by construction.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.data import Split, Tokenizer
from vitral.data.batches import thinned
from vitral.evaluation import WittenBell
from vitral.inspection.attention import weight_names
from vitral.inspection.targets import Scored, loss_by_target
from vitral.inspection.word_lists import PairKind
from vitral.model import Transformer

Plain = dict[str, Any]
ORDER = 3
"""Of the counted n-grams: with a million subword tokens, longer ones predict worse."""
MOST_COUNTED = 2**23
"""Tokens of a longer training split that are counted."""
CHANCE = 0.5
TIE = 1e-4
"""Nats of preference below which two sentences count as equally probable: rounding alone gives some."""
_WORD = re.compile(r"\w+")
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


def tokens_until(tokenizer: Tokenizer, sentence: str, end: int) -> tuple[Int[Tensor, " time"], int]:
    """The tokens of a sentence after the start token, and how many of them the first `end` characters are.

    Raises:
        UsageError: no token ends there.
    """
    whole, until = tokenizer.encode(sentence), tokenizer.encode(sentence[:end])
    if whole[: len(until)].tolist() != until.tolist():
        raise UsageError("in {sentence!r} no token ends with the word {word!r}", sentence=sentence, word=sentence[:end])
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
    found = []
    for kind in kinds if model.mask is not None else ():
        pairs = fill(kind.templates, kind.subjects, kind.elements, kind.between)
        for index, subject in enumerate(kind.subjects):
            try:
                both = [
                    [_weight(model, tokenizer, sentence, form, _end(pair, sentence)) for sentence in pair]
                    for pair, form in zip(pairs[2 * index : 2 * index + 2], subject, strict=True)
                ]
            except UsageError:
                continue
            agree, disagree = (torch.stack([weights[place] for weights in both]).mean(0) for place in (0, 1))
            found.append(
                {"kind": kind.kind, "subject": subject[0], "agree": agree.tolist(), "disagree": disagree.tolist()}
            )
    return found


def _end(pair: MinimalPair, sentence: str) -> int:
    """Where the word ends in which the two sentences differ."""
    differs = next(place for place, (one, other) in enumerate(zip(*pair, strict=False)) if one != other)
    found = next(word for word in _WORD.finditer(sentence) if word.end() > differs)
    return found.end()


def _weight(
    model: Transformer, tokenizer: Tokenizer, sentence: str, subject: str, end: int
) -> Float[Tensor, "layers heads"]:
    (whole, key), (_, query) = (tokens_until(tokenizer, sentence, place) for place in (len(subject), end))
    whole = whole[: query + 1]
    if len(whole) > model.config.context_length:
        raise UsageError("{sentence!r}: longer than the model's context", sentence=sentence)
    seen = model.trace(whole[None], weight_names(model))
    return torch.stack([weights[0, :, query, key].cpu() for weights in seen.values()]).double()
