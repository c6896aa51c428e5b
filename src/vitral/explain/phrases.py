"""The catalogue of phrases: every sentence the explainer and the checker write, in every language they write in.

The phrases of a language lie in one TOML file under `catalogue`, by table and key; places for numbers and names are
written `{like_this}`. The field's terms (query, key, value, softmax) are kept in every language.
"""

import tomllib
from collections.abc import Callable
from functools import cache
from importlib import resources

from vitral.core.config import nearest
from vitral.core.errors import UsageError

LANGUAGES = ("en", "pt")

Phrases = Callable[..., str]
"""Takes a key and what goes into the phrase's places; gives the phrase."""


@cache
def catalogue(language: str) -> dict[str, str]:
    """All phrases of a language by key, tables joined with points.

    Raises:
        UsageError: a language there is none of.
    """
    if language not in LANGUAGES:
        raise UsageError(f"--lang {language}: {nearest(language, LANGUAGES)}")
    text = (resources.files("vitral.explain") / "catalogue" / f"{language}.toml").read_text(encoding="utf-8")
    return {f"{table}.{key}": phrase for table, keys in tomllib.loads(text).items() for key, phrase in keys.items()}


def phrases(language: str) -> Phrases:
    """The function that says things in a language."""
    known = catalogue(language)

    def say(key: str, **places: object) -> str:
        return known[key].format(**places)

    return say
