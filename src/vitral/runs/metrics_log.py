"""The log of a run, metrics.jsonl: one event in JSON per line, sealed by each checkpoint up to its last line."""

import json
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from vitral.core.errors import UsageError
from vitral.core.files import append, open_regular, readable, sha256, storage, sync
from vitral.core.language import N_, restored, storable

NAME = "metrics.jsonl"

Seal = Mapping[str, Any]
"""Lines, bytes and SHA-256 of the log up to a checkpoint."""


class MetricsLog:
    """The log in a run's folder.

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
        content = self._content()
        if content:
            with storage(self.path):
                sync(self.path)
        return {"lines": content.count(b"\n"), "bytes": len(content), "sha256": sha256(content)}

    def require(self, seal: Seal) -> bytes:
        """The sealed content of the log.

        Raises:
            UsageError: it differs from its seal.
        """
        content = self._content(seal["bytes"])
        if sha256(content) != seal["sha256"]:
            why = N_("{where}: its first {lines:,} lines were changed or cut")
            raise UsageError(
                "{why}; vitral doctor --repair {path} cuts it",
                why=why.format(where=self.path, lines=seal["lines"]),
                path=self.path.parent,
            )
        return content

    def events(self, kind: str | Collection[str] | None = None, seal: Seal | None = None) -> Iterator[dict[str, Any]]:
        """The sealed events, all or of some kinds; all lines that are complete if there is no seal yet.

        Raises:
            UsageError: the log differs from its seal, or a line is not an event.
        """
        kinds = (kind,) if isinstance(kind, str) else kind
        *lines, _torn = (self._content() if seal is None else self.require(seal)).split(b"\n")
        for number, line in enumerate(lines, start=1):
            try:
                event = json.loads(line)
                event["event"] = str(event["event"])
            except (ValueError, TypeError, KeyError, RecursionError):
                raise UsageError(
                    "{where}: line {number} is not an event in JSON", where=self.path, number=str(number)
                ) from None
            if kinds is None or event["event"] in kinds:
                yield restored(event)

    def cut(self, seal: Seal) -> None:
        """Cut the log after its last sealed line."""
        if content := self._content():
            with storage(self.path):
                os.truncate(self.path, min(seal["bytes"], len(content)))
                sync(self.path)

    def _content(self, most: int = -1) -> bytes:
        if not os.path.lexists(self.path):
            return b""
        with readable(self.path), open_regular(self.path, links=False) as file:
            return file.read(most)
