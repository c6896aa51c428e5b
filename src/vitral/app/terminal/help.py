"""The argument parser in the current language: the option --lang, help pages, and the parser's own words.

Help texts stay English where they are declared; they are translated when they are shown. The parser's words are marked
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
from vitral.core.language import LANGUAGES, N_, VARIABLE, _, process_language, recognised, unknown_language

OPTION = "--lang"
COMPLETING = "_VITRAL_COMPLETE"
"""The variable by which a shell asks for completion; nothing else is printed then."""
METAVARS = (
    N_("OPTIONS"),
    N_("COMMAND"),
    N_("ARGS"),
    N_("RUN"),
    N_("STUDY"),
    N_("PATH"),
    N_("NAME"),
    N_("TEXT"),
    N_("PRESET"),
    N_("CONFIG"),
    N_("EXAMPLE"),
    N_("FILE"),
    N_("FOLDER"),
    N_("MY"),
    N_("KIND"),
    N_("JSON"),
    N_("KEY"),
    N_("VALUE"),
    N_("PATTERN"),
    N_("INTEGER"),
    N_("FLOAT"),
    N_("RANGE"),
)
"""Words in capitals that stand for what the user writes."""
TYPES = (N_("int"), N_("float"), N_("str"), N_("path"), N_("int range"), N_("float range"), N_("list[str]"))
HEADINGS = (N_("Arguments"), N_("Options"), N_("Commands"))
HELPS = (
    N_("required"),
    N_("default"),
    N_("env var"),
    N_("Show this message and exit."),
    N_("Install completion for the current shell."),
    N_("Show completion for the current shell, to copy it or customize the installation."),
)
_CAPITALS = re.compile(rf"\b(?:{'|'.join(METAVARS)})\b")
_TYPE = re.compile(rf"(?<=<)(?:{'|'.join(map(re.escape, TYPES))})(?=>)")
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
    found = None
    for place, word in enumerate(arguments):
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if name == OPTION and (equals or place + 1 < len(arguments)):
            found = value if equals else arguments[place + 1]
    return found


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


class _Page:
    """A formatter of the parser's library that translates what is written into it."""

    def __init__(self, formatter: Any) -> None:
        self._formatter = formatter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._formatter, name)

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        self._formatter.write_usage(prog, in_capitals(args), f"{_('Usage:')} " if prefix is None else prefix)

    def section(self, name: str) -> Any:
        return self._formatter.section(_(name))

    def write_dl(self, rows: Sequence[tuple[str, str]], *given: Any, **options: Any) -> None:
        self._formatter.write_dl([(in_capitals(name), _row(text)) for name, text in rows], *given, **options)


class _Translated:
    """A command, or the group of them, whose help is shown in the current language."""

    @property
    def help(self) -> str | None:
        text: str | None = self.__dict__["help"]
        return None if text is None else _(inspect.cleandoc(text))

    @help.setter
    def help(self, text: str | None) -> None:
        self.__dict__["help"] = text

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, _Page(formatter))  # pyright: ignore[reportAttributeAccessIssue]


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

    def list_commands(self, ctx: Any) -> list[str]:
        """The names in the order of the help."""
        return [*self.commands]


def in_capitals(text: str) -> str:
    """Words that stand for what the user writes, and types, in the current language."""
    return _TYPE.sub(lambda found: _(found[0]), _CAPITALS.sub(lambda found: _(found[0]), text))


def _row(text: str) -> str:
    """The help of an option: its own text, then what the parser adds in brackets."""
    told, found = _(text), _EXTRA.fullmatch(text)
    if told != text or found is None:
        return told
    extra = "; ".join(map(_told_extra, found[2].split("; ")))
    return f"{_(found[1])}  [{extra}]" if found[1] else f"[{extra}]"


def _told_extra(text: str) -> str:
    name, colon, value = text.partition(": ")
    return f"{_(name)}: {value}" if colon else _(text)


def refusal(message: str) -> str:
    """The parser's refusal on one line."""
    return " ".join(message.replace("Value error, ", "").split()).rstrip(".")
