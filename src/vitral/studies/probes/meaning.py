"""What a model knows of words: neighbours, one word in two contexts, and pairs of sentences of which one is right."""

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import resources
from itertools import combinations, product
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from vitral.core.config import Config
from vitral.core.errors import UsageError
from vitral.core.streams import numpy_stream
from vitral.data import Dataset, Split, Tokenizer
from vitral.inspection import (
    co_occurrences,
    cosines,
    fill,
    nearest,
    place_of,
    positive_pmi,
    preference,
    spearman,
    whole_words,
)
from vitral.model import Transformer
from vitral.studies.probes.meaning_shown import show
from vitral.studies.probes.protocol import Plain, RunProbe, Trained, require_next_tokens

MOST_WORDS = {"quick": 300, "standard": 400, "full": 500}
LEAST_WORDS = 20
"""With fewer whole words among the tokens nothing is said of neighbours."""
LEAST_COUNT = 50
LEAST_SHARE = 0.5
REACH = 2
"""Tokens before and after a word that count as its context."""
SHUFFLES = 99
SHOWN_WORDS, SHOWN_NEIGHBOURS = 8, 5
LOOKED_AT = 200_000
"""Tokens of the training part by which its language is told."""
LEAST_TOLD = 0.05
"""Share of a text's words that are telling words of its language: 10% of Shakespeare's, 8% of Machado de Assis's.

One of them that another language has too makes 1 to 4%, as "que" does in French and Spanish.
"""

Words = Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
TwoForms = Annotated[tuple[Annotated[tuple[str, str], Field(strict=False)], ...], Field(strict=False)]


class Sense(Config):
    """A word of two meanings.

    Attributes:
        word: as it stands in the sentences.
        first: what it means in the first sentences.
        second: what it means in the second.
        first_sentences: hold the word once each.
        second_sentences: likewise.
    """

    word: str
    first: str
    second: str
    first_sentences: Words
    second_sentences: Words


class PairKind(Config):
    """Lists from which minimal pairs of a kind are made, see `vitral.inspection.fill`."""

    kind: str
    templates: Words
    elements: TwoForms
    subjects: TwoForms
    between: TwoForms = ()


class Language(Config):
    """What is asked of a model of a text in one language.

    Attributes:
        telling: frequent words by which the language is told.
        neighbours: words whose neighbours are shown.
        senses: words of two meanings.
        pairs: kinds of minimal pairs.
    """

    telling: Words
    neighbours: Words
    senses: Annotated[tuple[Sense, ...], Field(strict=False)]
    pairs: Annotated[tuple[PairKind, ...], Field(strict=False)]


@cache
def languages() -> dict[str, Language]:
    """What `meaning.toml` holds, by language."""
    name = "meaning.toml"
    text = (resources.files("vitral.studies.probes") / name).read_text(encoding="utf-8")
    return {language: Language.parse(table, f"{name}: {language}") for language, table in tomllib.loads(text).items()}


def language_of(text: str) -> str | None:
    """The language whose telling words are most frequent in a text; of equals the first of the file.

    None where they are less than `LEAST_TOLD` of its words.
    """
    words = text.lower().split()

    def told(language: Language) -> int:
        return sum(words.count(word) for word in language.telling)

    known = languages()
    most = max(known, key=lambda name: told(known[name]))
    return most if told(known[most]) >= LEAST_TOLD * max(1, len(words)) else None


def measure(trained: Trained) -> Plain:
    """Neighbours, senses and minimal pairs of one run.

    Raises:
        UsageError: the run is not one of next tokens, or its text is in no language there are lists for.
    """
    require_next_tokens(trained)
    model, tokenizer = trained.run.model, trained.run.tokenizer
    tokens = np.asarray(trained.dataset.splits["train"].tokens[:LOOKED_AT])
    name = language_of(tokenizer.decode(tokens))
    if name is None:
        raise UsageError(
            f"the text is in none of the languages that there are sentences for ({', '.join(languages())})"
        )
    language = languages()[name]
    return {
        "language": name,
        "neighbours": _neighbours(model, tokenizer, trained.dataset, language, MOST_WORDS[trained.budget]),
        "places": ["embed", *(f"blocks.{layer}.resid_post" for layer in range(model.config.num_layers))],
        "senses": list(_senses(model, tokenizer, trained.dataset, language)),
        "pairs": list(_pairs(model, tokenizer, language)),
    }


def _neighbours(
    model: Transformer, tokenizer: Tokenizer, dataset: Dataset, language: Language, most: int
) -> Plain | None:
    """Neighbours in the token embedding, and how well it agrees with counted contexts; None with too few words."""
    part = dataset.splits["train"]
    words = whole_words(tokenizer, part, least_count=LEAST_COUNT, most=most, least_share=LEAST_SHARE)
    if len(words) < LEAST_WORDS:
        return None
    counted = torch.from_numpy(positive_pmi(co_occurrences(part, words, tokenizer.vocab_size, reach=REACH)))
    embedded = model.token_embedding.weight.detach()[torch.from_numpy(words)]
    shuffles = np.stack([numpy_stream(0, "meaning", "shuffle", i).permutation(len(words)) for i in range(SHUFFLES)])
    alike, alike_counted = (cosines(rows, rows).numpy() for rows in (embedded, counted))
    correlation, shuffled = spearman(alike, alike_counted, shuffles)
    spelled = [tokenizer.token_bytes(int(word)).decode("utf-8", "replace").strip() for word in words]
    rows = [spelled.index(word) for word in language.neighbours if word in spelled][:SHOWN_WORDS]
    everything = range(len(words))

    def listed(vectors: Tensor, row: int) -> list[Plain]:
        found = nearest(vectors, row, everything, SHOWN_NEIGHBOURS)
        return [{"word": spelled[one.index], "cosine": one.cosine} for one in found]

    return {
        "words": len(words),
        "correlation": correlation,
        "shuffled": shuffled,
        "of": [
            {"word": spelled[row], "embedded": listed(embedded, row), "counted": listed(counted, row)} for row in rows
        ],
    }


def _senses(model: Transformer, tokenizer: Tokenizer, dataset: Dataset, language: Language) -> Iterator[Plain]:
    """Cosines of a word's vectors within a sense and across senses, at every place; words that do not fit left out."""
    before = passage(tokenizer, dataset.splits["test"], model.config.context_length // 2)
    for sense in language.senses:
        try:
            first, second = (
                [_vectors(model, tokenizer, before, sentence, sense.word) for sentence in sentences]
                for sentences in (sense.first_sentences, sense.second_sentences)
            )
        except UsageError:
            continue
        within = [pair for group in (first, second) for pair in combinations(group, 2)]
        yield {
            "word": sense.word,
            "first": sense.first,
            "second": sense.second,
            "within": _mean_cosines(within),
            "across": _mean_cosines(list(product(first, second))),
        }


def passage(tokenizer: Tokenizer, part: Split, length: int) -> Tensor:
    """The `length` tokens of a part up to its first line break that has so many before it, the break included.

    Where a stretch has no such break, start tokens.
    """
    breaks = np.array([b"\n" in tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)])
    for begin, end in part.segments.tolist():
        segment = np.asarray(part.tokens[begin:end]).astype(np.int64)
        ends = np.flatnonzero(breaks[segment]) + 1
        if (ends >= length).any():
            last = int(ends[ends >= length][0])
            return torch.from_numpy(segment[last - length : last])
    return torch.full((length,), tokenizer.start)


def _vectors(model: Transformer, tokenizer: Tokenizer, before: Tensor, sentence: str, word: str) -> Tensor:
    """The residual stream at a word's last token, [places, d_model]: the embedding, then after every block.

    Before the sentence stands as much of one passage as brings the word to the same position in every sentence, so
    that position tells nothing. What follows the word is left out.

    Raises:
        UsageError: the sentence does not fit the tokenizer or the model.
    """
    tokens, place = place_of(tokenizer, sentence, word)
    if not 0 < place <= len(before):
        raise UsageError(f"{place} tokens up to the word {word!r}; half of the model's context is {len(before)}")
    until = torch.cat([before[place - 1 :], tokens[1 : place + 1]])
    names = ["embed", *(f"blocks.{layer}.resid_post" for layer in range(model.config.num_layers))]
    kept = model.trace(until[None], names)
    return torch.stack([kept[name][0, -1] for name in names])


def _mean_cosines(pairs: list[tuple[Tensor, Tensor]]) -> list[float]:
    """At every place, the mean cosine of these pairs of vectors."""
    each = [torch.nn.functional.cosine_similarity(one.double(), other.double(), dim=-1) for one, other in pairs]
    return torch.stack(each).mean(dim=0).tolist()


def _pairs(model: Transformer, tokenizer: Tokenizer, language: Language) -> Iterator[Plain]:
    """Every minimal pair with ln p(good) - ln p(bad); None where the tokenizer or the model cannot take it."""
    for kind in language.pairs:
        for pair in fill(kind.templates, kind.subjects, kind.elements, kind.between):
            try:
                preferred = preference(model, tokenizer, pair)
            except UsageError:
                preferred = None
            yield {"kind": kind.kind, "good": pair.good, "bad": pair.bad, "preference": preferred}


MEANING = RunProbe("meaning", measure, show, seconds={"quick": 3, "standard": 5, "full": 10})
