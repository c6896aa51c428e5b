"""A conversation with a run: the messages as its text has them, and the answers."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from vitral.app.run import Run
from vitral.core.errors import UsageError
from vitral.core.shown import Shown, Tabular
from vitral.data.answers import MARKERS, chat

SPEAKER = re.compile(r"\n\n([^\W\d_][^\n.:]{0,30}[.:]\n)(?=\S)")
"""A line of a play that names who speaks: it ends in a point or a colon, after an empty line."""
SEARCHED, LEAST = 2_000_000, 10
"""Tokens of the training text in which speakers are looked for, and the turns that each of them must have."""
TURN = "\n\n"
"""Ends a turn of a play, or a paragraph."""


def speakers_of(run: Run) -> tuple[str, str]:
    """The lines that begin the turns of the two who speak most in a run's text; empty where there are none."""
    with suppress(UsageError):
        text = run.tokenizer.decode(run.dataset().splits["train"].tokens[:SEARCHED])
        speakers = [line for line, turns in Counter(SPEAKER.findall(text)).most_common(2) if turns >= LEAST]
        if len(speakers) > 1:
            return speakers[1], speakers[0]
    return "", ""


class Conversation(Shown, Tabular):
    """A conversation with a run, which stays loaded.

    Attributes:
        run: answers.
        speakers: what begins a turn of the person and one of the run; None for a run of chats.
        messages: so far, each with its "role" ("system", "user" or "assistant") and its "content".
        dropped: the number of messages, the oldest ones, that the last answer could not read: the context is full.
        is_cut: whether the last message alone is longer than the context, so that only its end was read.
    """

    _is_only_text = True

    def __init__(
        self, run: Run, speakers: tuple[str, str] | None, messages: Sequence[Mapping[str, Any]], **options: Any
    ) -> None:
        """Begin with these messages; the options are those of `vitral.generate`."""
        self.run, self.speakers, self.options = run, speakers, options
        self.messages, self.dropped, self.is_cut = [dict(one) for one in messages], 0, False

    def say(self, text: str, on_text: Callable[[str], Any] = len) -> str:
        """The answer to a message; where it is interrupted, what was said until then stays in the conversation.

        Args:
            text: the message.
            on_text: called with each piece of the answer.

        Raises:
            UsageError: the message has a character that the model has never seen, or a special token of chats.
        """
        self.run.encode(text, replace=self.options.get("replace"))  # it names the place in the message
        asked, pieces = [*self.messages, {"role": "user", "content": text}], list[str]()

        def collect(piece: str) -> None:
            pieces.append(piece)
            if len(pieces) > 1:  # the first one is the prompt
                on_text(piece)

        options = {**self.options, "seed": self.options.get("seed", 0) + len(asked)}
        stop = list(MARKERS["chats"]) if self.speakers is None else [TURN]
        try:
            self.run.generate(self._shortened(asked), **options, stop=stop, crop=True, on_text=collect)
        finally:
            if pieces:
                self.messages = [*asked, {"role": "assistant", "content": "".join(pieces[1:])}]
        return self.messages[-1]["content"]

    def _shortened(self, messages: list[dict[str, Any]]) -> str:
        """The prompt of the messages that have room in the context; the oldest turns make room, whole ones."""
        head = messages[: messages[0]["role"] == "system"]
        turns, most = messages[len(head) :], self.run.model.config.context_length

        def is_full() -> bool:
            return self.run.encode(self._prompt(head + turns), replace=self.options.get("replace")).shape[1] > most

        while len(turns) > 2 and is_full():
            turns = turns[2:]
        self.dropped, self.is_cut = len(messages) - len(head + turns), is_full()
        return self._prompt(head + turns)

    def _prompt(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The text that asks for an answer."""
        if self.speakers is None:
            return chat(messages)
        user, answer = self.speakers
        begin = {"user": user, "assistant": answer}
        return "".join(f"{begin.get(one['role'], '')}{one['content']}{TURN}" for one in messages) + answer

    def records(self) -> list[dict[str, Any]]:
        """One row for each message."""
        return self.messages

    plain = records

    def __str__(self) -> str:
        """The messages."""
        return "\n".join(f"{one['role']}: {one['content']}" for one in self.messages)
