"""A worked example as its author wrote it, whatever the format of the file: its data, and the token of each value."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vitral.core.errors import UsageError, reason
from vitral.explanation.examples.faults import KeyPath
from vitral.explanation.examples.numerals import as_percent
from vitral.explanation.examples.schema import SPECIAL, toml

MOST_MENDED = 60
_BARE = re.compile(
    r"(?<=[\[,])\s*(?![-+]?(?:inf|nan|true|false|[\d.]+(?:[eE][-+]?\d+)?)\s*[,\]])([^\s\[\]{}\",'=]+)(?=\s*[,\]])"
)
"""A word without quotes in a list, as 2x or abc."""


@dataclass(frozen=True)
class Token(ABC):
    """A number or word as written.

    Attributes:
        written: its characters in the file.
        line: counted from 1; of a spreadsheet the row.
        column: counted from 1; of a text the index of the first character.
        sheet: the worksheet of a spreadsheet.
    """

    written: str
    line: int
    column: int
    sheet: str = ""

    @property
    def end(self) -> int:
        """In a text, the index after its last character."""
        return self.column + len(self.written)

    @property
    @abstractmethod
    def characters(self) -> str:
        """The number or word without markup."""

    @abstractmethod
    def changed(self, value: str) -> str:
        """Another value, in the style of this one."""


class Document:
    """A worked example as written.

    Attributes:
        name: of the file, or "example", for messages.
        text: its characters, or a readable form of a file that is no text.
        data: tables, lists, numbers and strings in the keys of docs/examples.md, as TOML gives them; a subtable of
            quantities is part of its table: `mlp.pre = …` is the key "mlp.pre".
        tokens: of each value, or the first of each list or table, by its path, as ("claimed", "scores", 0, 1).
        notes: one sentence for each part of the file that is not read.
        faults: complaints about lines that were left out.
        start: the token at which a complaint about a value points that the file does not have; None if at none.
    """

    name: str
    text: str
    data: dict[str, Any]
    tokens: dict[KeyPath, Token]
    notes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    start: Token | None = None

    def refuse(self, complaint: str, *path: str | int) -> UsageError:
        """The error for a value, at the deepest part of `path` that the file has."""
        tokens = (self.tokens.get(path[:depth]) for depth in range(len(path), 0, -1))
        token = next(filter(None, tokens), self.start)
        if token is None:
            return UsageError("{where}: {complaint}", where=self.name, complaint=complaint)
        return self.refuse_token(complaint, token)

    def refuse_token(self, complaint: str, token: Token) -> UsageError:
        """The error for a token: the file, the line, the complaint."""
        return UsageError("{where}, line {line}: {complaint}", where=self.name, line=token.line, complaint=complaint)

    def typed(self, path: KeyPath) -> str | None:
        """The characters of a value as the author typed them, without markup; None if the file has no such value."""
        token = self.tokens.get(path)
        return None if token is None else token.characters

    def rewritten(self, changes: Mapping[KeyPath, str]) -> bytes:
        """The file with other values, in its own format.

        Args:
            changes: the new values by path, as characters: numbers with a decimal point, words, "inf" and "-inf".
        """
        text, tokens = self.text, {self.tokens[path]: value for path, value in changes.items()}
        for token, value in sorted(tokens.items(), key=lambda change: -change[0].column):
            text = text[: token.column] + token.changed(value) + text[token.end :]
        return text.encode()


class Literal(Token):
    """A number or word of TOML."""

    @property
    def characters(self) -> str:
        """The literal without its quotes."""
        written = self.written
        return written[1:-1] if written[:1] in ("'", '"') and written[-1:] == written[0] else written

    def changed(self, value: str) -> str:
        """The value as TOML: in quotes if it is no number, or replaces a number in quotes."""
        before = self.characters
        is_number = not value.strip("+-.0123456789")
        if is_number and before.endswith("%"):
            value = as_percent(value)
        elif is_number and (before == self.written or before == "?" or before in SPECIAL):
            return value
        return json.dumps(value, ensure_ascii=False)


class TomlDocument(Document):
    """A worked example in TOML."""

    start = Literal("", 1, 0)

    def __init__(self, name: str, text: str, *, mend: bool = False) -> None:
        """Read the text.

        Args:
            name: of the file.
            text: its characters.
            mend: whether to put bare words among numbers in quotes, and to leave out lines that are no TOML.

        Raises:
            UsageError: the text is not TOML; the message names the line.
        """
        self.name, lines, faults = name, text.split("\n"), list[str]()
        for attempt in range(MOST_MENDED if mend else 1):
            self.text = "\n".join(lines)
            try:
                self.data = toml(self.text, name)
                break
            except UsageError as error:
                number = re.search(r", line (\d+): ", str(error))
                index = int(number[1]) - 1 if number else -1
                line = lines[index]
                if not mend or number is None or not line.strip() or attempt + 1 == MOST_MENDED:
                    raise
                quoted = _BARE.sub(r'"\1"', line)
                lines[index] = quoted if quoted != line else ""
                faults += [reason(error)] if quoted == line else []
        self.faults = tuple(faults)
        self.tokens = tokens = dict[KeyPath, Token]()
        for path, literal in literals(self.text).items():
            for depth in range(len(path)):
                tokens.setdefault(path[: depth + 1], literal)


_STRING = r'"""(?:\\.|[^\\])*?"{3,5}(?!")|\'\'\'.*?\'{3,5}(?!\')|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\''
_WORD_OF_TOML = r'[^\s\[\]{},=#"\'.][^\s\[\]{},=#"\']*(?: \d\d:[^\s,\]}#]*)?'
_WORD = rf"(?>{_STRING}|\[(?:\s|#[^\n]*)*+\]|\{{\s*\}}|{_WORD_OF_TOML})"
_TOKEN = rf"#[^\n]*|(?P<value>{_WORD})(?![ \t]*[=.\"'])|{_WORD}|[ \t\r]+|."
_INSIDE = re.compile(_TOKEN, re.DOTALL)
_OUTSIDE = re.compile(rf"^[ \t]*\[[^\n]*|{_TOKEN}", re.DOTALL | re.MULTILINE)
"""Outside brackets a line may be the header of a table."""


def literals(text: str) -> dict[KeyPath, Literal]:
    """The literal of every number, word and empty list, by its path of keys and indices.

    Args:
        text: a TOML document that `tomllib` accepts. It returns values without their lines; here each value is
            replaced by its number, and `tomllib` shows at which key the number is.
    """
    at, line, depth = 0, 1, 0
    values, numbered = list[Literal](), list[str]()
    while token := (_INSIDE if depth else _OUTSIDE).match(text, at):
        written = token[0]
        if token["value"]:
            numbered.append(str(len(values)))
            values.append(Literal(written, line, at))
        else:
            depth += (written in "[{") - (written in "]}")
            numbered.append(written)
        at, line = token.end(), line + written.count("\n")
    return {path: values[number] for path, number in _numbers(toml("".join(numbered), ""), ())}


def _numbers(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, int]]:
    if isinstance(value, int):
        yield path, value
    else:
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _numbers(part, (*path, key))
