"""The log of a run, metrics.jsonl: one event in JSON per line, sealed by each checkpoint up to its last line."""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from vitral.core.errors import StorageError, UsageError, reason
from vitral.core.guarded import GuardedFolder, NotOurs
from vitral.core.language import _

NAME = "metrics.jsonl"
MOST_LINE = 1 << 24
"""Maximum bytes of a line; a longer one is not an event of ours."""
MOST_UNSEALED = 1 << 26
"""Maximum bytes of a log without a seal."""
_PIECE = 1 << 20
_EVENT = re.compile(rb'\{"event": "(\w+)"')
"""The beginning of a line as `MetricsLog.append` writes it."""

Seal = Mapping[str, Any]
"""Lines, bytes and SHA-256 of the log up to a checkpoint."""


class MetricsLog:
    """The log in a run's folder; it is read line by line, never as a whole."""

    def __init__(self, folder: GuardedFolder) -> None:
        """Refer to the log in `folder`; it need not exist."""
        self._folder = folder
        self._hash: Any = None
        self._lines = self._bytes = 0

    def append(self, event: Mapping[str, Any]) -> None:
        """Append an event.

        Raises:
            StorageError: it cannot be written.
        """
        line = (json.dumps(event, ensure_ascii=False) + "\n").encode()
        self._folder.append(NAME, line)
        if self._hash is not None:
            self._add(line)

    def seal(self) -> dict[str, Any]:
        """Flush the log, and return its seal: number of lines, of bytes, and their SHA-256.

        Raises:
            StorageError: it cannot be flushed.
        """
        if self._hash is None:
            self._hash, self._lines, self._bytes = hashlib.sha256(), 0, 0
            for piece in self._pieces():
                self._add(piece)
        if self._bytes:
            self._folder.sync(NAME)
        return {"lines": self._lines, "bytes": self._bytes, "sha256": self._hash.hexdigest()}

    def complaint(self, seal: Seal) -> str | None:
        """How the log differs from its seal; None if it does not."""
        digest, left = hashlib.sha256(), int(seal["bytes"])
        try:
            for piece in self._pieces():
                digest.update(piece[:left])
                left -= min(left, len(piece))
                if not left:
                    break
        except NotOurs as error:
            return str(error).removeprefix(f"{self._folder.path / NAME}: ")
        if left:
            return _("{bytes:,} bytes of its {lines:,} sealed lines are missing", bytes=left, lines=int(seal["lines"]))
        changed = _("its first {lines:,} lines were changed", lines=int(seal["lines"]))
        return None if digest.hexdigest() == seal["sha256"] else changed

    def events(self, kind: str | Collection[str] | None = None, seal: Seal | None = None) -> Iterator[dict[str, Any]]:
        """The sealed events, all or of some kinds; all lines that are complete if there is no seal yet.

        Raises:
            UsageError: the log differs from its seal, or a line is not an event.
        """
        where, kinds = self._folder.path / NAME, (kind,) if isinstance(kind, str) else kind
        if seal is not None and (complaint := self.complaint(seal)):
            raise UsageError(
                "{where}: {complaint}; vitral doctor --repair {path} cuts it",
                where=where,
                complaint=complaint,
                path=self._folder.path,
            )
        if seal is None and self.size() > MOST_UNSEALED:
            raise UsageError(
                "{where}: more than {most:,} bytes that no checkpoint seals",
                where=where,
                most=MOST_UNSEALED,
            )
        for number, (line, whole) in enumerate(self._split(None if seal is None else int(seal["bytes"])), start=1):
            begin = None if seal is None or kinds is None else _EVENT.match(line)  # sealed lines are ours
            if begin is not None and kinds is not None and begin[1].decode() not in kinds:
                continue
            try:
                found = json.loads(line)
                if not isinstance(found, dict) or not isinstance(found.get("event"), str):
                    raise ValueError
            except (ValueError, RecursionError):
                if whole:
                    raise UsageError(
                        "{where}: line {number} is not an event in JSON", where=where, number=str(number)
                    ) from None
                return
            if kinds is None or found["event"] in kinds:
                yield found

    def cut(self, seal: Seal) -> int:
        """Cut the log after its last sealed line; return the bytes of an incomplete last line that went with it."""
        torn = 0
        if self.size() > int(seal["bytes"]):
            torn = self._torn()
            self._folder.copy(NAME, NAME, int(seal["bytes"]))
        self._hash = None
        return torn

    def size(self) -> int:
        """Bytes of the log; 0 if there is none."""
        try:
            return self._folder.size(NAME)
        except FileNotFoundError:
            return 0

    def _torn(self) -> int:
        last = 0
        for line, whole in self._split():
            last = 0 if whole else len(line)
        return last

    def _add(self, piece: bytes) -> None:
        self._hash.update(piece)
        self._bytes += len(piece)
        self._lines += piece.count(b"\n")

    def _pieces(self) -> Iterator[bytes]:
        try:
            with self._folder.stream(NAME) as file:
                while piece := file.read(_PIECE):
                    yield piece
        except FileNotFoundError:
            return
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(
                "{path}: cannot be read ({reason})", path=self._folder.path / NAME, reason=reason(error)
            ) from None

    def _split(self, most: int | None = None) -> Iterator[tuple[bytes, bool]]:
        """Each line of the first `most` bytes, and whether it ends with a newline."""
        # Split at "\n" only: a sample may contain other characters that splitlines treats as line ends.
        rest, left = b"", self.size() if most is None else most
        for piece in self._pieces():
            *lines, rest = (rest + piece[:left]).split(b"\n")
            left -= min(left, len(piece))
            for line in lines:
                yield line, True
            if len(rest) > MOST_LINE:
                raise UsageError(
                    "{path}: a line of more than {most:,} bytes",
                    path=self._folder.path / NAME,
                    most=MOST_LINE,
                )
            if not left:
                break
        if rest:
            yield rest, False
