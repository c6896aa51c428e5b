"""Word lists by language: words of two senses, and lists for minimal pairs.

They are read from `word_lists.toml` beside this file.
"""

import tomllib
from functools import cache
from importlib import resources
from typing import Annotated

from pydantic import Field

from vitral.core.config import Config
from vitral.core.errors import UsageError

LEAST_FREQUENT = 0.05
"""Least share of a text's words that are frequent words of its language.

They are 10% of Shakespeare's words and 8% of Machado de Assis's. A frequent word that another language shares makes 1
to 4%, as "que" does in French and Spanish.
"""

Words = Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
TwoForms = Annotated[tuple[Annotated[tuple[str, str], Field(strict=False)], ...], Field(strict=False)]


class Sense(Config):
    """A word with two senses.

    Attributes:
        word: as it is written in the sentences.
        first: its meaning in the first sentences.
        second: its meaning in the second sentences.
        first_sentences: contain the word once each.
        second_sentences: likewise.
    """

    word: str
    first: str
    second: str
    first_sentences: Words
    second_sentences: Words


class PairKind(Config):
    """Lists from which the minimal pairs of one kind are made, see `vitral.inspection.fill`."""

    kind: str
    templates: Words
    elements: TwoForms
    subjects: TwoForms
    between: TwoForms = ()


class WordLists(Config):
    """The lists of one language.

    Attributes:
        frequent: words by which the language is recognized.
        senses: words with two senses.
        pairs: kinds of minimal pairs.
    """

    frequent: Words
    senses: Annotated[tuple[Sense, ...], Field(strict=False)]
    pairs: Annotated[tuple[PairKind, ...], Field(strict=False)]


@cache
def word_lists() -> dict[str, WordLists]:
    """The lists of every language, by its code ("en", "pt")."""
    name = "word_lists.toml"
    text = (resources.files("vitral.inspection") / name).read_text(encoding="utf-8")
    return {language: WordLists.parse(table, f"{name}: {language}") for language, table in tomllib.loads(text).items()}


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
