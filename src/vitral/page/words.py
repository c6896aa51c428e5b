"""The sentences of a page's front-end, in every language.

The front-end's English sentences are their own keys; `make web` collects them from web/src/page into a file with one
sentence a line, and the catalogue of this room has their translations.
"""

from functools import cache
from importlib import resources

from vitral.core.language import LANGUAGES, _, in_language


@cache
def sentences() -> tuple[str, ...]:
    """The front-end's sentences in English."""
    file = resources.files("vitral.page") / "assets" / "sentences.txt"
    return tuple(file.read_text(encoding="utf-8").splitlines())


def words() -> dict[str, dict[str, str]]:
    """Of every other language, its words for the front-end's sentences."""
    told: dict[str, dict[str, str]] = {}
    for code in LANGUAGES:
        if code != "en":
            with in_language(code):
                told[code] = {sentence: _(sentence) for sentence in sentences()}
    return told
