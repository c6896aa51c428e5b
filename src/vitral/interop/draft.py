"""An export before it is written: its files, and how another library opens them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vitral.interop.proof import MOST_DIFFERENCE, Opened

PROMPT = "A prompt"


@dataclass(frozen=True)
class Draft:
    """The files of an export, not yet written.

    Attributes:
        form: the form that expresses the model.
        files: the content of each file by name, without the model card and the proof.
        reader: the library that opens the export.
        packages: whose versions the proof records.
        require: raises UsageError where the library is not installed.
        open: the written folder → the export in that library; raises UsageError if it cannot be opened.
        use: lines of the model card that show how to use the export; `PROMPT` in them becomes a prompt that its
            tokenizer accepts.
        front: lines of the model card's front matter.
        most: the greatest difference of logits allowed, as a share of the largest.
    """

    form: str
    files: Mapping[str, bytes]
    reader: str
    packages: Sequence[str]
    require: Callable[[], object]
    open: Callable[[Path], Opened]
    use: Sequence[str]
    front: Sequence[str] = ()
    most: float = MOST_DIFFERENCE
