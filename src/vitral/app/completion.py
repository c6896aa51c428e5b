"""The names that the shell's completion offers. Fast: they are those of files, and nothing heavy is imported.

Where none is offered the shell completes file names by its own rules.
"""

from collections.abc import Callable
from pathlib import Path

EXERCISE_KINDS = ("attention", "multi-head", "block", "positions", "choice", "loss", "cross-attention")
"""Those of `vitral.explanation`, which loads slowly."""
TEXTS = (
    *("alice", "bras-cubas", "dom-casmurro", "frankenstein", "machado", "os-lusiadas", "python", "sample"),
    *("sample-pt", "shakespeare", "tinyshakespeare"),
)
"""The names of `vitral.data.corpus_names`, whose import takes seconds."""
FOLDERS = {"examples": "explanation/gallery", "presets": "runs/_presets", "studies": "studies/catalogue"}
"""Each kind of names that are those of files, and the folder of these."""


def names(kind: str) -> list[str]:
    """All names of a kind."""
    if kind in FOLDERS:
        return [file.stem for file in (Path(__file__).parents[1] / FOLDERS[kind]).glob("*.toml")]
    return [*(TEXTS if kind == "texts" else EXERCISE_KINDS)]


def completing(kinds: str) -> Callable[[str], list[str]]:
    """The completion of an argument that is a name of one of several kinds."""
    return lambda incomplete: sorted(
        name for kind in kinds.split() for name in names(kind) if name.startswith(incomplete)
    )
