"""All sentences of the code that users read, found in its source: for the tests of the catalogues.

`python tests/house/sentences.py` adds new sentences to the catalogues, without translations, and marks what is gone.
"""

import ast
import re
import string
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, cast

from babel.messages import Catalog
from babel.messages.pofile import read_po, write_po

SOURCE = Path(__file__).parents[2] / "src" / "vitral"
CATALOGUES = SOURCE / "locale"
Text = str | tuple[str, str]
"""A sentence, or one for one and one for several."""
FUNCTIONS = {"_", "N_", "ngettext", "tell", "complain", "ok", "wrong", "unknown"}


@dataclass(frozen=True)
class Sentence:
    """One marked sentence.

    Attributes:
        text: the sentence, or one and several.
        places: keywords given with it; None where they are given later.
        where: file and line.
        room: the package.
    """

    text: Text
    places: frozenset[str] | None
    where: str
    room: str


@cache
def trees() -> tuple[tuple[Path, ast.Module], ...]:
    """The files of the code, parsed."""
    return tuple((file, ast.parse(file.read_text(encoding="utf-8"))) for file in sorted(SOURCE.rglob("*.py")))


@cache
def errors() -> frozenset[str]:
    """Names of the classes of errors for users: they take a sentence and its places."""
    found, before = {"VitralError"}, 0
    classes = [node for _, tree in trees() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    while len(found) > before:
        before = len(found)
        found |= {c.name for c in classes if any(isinstance(base, ast.Name) and base.id in found for base in c.bases)}
    return frozenset(found)


def marked() -> Iterator[Sentence]:
    """Sentences in calls of `FUNCTIONS` and of errors; values are in the places of the last one."""
    callables = FUNCTIONS | errors() | {"__init__"}
    for file, tree in trees():
        room = file.relative_to(SOURCE).parts[0].removesuffix(".py")
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", None)
            if getattr(node.func, "attr", None) == "__init__" and ast.unparse(node.func) == "super().__init__":
                name = "__init__"
            if name not in callables:
                continue
            texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            given = frozenset(keyword.arg or "**" for keyword in node.keywords)
            for text in [(texts[0], texts[1])] if name == "ngettext" else texts:
                filled = None if name == "N_" or text in texts[:-1] else given
                yield Sentence(text, filled, f"{file.relative_to(SOURCE)}:{node.lineno}", room)


def places(sentence: str) -> set[str]:
    """The names of a sentence's places."""
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name is not None}


def is_sentence(text: str) -> bool:
    """Whether there are words to translate."""
    return bool(re.search(r"[A-Za-z]{2}", re.sub(r"\{[^{}]*\}", "", text)))


@cache
def sentences() -> dict[str, dict[Text, list[str]]]:
    """Room → sentence → where it is. A sentence of several rooms belongs to the first of them."""
    found: dict[str, dict[Text, list[str]]] = {}
    owner: dict[Text, str] = {}
    for each in (*marked(), *declared()):
        if is_sentence(each.text if isinstance(each.text, str) else each.text[1]):
            room = owner.setdefault(each.text, each.room)
            found.setdefault(room, {}).setdefault(each.text, []).append(each.where)
    return found


def declared() -> Iterator[Sentence]:
    """Sentences declared as data: help texts, phrases of explanations, studies' files, labels of word lists."""
    yield from _of_commands()
    for pattern, room, texts in DECLARED:
        for file in sorted(SOURCE.glob(pattern)):
            for text in texts(tomllib.loads(file.read_text(encoding="utf-8"))):
                yield Sentence(text, None, str(file.relative_to(SOURCE)), room)
    yield from _of_the_page()
    yield from _of_activations()


def _of_study(study: dict[str, Any]) -> list[str]:
    texts = [study[key] for key in ("title", "question", "claim", "design", "source") if key in study]
    return [*texts, *(arm["title"] for arm in study["arms"])]


DECLARED: list[tuple[str, str, Callable[[dict[str, Any]], list[str]]]] = [
    # Walkthroughs and checks, whose places are filled in by key.
    (
        "explanation/catalogue/en.toml",
        "explanation",
        lambda tables: [one for each in tables.values() for one in each.values()],
    ),
    ("studies/catalogue/*.toml", "studies", _of_study),
    (
        "inspection/word_lists.toml",
        "inspection",
        lambda lists: [kind["kind"] for each in lists.values() for kind in each["pairs"]],
    ),
    # The words around the worked examples have a catalogue of their own, gallery.po.
    (
        "explanation/gallery/*.toml",
        "gallery",
        lambda one: [one[key] for key in ("title", "source", "note") if key in one],
    ),
    ("app/words.toml", "app", lambda words: [*words, *words.values()]),
    ("runs/_presets/*.toml", "runs", lambda preset: [preset["description"]]),
    ("zoo/*.toml", "runs", lambda recipe: [recipe["description"]]),
]
"""Files with sentences, their room, and where the sentences are."""


def _of_the_page() -> Iterator[Sentence]:
    """The front-end's sentences, which `make web` collects from its sources."""
    file = SOURCE / "page" / "assets" / "sentences.txt"
    for text in file.read_text(encoding="utf-8").splitlines():
        yield Sentence(text, None, file.name, "page")


def _of_activations() -> Iterator[Sentence]:
    """The meanings of the activations' names, which `vitral list names` prints."""
    from vitral.core.names import AFTER_BLOCKS, BEFORE_BLOCKS, BLOCK_STEPS

    said = BEFORE_BLOCKS | {step: one for step, one in BLOCK_STEPS.items() if step[:6] != "cross."} | AFTER_BLOCKS
    yield from (Sentence(text, None, "core/names.py", "core") for text in said.values())


def _of_commands() -> Iterator[Sentence]:
    """The help texts of the commands, their arguments and options, and the words of the parser's library."""
    from typer.main import get_command

    from vitral.app.terminal import app, help
    from vitral.core.language import in_language

    texts: list[str | None] = [*help.WORDS.split(), *help.PHRASES.splitlines()]
    with in_language("en"):
        group: Any = get_command(app)
        for command in (group, *group.commands.values()):
            options = [each for each in command.params if "completion" not in str(each.name)]
            texts += [command.help, *(each.help for each in options)]
    yield from (Sentence(text, None, "vitral --help", "app") for text in texts if text)


def catalogue(language: str, room: str) -> Catalog:
    """A room's catalogue; an empty one if there is none."""
    file = CATALOGUES / language / f"{room}.po"
    return read_po(BytesIO(file.read_bytes()), locale=language) if file.exists() else Catalog(locale=language)


def translations(language: str, room: str) -> dict[Text, tuple[str, ...]]:
    """Sentence → its translation, or the two of a plural; empty where they are missing."""
    found: dict[Text, tuple[str, ...]] = {}
    for message in catalogue(language, room):
        key, told = cast(Any, message.id), cast(Any, message.string)
        if key:
            found[key] = (told,) if isinstance(told, str) else tuple(told)
    return found


def update(language: str) -> int:
    """Add new sentences to a language's catalogues, remove those that are gone, and return how many lack a translation.

    A translation moves with its sentence to another room.
    """
    rooms = sentences()
    files = {file.stem for file in (CATALOGUES / language).glob("*.po")}
    known = {text: told for room in files for text, told in translations(language, room).items() if any(told)}
    missing = 0
    for room in sorted(files | set(rooms)):
        made = Catalog(locale=language, charset="utf-8", header_comment=f"# {language}: sentences of {room}.")
        for text in rooms.get(room, {}):
            there = known.get(text)
            missing += there is None
            there = there or ("",) * (2 if isinstance(text, tuple) else 1)
            made.add(cast(Any, text), there if isinstance(text, tuple) else there[0])
        written = BytesIO()
        write_po(written, made, width=118, omit_header=True, sort_output=False)
        file = CATALOGUES / language / f"{room}.po"
        if rooms.get(room):
            file.write_bytes(HEADER.format(language=language).encode() + written.getvalue())
        else:
            file.unlink(missing_ok=True)
    return missing


HEADER = (
    'msgid ""\nmsgstr ""\n"Language: {language}\\n"\n"MIME-Version: 1.0\\n"\n'
    '"Content-Type: text/plain; charset=utf-8\\n"\n"Plural-Forms: nplurals=2; plural=(n > 1);\\n"\n\n'
)


if __name__ == "__main__":
    for each in sys.argv[1:] or ["pt"]:
        print(f"{each}: {update(each)} sentences lack a translation")
