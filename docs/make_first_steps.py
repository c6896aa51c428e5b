"""Run the transcripts of first-steps.md and docs/pt/first-steps.md again: python docs/make_first_steps.py [DOCUMENT …].

A transcript has blocks of two kinds, each run in the order of the document:

    ```console   a line that begins with `$ ` is a command; the lines after it are its output
    ```python    the blocks share their names

A block ```text right after one of them is its output, or that of its last command.

In an output, a line `…` stands for any number of lines. Commands and Python run in a folder of their own each, with the
text of the document in it. `rewritten` puts today's output into a document and keeps its choice of lines: a line stays
where it is, with today's numbers. tests/app/test_first_steps.py compares the rest: see `stable`.

Run it on a machine that does nothing else: it takes about five minutes a document.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from vitral.core.language import set_language

DOCS = Path(__file__).parent
ANY = "…"
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$(?:\n+^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Document:
    """A transcript and how it is run.

    Attributes:
        path: the file.
        language: in which Vitral speaks.
        text: the name of the user's file.
        content: the bundled text in it.
        sample: begins a text that the model wrote while it was trained.
        dropped: lines that are not compared: progress and measured plans.
        varies: words that depend on the time or the machine, and their replacement.
    """

    path: Path
    language: str
    text: str
    content: str
    sample: str
    dropped: re.Pattern[str]
    varies: tuple[tuple[re.Pattern[str], str], ...]


_MACHINE = (
    (re.compile(r"[─━═\[\]]+"), ""),
    (re.compile(r"\b(threads?|float32|bfloat16)\b"), "CHOSEN"),
    (re.compile(r"--(prompt|text) .*$"), "WORDS"),  # of the model's own sample
)
DOCUMENTS = {
    "en": Document(
        DOCS / "first-steps.md",
        "en",
        "my.txt",
        "the-window-of-aldermere.txt",
        "--- sample after step",
        re.compile(r"step \S+ · loss|note: plan: (?!this text).*(\d steps|a step[: ]|a larger model)|^- "),
        (*_MACHINE, (re.compile(r"(better|worse|equal) (than|to) .*$"), "RANK")),
    ),
    "pt": Document(
        DOCS / "pt" / "first-steps.md",
        "pt",
        "meu.txt",
        "dom-casmurro.txt",
        "--- amostra",
        re.compile(r"passo \S+ · perda|nota: plano: (?!este texto).*(\d passos|um passo[: ]|um modelo maior)|^- "),
        (*_MACHINE, (re.compile(r"(melhor que|pior que|igual) .*$"), "RANK")),
    ),
}
SAMPLE_END = "---"
PROGRESS = re.compile(r"(step|passo) \S+ · ")
EXACT = ("vitral corpus", "vitral.survey")
"""Commands and calls whose numbers are those of the document, on every machine."""
NOT_COMPARED = ("vitral doctor", "vitral --version", "vitral.doctor", "vitral generate", ".generate(")
"""Commands and calls whose whole output is the machine's or the model's."""
NUMBER = re.compile(r"[-−+]?\d[\d.,:]*(?:e[-+]?\d+)?")


class Step(NamedTuple):
    """A command, or a block of Python, and the output that the document shows."""

    kind: str
    code: str
    shown: tuple[str, ...]
    is_apart: bool = False
    """Whether the output has a block of its own."""

    @property
    def is_exact(self) -> bool:
        """Whether the numbers are compared."""
        return any(name in self.code for name in EXACT)

    @property
    def is_compared(self) -> bool:
        """Whether the output is compared."""
        return bool(self.shown) and not any(name in self.code for name in NOT_COMPARED)


def steps(markdown: str) -> Iterator[Step]:
    """The commands and blocks of Python of a document."""
    for block in BLOCK.finditer(markdown):
        kind, code, apart = block.groups()
        after = tuple(apart.rstrip("\n").split("\n")) if apart else ()
        if kind == "python":
            yield Step(kind, code, after, bool(after))
            continue
        *entries, last = [entry.rstrip("\n").split("\n") for entry in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]]
        yield from (Step(kind, command, tuple(output)) for command, *output in entries)
        yield Step(kind, last[0], (*last[1:], *after), bool(after))


class Unit(NamedTuple):
    """Lines that are compared as one: a line, or a sample as a whole.

    Attributes:
        key: the comparable content; empty for what is not compared.
        lines: as printed.
    """

    key: str
    lines: tuple[str, ...]


def units(lines: Sequence[str], document: Document, *, exact: bool) -> list[Unit]:
    """The lines of an output, samples in one piece."""
    made: list[Unit] = []
    inside = False
    for line in lines:
        if inside:
            made[-1] = Unit(made[-1].key, (*made[-1].lines, line))
        else:
            made.append(Unit(_key(line, document, exact), (line,)))
        inside = line.startswith(document.sample) or (inside and line != SAMPLE_END)
    return made


def _key(line: str, document: Document, exact: bool) -> str:
    if line == ANY:
        return ANY
    if line.startswith(document.sample):
        return document.sample
    if document.dropped.match(line):
        return ""
    for pattern, instead in () if exact else document.varies:
        line = pattern.sub(instead, line)
    return " ".join((line if exact else NUMBER.sub("#", line)).split())


def stable(lines: Sequence[str], document: Document, *, exact: bool) -> list[str]:
    """The part of an output that must be equal; nothing of empty lines."""
    return [unit.key for unit in units(lines, document, exact=exact) if unit.key]


def pieces(shown: Sequence[str]) -> list[list[str]]:
    """The lines between two `…`."""
    made: list[list[str]] = [[]]
    for line in shown:
        if line == ANY:
            made.append([])
        else:
            made[-1].append(line)
    return made


def places(shown: Sequence[str], printed: Sequence[str]) -> list[int] | list[str]:
    """The line of the output at which each piece begins; the first piece that is not where it should be."""
    found, at, wanted = list[int](), 0, pieces(shown)
    for number, piece in enumerate(wanted):
        possible = range(at, len(printed) - len(piece) + 1)
        if number == 0:
            possible = possible[:1]
        if number == len(wanted) - 1:
            possible = [place for place in possible if place + len(piece) == len(printed) or not piece]
        place = next((place for place in possible if list(printed[place : place + len(piece)]) == piece), None)
        if place is None:
            return piece
        found.append(place)
        at = place + len(piece)
    return found


def missing(shown: Sequence[str], printed: Sequence[str]) -> list[str]:
    """The first piece of the transcript that the output does not have where it should."""
    found = places(shown, printed)
    return [piece for piece in found if isinstance(piece, str)]


def today(step: Step, printed: Sequence[str], document: Document) -> list[str]:
    """The lines of an output that the document shows, as they are printed today.

    Raises:
        ValueError: a piece of the document is not in the output; it has to be written by hand.
    """
    if not step.is_compared:
        return _cut(step.shown, printed)
    shown = stable(step.shown, document, exact=False)
    whole = units(printed, document, exact=False)
    compared = [number for number, unit in enumerate(whole) if unit.key]
    found = places(shown, [whole[number].key for number in compared])
    if any(isinstance(piece, str) for piece in found):
        raise ValueError("\n".join([f"{step.code}: not in its output:", *map(str, found), "The output:", *printed]))
    kept = list[str]()
    for number, (piece, place) in enumerate(zip(pieces(shown), found, strict=True)):
        kept += [ANY] if number else []
        if piece:
            first, last = (compared[int(place) + end] for end in (0, len(piece) - 1))
            kept += _as_shown(whole[first : last + 1], step.shown, document)
    return kept


def _as_shown(found: Sequence[Unit], shown: Sequence[str], document: Document) -> list[str]:
    """The lines of these units; progress and empty lines only if the document has such lines."""
    lines = [unit.lines[0] for unit in units(shown, document, exact=False)]
    left_out = [kind for kind in (_is_progress, _is_empty) if not any(map(kind, lines))]
    return [line for unit in found if not any(kind(unit.lines[0]) for kind in left_out) for line in unit.lines]


def _is_progress(line: str) -> bool:
    return bool(PROGRESS.match(line))


def _is_empty(line: str) -> bool:
    return not line.strip()


def _cut(shown: Sequence[str], printed: Sequence[str]) -> list[str]:
    """The whole output, or its beginning where the document shows its beginning."""
    lines = "\n".join(printed).strip("\n").split("\n")
    return [*lines[: len(shown) - 1], ANY] if shown and shown[-1] == ANY else lines


def rewritten(document: Document, run: Callable[[Step], str]) -> str:
    """The document with today's outputs; `run` returns that of a step."""
    markdown = document.path.read_text(encoding="utf-8")
    for step in steps(markdown):
        output = run(step)
        if not step.shown:
            continue
        lines = "\n".join(line.rstrip() for line in today(step, output.split("\n"), document))
        before = "\n".join(step.shown)
        head = f"$ {step.code}\n" if step.kind == "console" else step.code
        head += "```\n\n```text\n" if step.is_apart else ""
        assert markdown.count(head + before) == 1, head
        markdown = markdown.replace(head + before, head + lines)
    return markdown


class Runner:
    """Runs the steps of a document: commands as a user would, Python in one process."""

    def __init__(self, document: Document, folder: Path) -> None:
        """Two folders with the document's text: one for the commands, one for Python."""
        self.document, self.names = document, dict[str, Any]()
        self.folders = {kind: folder / kind for kind in ("console", "python")}
        for each in self.folders.values():
            prepare(document, each)

    def __call__(self, step: Step) -> str:
        """The output of a step."""
        if step.kind == "python":
            with contextlib.chdir(self.folders["python"]):
                return executed(step.code, self.names, self.document.language)
        environment = {**os.environ, "VITRAL_LANG": self.document.language, "COLUMNS": "100"}
        command = [sys.executable, "-m", *shlex.split(step.code)]
        done = subprocess.run(
            command, cwd=self.folders["console"], env=environment, capture_output=True, encoding="utf-8", check=True
        )
        return done.stdout


def prepare(document: Document, folder: Path) -> None:
    """A folder with the document's text."""
    folder.mkdir(parents=True)
    text = (resources.files("vitral.data") / "texts" / document.content).read_bytes()
    (folder / document.text).write_bytes(text)


def executed(code: str, names: dict[str, Any], language: str) -> str:
    """The output of a block of Python, as if its lines were typed after those of the blocks before it."""
    printed = io.StringIO()
    set_language(language)
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "<document>", "exec"), names)
    finally:
        set_language(None)
    return printed.getvalue()


def main(chosen: Sequence[str]) -> None:
    """Rewrite the documents in these languages, or all."""
    for language in chosen or DOCUMENTS:
        document = DOCUMENTS[language]
        with tempfile.TemporaryDirectory() as folder:
            written = rewritten(document, Runner(document, Path(folder)))
        document.path.write_text(written, encoding="utf-8", newline="\n")
        print(document.path)


if __name__ == "__main__":
    main(sys.argv[1:])
