"""Runs as callers give them: a folder, or a loaded run."""

from pathlib import Path

from vitral.core.devices import DtypeName
from vitral.core.errors import UsageError
from vitral.lab.run import Run, Which


def opened(
    run: str | Path | Run,
    checkpoint: Which | None = None,
    device: str | None = None,
    dtype: DtypeName | None = None,
    corpus: str | Path | None = None,
) -> Run:
    """A loaded run: the given one, or that of a folder.

    Args:
        run: a folder, or a loaded run, which is taken as it is unless one of the others is given.
        checkpoint: "best" or "last"; if None, that of the loaded run, else "best".
        device: if None, that of the loaded run, else "cpu".
        dtype: if None, that of the loaded run, else "float32".
        corpus: the run's text, if it is no longer where it was; if None, that of the loaded run.

    Raises:
        UsageError: not a run, or it cannot be loaded so.
    """
    if not isinstance(run, Run):
        return Run(run, checkpoint or "best", device=device or "cpu", dtype=dtype or "float32", corpus=corpus)
    if (checkpoint, device, dtype, corpus) == (None, None, None, None):
        return run
    return Run(
        run.path,
        checkpoint or run.which,
        device=device or run.device,
        dtype=dtype or run.dtype,
        corpus=run.corpus if corpus is None else corpus,
    )


def path_of(run: str | Path | Run) -> Path:
    """The folder of a run.

    Raises:
        UsageError: an empty path.
    """
    if run == "":
        raise UsageError("a run's folder is expected, not an empty text")
    return run.path if isinstance(run, Run) else Path(run)
