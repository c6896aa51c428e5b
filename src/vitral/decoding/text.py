"""From chosen tokens to text while they arrive: whole characters only, and nothing that may yet be cut away."""

import codecs
from collections.abc import Sequence

from vitral.core.errors import UsageError


class Writer:
    """Collects the bytes of one sample's tokens and gives its text away in pieces.

    A character whose bytes are not all there yet is held back; so is an end that could be the beginning of a stop
    string. Bytes that can no longer become a character are U+FFFD. The text ends before the first stop string in it.

    Attributes:
        text: everything decoded so far, without a stop string and what follows it.
        stopped: whether a stop string has occurred.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        """Start with no text.

        Args:
            stop: strings of at least one character (see `check_stop`).
        """
        self.text, self.stopped = "", False
        self._stop, self._longest = tuple(stop), max(map(len, stop), default=0)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._given, self._ended = 0, False

    def write(self, data: bytes) -> None:
        """Take the bytes of one more token."""
        self._extend(self._decoder.decode(data))

    def end(self) -> None:
        """No more tokens will come: an unfinished character becomes U+FFFD."""
        if not self._ended and not self.stopped:
            self._extend(self._decoder.decode(b"", final=True))
        self._ended = True

    def take(self) -> str:
        """What can be shown since the last call; all pieces together are `text` once it has ended."""
        held = 0 if self._ended or self.stopped else self._beginning_of_stop()
        piece = self.text[self._given : len(self.text) - held]
        self._given += len(piece)
        return piece

    def copy(self) -> "Writer":
        """Another writer that goes on from here."""
        other = Writer(self._stop)
        other.text, other.stopped = self.text, self.stopped
        other._decoder.setstate(self._decoder.getstate())
        other._given, other._ended = self._given, self._ended
        return other

    def _extend(self, new: str) -> None:
        """Add characters, then cut at the stop string that begins first; one that ended earlier was cut then."""
        begin = max(0, len(self.text) - self._longest + 1)
        self.text += new
        found = [at for stop in self._stop if (at := self.text.find(stop, begin)) >= 0]
        if found:
            self.text, self.stopped = self.text[: min(found)], True

    def _beginning_of_stop(self) -> int:
        """The length of the longest end of the text that is the beginning of a stop string."""
        for length in range(min(self._longest - 1, len(self.text)), 0, -1):
            end = self.text[-length:]
            if any(stop.startswith(end) for stop in self._stop):
                return length
        return 0


def check_stop(stop: Sequence[str]) -> None:
    """Refuse stop strings that are not a list of texts of at least one character.

    Raises:
        UsageError: naming what was given.
    """
    if isinstance(stop, str):
        raise UsageError(f"stop: expected a list of texts, not one text; write [{stop!r}]")
    for text in stop:
        if not isinstance(text, str) or not text:
            raise UsageError(f"stop: {text!r} would stop nowhere or everywhere; every stop string needs a character")
