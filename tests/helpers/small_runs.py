"""A run of nine tiny steps on a text of five words."""

from pathlib import Path
from typing import Any

from vitral.core.config import merge
from vitral.training import RunConfig


def five_words(path: Path) -> Path:
    """A text in an order that is not quite regular."""
    words = ("the", "cat", "saw", "a", "bird")
    path.write_text(" ".join(words[n * n % 5] for n in range(1500)), encoding="utf-8")
    return path


def small_config(text: Path, **changes: Any) -> RunConfig:
    """The run, with other settings where it is said."""
    base = {
        "corpus": {"source": str(text), "tokenizer": "char", "split": "tail"},
        "model": {"context_length": 8, "d_model": 6, "num_heads": 3, "num_layers": 1},
        "training": {"steps": 9, "batch_size": 3, "log_every": 1, "device": "cpu"},
    }
    return RunConfig.parse(merge(base, changes))
