"""Incremental decoding of tokens to text: whole characters, and no text that a stop string may still remove."""

import codecs
from collections.abc import Collection

from vitral.core.errors import UsageError


class Writer:
    """Collects the bytes of one sample's tokens and returns its text in pieces.

    Incomplete characters are held back, and so is a possible beginning of a stop string at the end of the text. Invalid
    UTF-8 becomes U+FFFD. The text ends before the first stop string.

    Attributes:
        text: the text decoded so far, up to a stop string.
        stopped: whether a stop string has occurred.
    """

    def __init__(self, stop: Collection[str] = ()) -> None:
        """Start with an empty text.

        Args:
            stop: strings of at least one character (see `check_stop`).
        """
        self.text, self.stopped = "", False
        self._stop, self._longest = tuple(stop), max(map(len, stop), default=0)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._given, self._ended = 0, False

    def write(self, data: bytes) -> None:
        """Add the bytes of one more token."""
        self._extend(self._decoder.decode(data))

    def end(self) -> None:
        """End the text: an incomplete character becomes U+FFFD."""
        if not self._ended and not self.stopped:
            self._extend(self._decoder.decode(b"", final=True))
        self._ended = True

    def take(self) -> str:
        """The text that became final since the last call; after the end all pieces together equal `text`."""
        held = 0 if self._ended or self.stopped else self._beginning_of_stop()
        piece = self.text[self._given : len(self.text) - held]
        self._given += len(piece)
        return piece

    def copy(self) -> "Writer":
        """A copy that continues independently."""
        other = Writer(self._stop)
        other.text, other.stopped = self.text, self.stopped
        other._decoder.setstate(self._decoder.getstate())
        other._given, other._ended = self._given, self._ended
        return other

    def _extend(self, new: str) -> None:
        """Append characters, then cut at the first stop string; earlier ones were cut in earlier calls."""
        begin = max(0, len(self.text) - self._longest + 1)
        self.text += new
        positions = [at for stop in self._stop if (at := self.text.find(stop, begin)) >= 0]
        if positions:
            self.text, self.stopped = self.text[: min(positions)], True

    def _beginning_of_stop(self) -> int:
        """The length of the longest suffix of the text that is a prefix of a stop string."""
        for length in range(min(self._longest - 1, len(self.text)), 0, -1):
            end = self.text[-length:]
            if any(stop.startswith(end) for stop in self._stop):
                return length
        return 0


def check_stop(stop: Collection[str]) -> None:
    """Check that the stop strings are a list of non-empty texts.

    Raises:
        UsageError: they are not.
    """
    if isinstance(stop, str):
        raise UsageError("stop: expected a list of texts, not one text; write [{stop!r}]", stop=stop)
    for text in stop:
        if not isinstance(text, str) or not text:
            raise UsageError("stop: expected non-empty texts, not {text!r}", text=text)
