"""The argument parser in the current language: the option --lang, help pages, and the parser's own words.

Help texts stay English where they are declared; they are translated when they are shown. The parser's words are listed
here, in the spelling of the oldest and of the newest versions of its libraries.
"""

import inspect
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from vitral.app.terminal.streams import complain
from vitral.core.language import LANGUAGES, VARIABLE, _, process_language, recognised, unknown_language

OPTION = "--lang"
COMPLETING = "_VITRAL_COMPLETE"
"""The variable by which a shell asks for completion; nothing else is printed then."""
WORDS = """
OPTIONS COMMAND ARGS RUN STUDY PATH NAME TEXT PRESET CONFIG EXAMPLE FILE FOLDER WORD MY KIND JSON KEY VALUE PATTERN
INTEGER FLOAT RANGE
"""
"""Words in capitals that stand for what the user writes."""
PHRASES = """
int
float
str
path
int range
float range
list[str]
Arguments
Options
Commands
required
default
env var
Show this message and exit.
Install completion for the current shell.
Show completion for the current shell, to copy it or customize the installation.
No such command {name}. Did you mean {others}?
No such command {name}
No such option: {name} (Possible options: {others})
No such option: {name} Did you mean {others}?
No such option: {name}
Missing argument {name}. Choose from: {known}
Missing argument {name}
Missing option {name}. Choose from: {known}
Missing option {name}
Option {name} requires an argument
Option {name} does not take a value
Got unexpected extra argument(s) ({given})
Got unexpected extra argument ({given})
Got unexpected extra arguments ({given})
Invalid value for {name}: {why}
Input should be a valid integer, unable to parse string as an integer
Input should be a valid number, unable to parse string as a number
Input should be greater than or equal to {bound}
Input should be less than or equal to {bound}
{given} is not a valid integer
{given} is not a valid int range
{given} is not a valid float
{given} is not a valid float range
{given} is not in the range {range}
{given} is not one of {known}
"""
"""Types, headings and what else the parser's library says, its refusals with places for what the user wrote."""
_WORD = re.compile(r"\b[A-Z]+\b|(?<=<)[^<>]+(?=>)")
_EXTRA = re.compile(r"(?:(.*\S)  )?\\?\[([^\[\]]*)\]", re.DOTALL)  # the backslash is an early Typer's

LanguageOption = Annotated[
    str | None,
    typer.Option(
        OPTION,
        metavar="|".join(LANGUAGES),
        help=f"Language: en (English) or pt (Portuguese).  [default: {VARIABLE}, or the system's]",
        autocompletion=lambda incomplete: [code for code in LANGUAGES if code.startswith(incomplete)],
    ),
]
"""The option --lang, which `speaking` has read before the arguments are parsed."""


def asked_language(arguments: Sequence[str]) -> str | None:
    """The value of the last --lang, before or after the command's name; None if there is none.

    It is read before the arguments are parsed, so that it holds for help pages and for what the parser refuses.

    >>> asked_language(["--lang", "pt", "demo"]), asked_language(["demo", "--lang=en"]), asked_language(["demo"])
    ('pt', 'en', None)
    """
    asked = None
    for index, word in enumerate(arguments):
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if name == OPTION and (equals or index + 1 < len(arguments)):
            asked = value if equals else arguments[index + 1]
    return asked


@contextmanager
def speaking(arguments: Sequence[str]) -> Iterator[None]:
    """The language of one call of the program: that of --lang, else of VITRAL_LANG, else of the system.

    An unknown one is English, with a note on stderr.
    """
    asked = asked_language(arguments)
    with process_language(asked):
        unknown = unknown_language() if asked is None else asked if recognised(asked) is None else None
        if unknown is not None and COMPLETING not in os.environ:
            known = ", ".join(f"{code} ({name})" for code, name in LANGUAGES.items())
            named = VARIABLE if asked is None else OPTION
            note = "{option} {name}: no such language, English is used; there are {known}"
            complain(note.format(option=named, name=unknown, known=known))
        yield


_Context: Any = TyperCommand.context_class


class _Page(_Context.formatter_class):
    """The formatter of the parser's library, which translates what is written into it."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, in_capitals(args), f"{_('Usage:')} " if prefix is None else prefix)

    def section(self, name: str) -> Any:
        return super().section(_(name))

    def write_dl(self, rows: Sequence[tuple[str, str]], *given: Any, **options: Any) -> None:
        super().write_dl([(in_capitals(name), option_help(text)) for name, text in rows], *given, **options)


class _TranslatedContext(_Context):
    formatter_class = _Page


class _Translated:
    """A command, or the group of them, whose help is shown in the current language."""

    context_class = _TranslatedContext

    @property
    def help(self) -> str | None:
        text: str | None = self.__dict__["help"]
        return None if text is None else _(inspect.cleandoc(text))

    @help.setter
    def help(self, text: str | None) -> None:
        self.__dict__["help"] = text


class TranslatedCommand(_Translated, TyperCommand):
    """A command whose help is shown in the current language."""


class Group(_Translated, TyperGroup):
    """The group of all commands, whose help is shown in the current language; each is made when it is asked for."""

    commands: Mapping[str, Any]  # pyright: ignore[reportIncompatibleVariableOverride]
    made: Mapping[str, Any]

    def __init__(self, **given: Any) -> None:
        """Take the commands of the class."""
        super().__init__(**given)
        self.commands = self.made


def in_capitals(text: str) -> str:
    """Words that stand for what the user writes, and types, in the current language."""
    return _WORD.sub(lambda match: _(match[0]), text)


def option_help(text: str) -> str:
    """The help of an option: its own text, then what the parser adds in brackets."""
    translated, parts = _(text), _EXTRA.fullmatch(text)
    if translated != text or parts is None:
        return translated
    extras = (one.partition(": ") for one in parts[2].split("; "))
    extra = "; ".join(f"{_(name)}{colon}{value}" for name, colon, value in extras)
    return f"{_(parts[1])}  [{extra}]" if parts[1] else f"[{extra}]"


def refusal(message: str) -> str:
    """The parser's refusal on one line, in the current language."""
    line = " ".join(message.replace("Value error, ", "").split()).rstrip(".")
    for phrase in PHRASES.splitlines():
        if found := re.fullmatch(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+?)", re.escape(phrase)), line):
            return _(
                phrase,
                **{name: refusal(given) if name == "why" else given for name, given in found.groupdict().items()},
            )
    return line
