"""The catalogue of phrases: every sentence of walkthroughs and checks, in every language.

The phrases of a language are in one TOML file under `catalogue`, by table and key; placeholders for numbers and names
are written `{like_this}`. The field's terms (query, key, value, softmax) are not translated.
"""

import tomllib
from collections.abc import Callable
from functools import cache
from importlib import resources

from vitral.core.checked import checked
from vitral.core.config import nearest
from vitral.core.errors import UsageError

LANGUAGES = ("en", "pt")

Phrases = Callable[..., str]
"""Takes a key and the values of the placeholders; returns the phrase."""


@cache
def catalogue(language: str) -> dict[str, str]:
    """All phrases of a language by "table.key".

    Raises:
        UsageError: an unknown language.
    """
    if language not in LANGUAGES:
        raise UsageError("--lang {language}: {language2}", language=language, language2=nearest(language, LANGUAGES))
    text = (resources.files("vitral.explanation") / "catalogue" / f"{language}.toml").read_text(encoding="utf-8")
    return {f"{table}.{key}": phrase for table, keys in tomllib.loads(text).items() for key, phrase in keys.items()}


@checked(first=True)
def phrases(language: str) -> Phrases:
    """The phrases of a language, as a function of key and placeholders.

    Raises:
        UsageError: an unknown language.
    """
    known = catalogue(language)

    def say(key: str, **places: object) -> str:
        return known[key].format(**places)

    return say
