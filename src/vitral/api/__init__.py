"""The library from Python: `vitral.train`, `vitral.load`, and the run they give."""

from pathlib import Path
from typing import Any

from vitral.api.configuring import Preset, configure, free_folder, presets
from vitral.api.explaining import find_example
from vitral.api.run import Run
from vitral.explain import Report
from vitral.explain import check as check_example
from vitral.training import Callback, silent
from vitral.training import train as train_run

__all__ = ["Preset", "Run", "check", "configure", "free_folder", "load", "presets", "train"]


def train(
    start: str | None = None,
    out: str | Path | None = None,
    *,
    corpus: str | None = None,
    init_from: str | Path | None = None,
    callback: Callback = silent,
    **overrides: Any,
) -> Run:
    """Train a model and give the run.

    Args:
        start: a preset, a `.toml` file, or a text (a file, a folder, a name such as "tinyshakespeare").
        out: the run's folder; a free one under `runs/` if None.
        corpus: the text, instead of what `start` says.
        init_from: a run to start from (fine-tuning).
        callback: is told every event of training.
        overrides: tables of the configuration, for example `model={"d_model": 64}, training={"steps": 100}`.

    Raises:
        UsageError: something that cannot be, in one line.
        TrainingStopped: a number was not finite.
        StorageError: the disk did not take what was written.
    """
    source = None if init_from is None else Path(init_from)
    config = configure(start, corpus=corpus, init_from=source, overrides=[overrides])
    folder = Path(out) if out is not None else free_folder(start or config.corpus.source)
    train_run(config, folder, callback=callback, init_from=source)
    return Run(folder)


def load(path: str | Path, which: str = "best", *, device: str = "cpu") -> Run:
    """Load a run; see `Run`."""
    return Run(path, which, device=device)


def check(example: str | Path) -> Report:
    """Check a worked example, a `.toml` file or a name of the gallery; print it to read what was found.

    Raises:
        UsageError: there is none, or it cannot be read; with the file's line.
    """
    return check_example(find_example(example))
