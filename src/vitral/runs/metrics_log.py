"""The log of a run, metrics.jsonl: one event in JSON per line, sealed by each checkpoint up to its last line."""

import hashlib
import json
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from vitral.core.errors import UsageError
from vitral.core.files import append, open_regular, readable, storage, sync
from vitral.core.language import _, restored, storable

NAME = "metrics.jsonl"
MOST_LINE = 1 << 24
"""Maximum bytes of a line; a longer one is not an event of ours."""
_EVENT = re.compile(rb'\{"event": "(\w+)"')
"""The beginning of a line as `MetricsLog.append` writes it."""

Seal = Mapping[str, Any]
"""Lines, bytes and SHA-256 of the log up to a checkpoint."""


class MetricsLog:
    """The log in a run's folder; it is read line by line, never as a whole.

    Attributes:
        path: the file.
    """

    def __init__(self, folder: Path) -> None:
        """Refer to the log in `folder`; it need not exist."""
        self.path = folder / NAME

    def append(self, event: Mapping[str, Any]) -> None:
        """Append an event.

        Raises:
            StorageError: it cannot be written.
        """
        append(self.path, (json.dumps(storable(event), ensure_ascii=False) + "\n").encode())

    def seal(self) -> dict[str, Any]:
        """Flush the log, and return its seal: number of lines, of bytes, and their SHA-256.

        Raises:
            StorageError: it cannot be flushed.
        """
        found = self._sealed()
        if found["bytes"]:
            with storage(self.path):
                sync(self.path)
        return found

    def _sealed(self, most: int | None = None) -> dict[str, Any]:
        digest, lines, size = hashlib.sha256(), 0, 0
        for line in self._read(most):
            digest.update(line)
            lines, size = lines + line.endswith(b"\n"), size + len(line)
        return {"lines": lines, "bytes": size, "sha256": digest.hexdigest()}

    def require(self, seal: Seal) -> None:
        """Compare the log with its seal.

        Raises:
            UsageError: it differs.
        """
        found = self._sealed(seal["bytes"])
        if found["sha256"] != seal["sha256"]:
            missing = _(
                "{bytes:,} bytes of its {lines:,} sealed lines are missing",
                bytes=seal["bytes"] - found["bytes"],
                lines=seal["lines"],
            )
            changed = _("its first {lines:,} lines were changed", lines=seal["lines"])
            raise UsageError(
                "{where}: {complaint}; vitral doctor --repair {path} cuts it",
                where=self.path,
                complaint=missing if found["bytes"] < seal["bytes"] else changed,
                path=self.path.parent,
            )

    def events(self, kind: str | Collection[str] | None = None, seal: Seal | None = None) -> Iterator[dict[str, Any]]:
        """The sealed events, all or of some kinds; all lines that are complete if there is no seal yet.

        Raises:
            UsageError: the log differs from its seal, or a line is not an event.
        """
        kinds = (kind,) if isinstance(kind, str) else kind
        if seal is not None:
            self.require(seal)
        for number, line in enumerate(self._read(None if seal is None else seal["bytes"]), start=1):
            begin = None if seal is None or kinds is None else _EVENT.match(line)  # sealed lines are ours
            if begin is not None and kinds is not None and begin[1].decode() not in kinds:
                continue
            try:
                found = json.loads(line)
                if not isinstance(found, dict) or not isinstance(found.get("event"), str):
                    raise ValueError
            except (ValueError, RecursionError):
                if not line.endswith(b"\n"):
                    return
                raise UsageError(
                    "{where}: line {number} is not an event in JSON", where=self.path, number=str(number)
                ) from None
            if kinds is None or found["event"] in kinds:
                yield restored(found)

    def cut(self, seal: Seal) -> int:
        """Cut the log after its last sealed line; return the bytes of an incomplete last line that went with it."""
        last = b"\n"
        for line in self._read():
            last = line
        if os.path.lexists(self.path):
            with storage(self.path):
                os.truncate(self.path, seal["bytes"])
                sync(self.path)
        return 0 if last.endswith(b"\n") else len(last)

    def _read(self, most: int | None = None) -> Iterator[bytes]:
        """The lines of the first `most` bytes; the last one may be torn."""
        left = sys.maxsize if most is None else most
        if not os.path.lexists(self.path):
            return
        with readable(self.path), open_regular(self.path, links=False) as file:
            while line := file.readline(min(left, MOST_LINE)):
                left -= len(line)
                yield line
