"""The language of sentences: English in the code, other languages in the catalogue.

    _("{path}: not a run", path=path)             the sentence in the current language, with values in its places
    ngettext("{n} step", "{n} steps", n, n=n)     the same, with a plural
    N_("validation loss")                         marks a sentence of a table; it is translated where it is shown
    N_("plan: {n} steps").format(n=n)             a sentence that is stored; stored sentences are English
    retold(stored)                                a stored sentence in the current language

The English sentence is its own key (gettext); the catalogue is in `vitral/locale/LANGUAGE`, one file for each room. A
sentence that no catalogue has, such as a user's own, stays as it is. A number in a place is written as the language
writes it, with its decimal separator; numbers in data never are.
"""

import locale
import os
import re
import string
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from gettext import GNUTranslations
from importlib import resources
from io import BytesIO
from numbers import Real
from typing import Any

LANGUAGES = {"en": "English", "pt": "português"}
"""Codes and own names of the languages."""
VARIABLE = "VITRAL_LANG"
SYSTEM_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")
COMMA = ("pt",)
"""Languages that write a decimal comma, and points between thousands."""
_SWAPPED = str.maketrans(",.", ".,")
_ANY_NUMBER = r"[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?%?"
_NUMBER = re.compile(_ANY_NUMBER)
_PLACE = re.compile(r"\{\{|\}\}|\{(\w+)([^{}]*)\}")
_OF_NUMBERS = re.compile(r":[+,.\d]*[,dfg%]")
"""Formats of places that only a number can fill."""
_LEAST_LETTERS = 7
"""Sentences with fewer letters of their own, such as `{one}, not {other}`, fit too much that is no sentence of ours."""
NEEDED = re.compile(
    "[\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200c-\u200f\U000110bd\U000110cd\U000e0020-\U000e007f]"
)
"""Invisible characters that scripts and emoji need: joiners, marks of direction, signs, tags."""
LONGEST_STORED = 1500
"""Characters of a stored sentence; a longer line is none of ours, and stays as it is."""
_DEEPEST = 4
"""Sentences inside places of sentences."""

_current: ContextVar[str | None] = ContextVar("language", default=None)
_process: str | None = None


def recognised(name: str) -> str | None:
    """The code of a language by its code or the name of a locale; None if there is no catalogue of it.

    >>> recognised("pt_BR.UTF-8"), recognised("C"), recognised("de_DE")
    ('pt', 'en', None)
    """
    short = re.split(r"[_.@-]", name.strip().casefold())[0]
    return {"c": "en", "posix": "en", "english": "en", "portuguese": "pt"}.get(
        short, short if short in LANGUAGES else None
    )


def system_language() -> str:
    """The language of the environment: VITRAL_LANG, else that of the system; English if there is no catalogue of it."""
    own = os.environ.get(VARIABLE)
    if own:
        return recognised(own) or "en"
    named = next((os.environ[name] for name in SYSTEM_VARIABLES if os.environ.get(name)), None)
    return recognised(named or locale.getlocale()[0] or "en") or "en"


def unknown_language() -> str | None:
    """The language that VITRAL_LANG names, if there is no catalogue of it."""
    own = os.environ.get(VARIABLE)
    return own if own and recognised(own) is None else None


def language() -> str:
    """The code of the current language."""
    global _process
    chosen = _current.get()
    if chosen is not None:
        return chosen
    if _process is None:
        _process = system_language()
    return _process


def set_language(name: str | None) -> str:
    """Choose the language of this process: "en", "pt", the name of a locale, or None for the environment's.

    Returns:
        The code of the language; that of English if there is no catalogue of the named one.
    """
    global _process
    _process = system_language() if name is None else recognised(name) or "en"
    return _process


@contextmanager
def in_language(name: str) -> Generator[None]:
    """Another language inside the block."""
    token = _current.set(recognised(name) or "en")
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def process_language(name: str | None) -> Generator[str]:
    """Another language inside the block, in every thread; None for the environment's. Gives its code."""
    global _process
    before, code = _process, set_language(name)
    try:
        with in_language(code):
            yield code
    finally:
        _process = before


def _(sentence: str, /, **places: Any) -> str:
    """The sentence in the current language, with values in its places.

    A place has the syntax of `str.format`: `{steps:,}`, `{path!r}`. Without values the sentence has no places, and
    braces are braces.
    """
    code = language()
    told = _translated(sentence, code)
    return _filled(told, places, code) if places else told


def ngettext(one: str, several: str, n: int, /, **places: Any) -> str:
    """The sentence for one or for several, in the current language; see `_`."""
    code = language()
    told = (one if n == 1 else several) if code == "en" else _translations(code).ngettext(one, several, n)
    return _filled(told, places, code) if places else told


def N_(sentence: str, /) -> str:
    """Marks a sentence that is translated where it is shown; returns it unchanged."""
    return sentence


def number(value: float, spec: str = "") -> str:
    """A number as the current language writes it, for prose and pages; `spec` is a format of Python.

    >>> with in_language("pt"):
    ...     number(1234.5, ",.2f")
    '1.234,50'
    """
    return localised(format(value, spec))


def localised(text: str) -> str:
    """A number that is already written in English form, as the current language writes it."""
    return text.translate(_SWAPPED) if language() in COMMA else text


def listed(numbers: Iterable[str]) -> str:
    """Numbers as a list, which has semicolons where a comma is the decimal separator.

    >>> with in_language("pt"):
    ...     listed(["1,5", "2,5"])
    '1,5; 2,5'
    """
    return ("; " if language() in COMMA else ", ").join(numbers)


def retold(stored: str) -> str:
    """An English sentence that was stored with its values filled in, in the current language.

    It is compared with the marked sentences, and so are the values in its places. One that fits none stays as it is,
    and so does a line that is too long.
    """
    code = language()
    return stored if code == "en" or not stored else _retold(stored, code)


@lru_cache(maxsize=4096)
def _retold(stored: str, code: str, deepest: int = _DEEPEST) -> str:
    known = _translations(code).gettext(stored)
    if known != stored or len(stored) > LONGEST_STORED:
        return known
    for own_words, pattern, sentence in _patterns(code):
        found = pattern.fullmatch(stored) if own_words in stored else None
        if found:
            values = {name: _in_language(value, code, deepest - 1) for name, value in found.groupdict().items()}
            return _BARE.vformat(_translations(code).gettext(sentence), (), values)
    return stored


def _in_language(value: str, code: str, deepest: int) -> str:
    """A value in a place of a stored sentence: a number, another sentence, or anything else as it is."""
    if _NUMBER.fullmatch(value):
        return value.translate(_SWAPPED) if code in COMMA else value
    return _retold(value, code, deepest) if deepest and " " in value else value


class _Formatter(string.Formatter):
    """Formats numbers as a language writes them."""

    def __init__(self, code: str) -> None:
        self._has_comma = code in COMMA

    def format_field(self, value: Any, format_spec: str) -> str:
        """A value in its place."""
        text = format(value, format_spec)
        is_number = isinstance(value, Real) and value is not True and value is not False
        return text.translate(_SWAPPED) if is_number and self._has_comma else text


class _BareFormatter(string.Formatter):
    """Fills in values that are already written: their formats are ignored."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """The value as it is."""
        return str(value)

    def convert_field(self, value: Any, conversion: str | None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The value as it is."""
        return value


_BARE = _BareFormatter()


@cache
def _formatter(code: str) -> _Formatter:
    return _Formatter(code)


def _translated(sentence: str, code: str) -> str:
    # The translation of the empty sentence is the header of the catalogue.
    return sentence if code == "en" or not sentence else _translations(code).gettext(sentence)


def _filled(sentence: str, places: Mapping[str, Any], code: str) -> str:
    return _formatter(code).vformat(sentence, (), places)


@cache
def _translations(code: str) -> GNUTranslations:
    """The catalogue of a language: all files of its folder."""
    from babel.messages import Catalog
    from babel.messages.mofile import write_mo
    from babel.messages.pofile import read_po

    whole = Catalog(locale=code)
    for file in sorted(resources.files("vitral.locale").joinpath(code).iterdir(), key=lambda each: each.name):
        if file.name.endswith(".po"):
            for message in read_po(BytesIO(file.read_bytes()), locale=code):
                if message.id:
                    whole.add(message.id, message.string)
    compiled = BytesIO()
    write_mo(compiled, whole)
    compiled.seek(0)
    return GNUTranslations(compiled)


@cache
def _patterns(code: str) -> list[tuple[str, re.Pattern[str], str]]:
    """Marked sentences with places, those with most own words first.

    Each has its longest piece between two places, and the pattern of what it becomes in English.
    """
    sentences = [each for each in _translations(code)._catalog if isinstance(each, str) and _PLACE.search(each)]  # pyright: ignore
    sentences.sort(key=lambda each: len(_PLACE.sub("", each)), reverse=True)
    pieces = {each: max(re.split(r"\{.*?\}|\}", each), key=len) for each in sentences}
    return [(pieces[each], re.compile(_pattern(each), re.DOTALL), each) for each in sentences if _is_telling(each)]


def _is_telling(sentence: str) -> bool:
    """Whether its own words, or its numbers, distinguish a sentence from others."""
    letters = sum(map(str.isalpha, _PLACE.sub("", sentence)))
    of_numbers = all(_OF_NUMBERS.fullmatch(place[2]) for place in _PLACE.finditer(sentence) if place[1])
    return letters >= _LEAST_LETTERS or (of_numbers and letters > 1) or re.match(r"\w+ \w+ ", sentence) is not None


def _pattern(sentence: str) -> str:
    """A sentence with places as a regular expression; a place that comes twice has the same value.

    A place of words ends at the first piece of the sentence that follows it (an atomic group), since the next place
    fits whatever remains. So a line takes time in proportion to its length, whoever wrote it.
    """
    parts, end, seen = [""], 0, set[str]()
    for place in _PLACE.finditer(sentence):
        parts[-1] += re.escape(sentence[end : place.start()])
        name, end = place[1], place.end()
        if name is None:
            parts[-1] += re.escape(place[0][0])
        elif name in seen:
            parts[-1] += f"(?P={name})"
        elif _OF_NUMBERS.fullmatch(place[2]):
            parts[-1] += rf"(?P<{name}>{_ANY_NUMBER})"
        else:
            parts.append(rf"(?P<{name}>.*?)")
        seen |= {str(name)}
    first, *between = parts
    last = between.pop() if between else ""
    return first + "".join(map("(?>{})".format, between)) + last + re.escape(sentence[end:])
