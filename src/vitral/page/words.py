"""The sentences of a page's front-end, in every language.

`make web` collects the front-end's English sentences from web/src/page into a file with one sentence a line; its script
has their places in that file, and the catalogue of this room has their translations.
"""

from functools import cache
from importlib import resources

from vitral.core.language import LANGUAGES, _, in_language


@cache
def sentences() -> tuple[str, ...]:
    """The front-end's sentences in English."""
    file = resources.files("vitral.page") / "assets" / "sentences.txt"
    return tuple(file.read_text(encoding="utf-8").splitlines())


def words(*codes: str) -> dict[str, list[str]]:
    """The front-end's sentences in these languages, or in all.

    Args:
        codes: the languages. English alone needs no catalogue.
    """
    told: dict[str, list[str]] = {}
    for code in codes or LANGUAGES:
        if code == "en":
            told[code] = list(sentences())
            continue
        with in_language(code):
            told[code] = [_(sentence) for sentence in sentences()]
    return told
