"""How a page names a run: as short as runs can be told apart, and as a command on this machine finds it."""

import os
from collections.abc import Sequence
from pathlib import Path


def short_names(paths: Sequence[Path]) -> list[str]:
    """The last parts of the folders' paths, as few as tell them apart."""
    parts = [Path(os.path.abspath(path)).parts for path in paths]
    longest = max(map(len, parts))
    length = next((each for each in range(1, longest) if len({one[-each:] for one in parts}) == len(parts)), longest)
    return ["/".join(one[-length:]) for one in parts]


def in_commands(path: Path, *, shared: bool) -> str:
    """The folder's path from where the user stands; of a folder elsewhere, its name where the page is `shared`."""
    whole = Path(os.path.abspath(path))
    if whole.is_relative_to(Path.cwd()):
        return whole.relative_to(Path.cwd()).as_posix()
    return whole.name if shared else str(whole)
