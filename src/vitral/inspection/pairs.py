"""Minimal pairs: two sentences of which one is right, and that differ in nothing but what makes it so.

A model that gives the right one more probability, more often than chance, knows something of the rule (Linzen et al.
2016; Marvin & Linzen 2018). Probabilities are of whole sentences and not divided by their length: a pair differs in one
word, and where a tokenizer cuts its two forms into different numbers of tokens, that is part of what it makes of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional

from vitral.core.errors import UsageError
from vitral.data import Tokenizer
from vitral.model import Transformer

Forms = Sequence[tuple[str, str]]
"""Words, each in its two forms: singular and plural, or masculine and feminine."""


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences.

    Attributes:
        good: the right one.
        bad: the same with the other form of one word.
    """

    good: str
    bad: str


def fill(templates: Sequence[str], subjects: Forms, elements: Forms, between: Forms = ()) -> list[MinimalPair]:
    """Two pairs for each subject, one for each of its forms; templates and other words take turns.

    `{element}`, the only thing in which a pair differs, has the subject's form in the good sentence and the other in
    the bad one. So each form is right as often as wrong, and what prefers one form whatever the subject is right in
    half of the pairs. `{same}` is a word in the subject's form, `{other}` one in the other form.

    >>> fill(["{subject} {element}."], [("A dog", "Dogs")], [("runs", "run")])[1]
    MinimalPair(good='Dogs run.', bad='Dogs runs.')

    Raises:
        UsageError: there is no template, subject or element.
    """
    if not (templates and subjects and elements):
        raise UsageError("minimal pairs need a template, a subject and an element")
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


def log_probability(model: Transformer, tokens: Int[np.ndarray, " time"], start: int) -> float:
    """Ln p of a text's tokens given the start token: Σ ln p(token | start and the tokens before it), in float64.

    Raises:
        UsageError: no tokens, or more than the model's context.
    """
    if not 0 < len(tokens) <= model.config.context_length:
        raise UsageError(f"a sentence of {len(tokens)} tokens; the model takes 1 to {model.config.context_length}")
    targets = torch.from_numpy(tokens.astype(np.int64))
    inputs = torch.cat([torch.tensor([start]), targets[:-1]])
    with torch.inference_mode():
        logits = model(inputs[None])[0]
    return -float(functional.cross_entropy(logits.float(), targets, reduction="none").double().sum())


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
        tokenizer: the model's; it may cut the word into several tokens.
        sentence: holds the word, whole, in small letters, once.
        word: ends at the border of a token in the sentence.

    Raises:
        UsageError: the word does not stand in the sentence exactly once, or does not end where a token does.
    """
    spaced = f" {sentence} "
    found = [place for place in range(1, len(spaced)) if _is_word_at(spaced, word, place)]
    if len(found) != 1:
        raise UsageError(f"the word {word!r} stands {len(found)} times in {sentence!r}, not once")
    end = found[0] - 1 + len(word)
    whole, until = tokenizer.encode(sentence), tokenizer.encode(sentence[:end])
    if whole[: len(until)].tolist() != until.tolist():
        raise UsageError(f"in {sentence!r} no token ends with the word {word!r}")
    tokens = torch.from_numpy(np.concatenate([[tokenizer.start], whole]).astype(np.int64))
    return tokens, len(until)


def _is_word_at(spaced: str, word: str, place: int) -> bool:
    around = spaced[place - 1], spaced[place + len(word) : place + len(word) + 1]
    return spaced.startswith(word, place) and not any(character.isalpha() for character in around)
