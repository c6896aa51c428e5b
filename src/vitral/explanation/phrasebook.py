"""The phrases of walkthroughs and checks, by key.

A key such as "titles.scores" stands for an English sentence of `catalogue/en.toml`, which is translated as every other
sentence is (`vitral.core.language`). The field's terms (query, key, value) are not translated.
"""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.core.language import COMMA, LANGUAGES, _, in_language, localised, recognised
from vitral.core.language import language as current_language

VERDICT = "verdict|"
"""Before words of the catalogue that have another translation elsewhere."""


@cache
def catalogue() -> dict[str, str]:
    """The English sentence of each key, "table.key"."""
    text = (resources.files("vitral.explanation") / "catalogue" / "en.toml").read_text(encoding="utf-8")
    return {f"{table}.{key}": phrase for table, keys in tomllib.loads(text).items() for key, phrase in keys.items()}


@dataclass(frozen=True)
class Phrases:
    """The phrases of one language, as a function of key and values.

    Attributes:
        language: its code.
        in_data: whether numbers in formulas keep the decimal point in every language, as JSON does.
        whole: whether everything is written: all rows and columns of a table, all terms of a sum.
    """

    language: str
    in_data: bool = False
    whole: bool = False

    def __call__(self, key: str, **values: object) -> str:
        """The phrase of a key, with its values filled in."""
        with in_language(self.language):
            return _(catalogue()[key], **values).removeprefix(VERDICT)

    def translated(self, text: str) -> str:
        """A marked word of a formula in this language; other words stay as they are."""
        with in_language(self.language):
            return _(text)

    def number(self, written: str) -> str:
        """A number, written in English form, as this language writes it.

        >>> phrases("pt").number("0.5"), phrases("en").number("0.5")
        ('0,5', '0.5')
        """
        if not self.has_comma:
            return written
        with in_language(self.language):
            return localised(written)

    @property
    def has_comma(self) -> bool:
        """Whether numbers have a decimal comma."""
        return self.language in COMMA and not self.in_data


def phrases(language: str | None = None) -> Phrases:
    """The phrases of a language; of the current one if None.

    Raises:
        UsageError: an unknown language.
    """
    code = current_language() if language is None else recognised(language)
    if code is None:
        raise UsageError("--lang {language}: {hint}", language=language, hint=nearest(str(language), LANGUAGES))
    return Phrases(code)
