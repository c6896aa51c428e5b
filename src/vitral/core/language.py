"""The language of sentences: English in the code, other languages in the catalogue.

    _("{path}: not a run", path=path)             the sentence in the current language, with values in its places
    ngettext("{n} step", "{n} steps", n, n=n)     the same, with a plural
    N_("validation loss")                         a sentence that is shown later, by `_`: a `Message`
    N_("plan: {n} steps").format(n=n)             the same, with values; its text is English, for data and files
    _(message)                                    a message in the current language

The English sentence is its own key (gettext); the catalogue is in `vitral/locale/LANGUAGE`, one file for each room. A
sentence that no catalogue has, such as a user's own, stays as it is. A number in a place is written as the language
writes it, with its decimal separator; numbers in data never are. A file has the English text of a message, and in a
table the sentence and its values (`storable`, `restored`).
"""

import locale
import os
import re
import string
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from gettext import GNUTranslations
from io import BytesIO
from numbers import Real
from pathlib import Path
from typing import Any, cast

LANGUAGES = {"en": "English", "pt": "português"}
"""Codes and own names of the languages."""
VARIABLE = "VITRAL_LANG"
SYSTEM_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")
COMMA = ("pt",)
"""Languages that write a decimal comma, and points between thousands."""
_SWAPPED = str.maketrans(",.", ".,")
NEEDED = re.compile(
    "[\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200c-\u200f\U000110bd\U000110cd\U000e0020-\U000e007f]"
)
"""Invisible characters that scripts and emoji need: joiners, marks of direction, signs, tags."""
SENTENCES = "sentences"
"""The key of a file's table of messages."""

_current: ContextVar[str | None] = ContextVar("language", default=None)
_process: str | None = None


def recognised(name: str) -> str | None:
    """The code of a language by its code or the name of a locale; None if there is no catalogue of it.

    >>> recognised("pt_BR.UTF-8"), recognised("C"), recognised("de_DE")
    ('pt', 'en', None)
    """
    short = re.split(r"[_.@-]", name.strip().casefold())[0]
    known = {"c": "en", "posix": "en", "english": "en", "portuguese": "pt"}.get(short, short)
    return known if known in LANGUAGES else None


def system_language() -> str:
    """The language of the environment: VITRAL_LANG, else that of the system; English if there is no catalogue of it."""
    named = next((os.environ[name] for name in (VARIABLE, *SYSTEM_VARIABLES) if os.environ.get(name)), None)
    return recognised(named or locale.getlocale()[0] or "en") or "en"


def unknown_language() -> str | None:
    """The language that VITRAL_LANG names, if there is no catalogue of it."""
    own = os.environ.get(VARIABLE)
    return own if own and recognised(own) is None else None


def language() -> str:
    """The code of the current language."""
    global _process
    _process = _process or system_language()
    return _current.get() or _process


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
def process_language(name: str | None) -> Generator[None]:
    """Another language inside the block, in every thread; None for the environment's."""
    global _process
    before, code = _process, set_language(name)
    try:
        with in_language(code):
            yield
    finally:
        _process = before


class Message(str):
    """An English sentence with its values filled in, which `_` says in the current language.

    Attributes:
        sentence: with its places.
        values: what fills them: numbers, texts, other messages.
    """

    sentence: str
    values: Mapping[str, Any]
    _begin = ""

    def __new__(cls, text: str, sentence: str | None = None, values: Mapping[str, Any] | None = None) -> "Message":
        """A message; without a sentence the text is one."""
        made = super().__new__(cls, text)
        made.sentence, made.values = str(text if sentence is None else sentence), values or {}
        return made

    def format(self, *_args: Any, **values: Any) -> "Message":  # pyright: ignore[reportIncompatibleMethodOverride]
        """The sentence with these values in its places; of an error, what it says."""
        values = {name: said(value) for name, value in values.items()}
        return Message(super().format(**values), self.sentence, values)

    @property
    def cause(self) -> "Message":
        """What it says without its advice: the place {why}, if it has one."""
        return self.values.get("why", self)

    def removeprefix(self, prefix: str, /) -> "Message":  # pyright: ignore[reportIncompatibleMethodOverride]
        """The message without a beginning that it has in every language, such as a path."""
        if not self.startswith(prefix):
            return self
        made = Message(super().removeprefix(prefix), self.sentence, self.values)
        made._begin = self._begin + prefix
        return made

    def translated(self) -> str:
        """The message in the current language."""
        return _(self.sentence, **self.values).removeprefix(self._begin)


def N_(sentence: str, /) -> Message:
    """Marks a sentence that is translated where it is shown."""
    return Message(sentence)


def said(value: Any) -> Any:
    """The message that an error holds; any other value as it is."""
    holds = isinstance(value, BaseException) and len(value.args) == 1 and isinstance(value.args[0], Message)
    return value.args[0] if holds else value


def _(sentence: str, /, **values: Any) -> str:
    """The sentence or message in the current language, with values in its places.

    A place has the syntax of `str.format`: `{steps:,}`, `{path!r}`. Without values the sentence has no places, and
    braces are braces.
    """
    if isinstance(sentence, Message) and not values:
        return sentence.translated()
    code = language()
    # The translation of the empty sentence is the header of the catalogue.
    translated = sentence if code == "en" or not sentence else _translations(code).gettext(sentence)
    return _FORMATTER.vformat(translated, (), values) if values else translated


def ngettext(one: str, several: str, n: int, /, **values: Any) -> str:
    """The sentence for one or for several, in the current language; see `_`."""
    code = language()
    translated = (one if n == 1 else several) if code == "en" else _translations(code).ngettext(one, several, n)
    return _FORMATTER.vformat(translated, (), values) if values else translated


def storable(data: Mapping[str, Any]) -> dict[str, Any]:
    """Data with messages as a file holds it: their English texts, and a table of their sentences and values."""
    messages = list[Message]()
    _mapped(data, lambda one: messages.append(one) if isinstance(one, Message) and one.values else None)
    table = [_plain(one) for one in messages]
    return {**data, SENTENCES: table} if table else dict(data)


def restored(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data that `storable` was given; texts that are not in the table, as in older files, are plain texts."""
    data = dict(data)
    table = {plain["text"]: _message(plain) for plain in data.pop(SENTENCES, ())}
    return _mapped(data, lambda one: table.get(one, one) if isinstance(one, str) else one) if table else data


def _mapped(data: Any, change: Callable[[Any], Any]) -> Any:
    """The data with a change of each value that is no table and no list."""
    if isinstance(data, Mapping):
        return {key: _mapped(one, change) for key, one in cast("Mapping[str, Any]", data).items()}
    if isinstance(data, list | tuple):
        return [_mapped(one, change) for one in cast("list[Any]", data)]
    return change(data)


def _plain(value: Any) -> Any:
    """A message, or a value of one, as plain data."""
    if isinstance(value, Message):
        values = {name: _plain(one) for name, one in value.values.items()}
        return {"text": value, "sentence": value.sentence, "values": values}
    return value if value is None or isinstance(value, int | float | str) else str(value)


def _message(plain: Any) -> Any:
    if not isinstance(plain, dict):
        return plain
    message = cast("dict[str, Any]", plain)
    values = {name: _message(one) for name, one in message["values"].items()}
    return Message(message["text"], message["sentence"], values)


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


class _Formatter(string.Formatter):
    """Formats numbers as the current language writes them, and messages and errors as it says them."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """A value in its place."""
        value = said(value)
        text = format(_(value) if isinstance(value, Message) else value, format_spec)
        return localised(text) if isinstance(value, Real) and value is not True and value is not False else text


_FORMATTER = _Formatter()


@cache
def _translations(code: str) -> GNUTranslations:
    """The catalogue of a language: all files of its folder."""
    from babel.messages import Catalog
    from babel.messages.mofile import write_mo
    from babel.messages.pofile import read_po

    whole = Catalog(locale=code)
    for file in sorted((Path(__file__).parents[1] / "locale" / code).glob("*.po")):
        for message in read_po(BytesIO(file.read_bytes()), locale=code):
            if message.id:
                whole.add(message.id, message.string)
    compiled = BytesIO()
    write_mo(compiled, whole)
    compiled.seek(0)
    return GNUTranslations(compiled)
