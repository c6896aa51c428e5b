"""Damage done to the files of a folder, and undone: what the attack tests share."""

import contextlib
import io
import json
import os
import random
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomli_w

from vitral.core.errors import VitralError
from vitral.core.files import as_json

LEFT_ALONE = {".lock"}
"""Files that may be anything."""


class Tree:
    """A folder whose content is remembered, so that one file can be damaged and restored.

    Attributes:
        root: the folder.
        whole: its files as they should be, by their path inside it.
    """

    def __init__(self, root: Path) -> None:
        """Remember the content of `root`."""
        self.root = root
        self.whole = self.content()
        self.folders = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_dir()}

    def content(self) -> dict[str, bytes]:
        """Every file's bytes now, but for the lock; of a link, a device or a huge file, a word that says so."""
        found: dict[str, bytes] = {}
        for folder, names, files in os.walk(self.root):
            for name in (*files, *(name for name in names if os.path.islink(os.path.join(folder, name)))):
                path = os.path.join(folder, name)
                if name not in LEFT_ALONE:
                    inside = os.path.relpath(path, self.root)
                    status = os.lstat(path)
                    usual = stat.S_ISREG(status.st_mode) and status.st_size < 10**8
                    found[inside] = Path(path).read_bytes() if usual else b"<not a file>"
        return found

    def write(self, content: dict[str, bytes | None]) -> None:
        """Put other bytes, or nothing, in the place of files."""
        for name, raw in content.items():
            path = self.root / name
            if raw is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(raw)

    def restore(self) -> None:
        """Make the folder as it was; a file that is as it was stays untouched."""
        now = self.content()
        for name, raw in now.items():
            if self.whole.get(name) != raw:
                (self.root / name).unlink()
        for path in sorted(self.root.rglob("*"), reverse=True):
            if path.is_dir() and str(path.relative_to(self.root)) not in self.folders:
                path.rmdir()
        for name in sorted(self.folders):
            (self.root / name).mkdir(exist_ok=True)
        for name, raw in self.whole.items():
            if now.get(name) != raw:
                (self.root / name).write_bytes(raw)


Damage = Callable[[bytes, random.Random], bytes | None]
"""From a file's bytes and random choices to other bytes; None removes the file."""


def _flip(raw: bytes, draw: random.Random) -> bytes:
    made = bytearray(raw or b"x")
    made[draw.randrange(len(made))] ^= 1 << draw.randrange(8)
    return bytes(made)


def _digit(raw: bytes, draw: random.Random) -> bytes:
    places = [at for at, byte in enumerate(raw) if 48 <= byte <= 57]
    if not places:
        return _flip(raw, draw)
    made, at = bytearray(raw), draw.choice(places)
    made[at] = draw.choice([digit for digit in range(48, 58) if digit != made[at]])
    return bytes(made)


def _delete_byte(raw: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(max(1, len(raw)))
    return raw[:at] + raw[at + 1 :]


def _truncate(raw: bytes, draw: random.Random) -> bytes:
    return raw[: draw.randrange(max(1, len(raw)))]


def _duplicate_line(raw: bytes, draw: random.Random) -> bytes:
    lines = raw.splitlines(keepends=True) or [b"\n"]
    at = draw.randrange(len(lines))
    return b"".join([*lines[: at + 1], *lines[at:]])


def _garbage(raw: bytes, draw: random.Random) -> bytes:
    return raw + draw.randbytes(draw.randrange(1, 40))


def _edit(raw: bytes, draw: random.Random) -> bytes:
    """One value of a TOML or JSON file is another, as somebody would change it in an editor."""
    try:
        data = json.loads(raw)
        written = as_json
    except ValueError:
        try:
            data = tomllib.loads(raw.decode())
        except ValueError:
            return _digit(raw, draw)

        def written(data: Any) -> bytes:
            return tomli_w.dumps(data).encode()

    places = list(_leaves(data))
    if not places:
        return _digit(raw, draw)
    inside, key = draw.choice(places)
    inside[key] = _another(inside[key], draw)
    return written(data)


def _leaves(data: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        found += _leaves(value) if isinstance(value, dict | list) else [(data, key)]
    return found


def _another(value: Any, draw: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return draw.choice([value + 1, value - 1, value * 10, 0 if value else 7])
    if isinstance(value, float):
        return draw.choice([value * 1.001, value + 0.1, -value - 1.0])
    if isinstance(value, str):
        return draw.choice([value + "x", value[:-1] + "y", "post" if value == "pre" else "0" * 64])
    return 1


DAMAGES: dict[str, Damage] = {
    "flip a bit": _flip,
    "change a digit": _digit,
    "delete a byte": _delete_byte,
    "truncate": _truncate,
    "repeat a line": _duplicate_line,
    "empty": lambda raw, draw: b"",
    "delete": lambda raw, draw: None,
    "append garbage": _garbage,
    "edit a value": _edit,
}


def heard(act: Callable[[], Any]) -> tuple[Any, str, str]:
    """What an act returns, and what it prints: its result (an error for users is returned), standard output, error.

    Any other exception is a fault and is raised.
    """
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            found = act()
        except VitralError as error:
            found = error
    return found, out.getvalue(), err.getvalue()


def is_one_line(text: str) -> bool:
    """Whether this is one line that leaves a terminal as it is."""
    return bool(text) and text.isprintable()
