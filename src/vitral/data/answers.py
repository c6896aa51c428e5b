"""Records: pairs, chats and labelled texts as one kind of text, in which two special tokens mark the answers.

    abc<|answer|>cba<|end|>                                          a pair: a source and its target
    A fine book.<|answer|>good<|end|>                                a labelled text
    <|user|>hello<|answer|>hi<|end|><|user|>bye<|answer|>bye<|end|>  a chat, which may begin with <|system|>

A model is asked for the tokens after each `<|answer|>` up to and including the next `<|end|>`; no other token counts in
a loss. A record is a segment of its split by itself: it is never cut, and no window crosses its borders.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Int

from vitral.core.config import shown
from vitral.core.errors import UsageError
from vitral.core.language import N_, _
from vitral.data.alphabet import is_utf8
from vitral.data.formats import parsed_line

ANSWER, END, USER, SYSTEM = "<|answer|>", "<|end|>", "<|user|>", "<|system|>"
Records = Literal["pairs", "chats", "labels"]
"""The kinds of records."""
MARKERS: Mapping[str, tuple[str, ...]] = {
    "pairs": (ANSWER, END),
    "chats": (ANSWER, END, USER, SYSTEM),
    "labels": (ANSWER, END),
}
"""The special tokens of each kind."""
KEYS: Mapping[Records, tuple[str, ...]] = {
    "pairs": ("source", "target"),
    "chats": ("messages",),
    "labels": ("text", "label"),
}
"""The keys by which a file of each kind is recognised."""
KNOWN_KEYS = N_("pairs have source and target, chats have messages, labelled texts have text and label")
MOST_LABELS = 1000


@dataclass(frozen=True)
class Answers:
    """The tokens of the answers in a split.

    Attributes:
        opens: id of `ANSWER`.
        closes: id of `END`.
        labels: of labelled texts, the tokens of each label, in the order of the labels' texts.
    """

    opens: int
    closes: int
    labels: tuple[tuple[int, ...], ...] = ()

    def scored(self, tokens: Int[np.ndarray, "*rows time"]) -> Bool[np.ndarray, "*rows time"]:
        """Whether each token of whole records counts in a loss: it stands after `ANSWER`, up to and including `END`.

        >>> Answers(opens=8, closes=9).scored(np.array([1, 8, 2, 9, 1, 8, 9])).astype(int).tolist()
        [0, 0, 1, 1, 0, 0, 1]
        """
        opens, closes = (tokens == marker for marker in (self.opens, self.closes))
        return np.cumsum(opens, axis=-1) - opens > np.cumsum(closes, axis=-1) - closes

    def label(self, answer: Int[np.ndarray, " time"]) -> int:
        """The number of the label in a row that begins with `ANSWER`."""
        return self.labels.index(tuple(answer[1 : int(np.argmax(answer == self.closes))].tolist()))


def pair(source: str, target: str | None = None) -> str:
    """A pair as the text of a record; without a target, the prompt that asks for it."""
    return f"{source}{ANSWER}" if target is None else f"{source}{ANSWER}{target}{END}"


def chat(messages: Sequence[Mapping[str, Any]], location: str = "messages") -> str:
    """A chat as the text of a record; if its last message is the user's, the prompt that asks for an answer.

    Args:
        messages: each with a `role` ("system", "user" or "assistant") and its `content`; a system message is the first
            one, then user and assistant take turns.
        location: where they are, for error messages.

    >>> chat([{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}])
    '<|user|>hello<|answer|>hi<|end|>'

    Raises:
        UsageError: a message is malformed, contains a marker, or another role's turn it is.
    """
    text, expected = "", ("system", "user")
    for number, message in enumerate(messages, 1):
        where = _("{place}: message {number}", place=location, number=str(number))
        role: Any = message.get("role") if isinstance(message, Mapping) else None
        if role not in expected:
            raise UsageError(
                "{where}: expected the role {expected}, not {role}; a message has a role and its content, and user and "
                "assistant take turns, after a system message if there is one",
                where=where,
                expected=_(" or ").join(map(repr, expected)),
                role=shown(role),
            )
        content = checked(message.get("content"), "content", where)
        text += {"system": f"{SYSTEM}{content}", "user": f"{USER}{content}{ANSWER}"}.get(role, f"{content}{END}")
        expected = ("assistant",) if role == "user" else ("user",)
    return text


def checked(value: Any, key: str, location: str) -> str:
    """A text of a record.

    Raises:
        UsageError: it is no text, or contains one of the special tokens that mark answers.
    """
    if not isinstance(value, str) or not is_utf8(value):
        raise UsageError("{place}: no text in {key}", place=location, key=shown(key))
    for marker in MARKERS["chats"]:
        if marker in value:
            raise UsageError(
                "{place}: {key} contains {marker}, which marks the answers of records; remove it",
                place=location,
                key=shown(key),
                marker=marker,
            )
    return value


def records_of(lines: Sequence[str], kind: Records, where: str) -> Iterator[str]:
    """The text of each record of a file; empty lines are skipped.

    Args:
        lines: of the file: JSON objects.
        kind: of its records.
        where: the file, for error messages.

    Raises:
        UsageError: a line is malformed, has not the keys of this kind, or its text contains a marker; names the line.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            location = _("{where}: line {number}", where=where, number=str(number))
            yield _record(parsed_line(line, location), kind, location)


def _record(line: Mapping[str, Any], kind: Records, location: str) -> str:
    missing = [key for key in KEYS[kind] if key not in line]
    if missing:
        raise UsageError(
            "{place}: {key} is missing; a line of corpus.records = {kind!r} has {keys}",
            place=location,
            key=shown(missing[0]),
            kind=kind,
            keys=", ".join(KEYS[kind]),
        )
    if kind == "chats":
        messages = line["messages"]
        text = chat(messages, location) if isinstance(messages, list) else ""
        if not text.endswith(END):
            raise UsageError(
                "{place}: messages: expected a list of messages; the last message must be the assistant's",
                place=location,
            )
        return text
    first, second = KEYS[kind]
    answer = line[second]
    source = checked(line[first], first, location)
    if not source:
        raise UsageError("{place}: {key} is empty", place=location, key=shown(first))
    return pair(source, checked(str(answer) if isinstance(answer, int) else answer, second, location))


def labels_in(records: Iterator[str], source: str) -> list[str]:
    """The different labels of labelled texts, sorted; the source of the texts is for the error message.

    Raises:
        UsageError: there is one only, or there are too many.
    """
    labels = sorted({record.partition(ANSWER)[2].removesuffix(END) for record in records})
    if not 1 < len(labels) <= MOST_LABELS:
        raise UsageError(
            "{source}: different labels: {number:,}; labelled texts need 2 to {most:,} (free answers are pairs: source "
            "and target)",
            source=source,
            number=len(labels),
            most=MOST_LABELS,
        )
    return labels


KIND_NAMES: Mapping[str, str] = {
    "pairs": N_("pairs of a source and a target"),
    "chats": N_("chats"),
    "labels": N_("texts with a label"),
}
"""The name of each kind in messages."""
