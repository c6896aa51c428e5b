"""Arguments of callers, in the form that the other rooms take."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitral.core.errors import UsageError

if TYPE_CHECKING:
    from vitral.app.run import Run


def given(**options: Any) -> dict[str, Any]:
    """The options that a caller chose."""
    return {name: value for name, value in options.items() if value is not None and value != []}


def named(value: Any) -> Any:
    """A path as the text that a configuration has; everything else as it is."""
    return str(value) if isinstance(value, Path) else value


def of_text(
    encoding: str | None,
    field: str | None,
    glob: Sequence[str],
    specials: Sequence[str] = (),
    replace: str | None = None,
    **keys: Any,
) -> dict[str, Any]:
    """How a text is read, as a layer of configuration."""
    lists = {"glob": [*glob], "specials": [*specials]}
    found = given(encoding=encoding, field=field, replacement=replace, **lists, **keys)
    return {"corpus": found} if found else {}


def steps_planned(plan: str | None) -> dict[str, Any]:
    """The keys of `[training]` for a plan of steps: "auto", or a precision, compiled or not."""
    if plan is None or plan == "auto":
        return given(plan=plan)
    precision = plan.removeprefix("compiled-")
    return {"plan": "as-written", "dtype": precision, "compile": plan != precision}


def free_folder(name: str) -> Path:
    """A folder for a new run that does not exist yet: `runs/NAME`, then `runs/NAME-2` and so on."""
    stem = Path("runs") / (Path(name).resolve().stem or "run")
    number = 1
    while (candidate := stem if number == 1 else stem.with_name(f"{stem.name}-{number}")).exists():
        number += 1
    return candidate


def path_of(run: "str | Path | Run") -> Path:
    """The folder of a run.

    Raises:
        UsageError: an empty path.
    """
    if run == "":
        raise UsageError("a run's folder is expected, not an empty text")
    return Path(run) if isinstance(run, str | Path) else run.path


def opened(
    run: "str | Path | Run",
    checkpoint: Any = None,
    device: str | None = None,
    dtype: Any = None,
    corpus: str | Path | None = None,
) -> "Run":
    """A loaded run: that of a folder, or the given one, which is taken as it is unless one of the others is given.

    Raises:
        UsageError: not a run, or it cannot be loaded so.
    """
    from vitral.app.run import Run

    asked: Mapping[str, Any] = given(which=checkpoint, device=device, dtype=dtype, corpus=corpus)
    if not isinstance(run, Run):
        return Run(run, **asked)
    now = {"which": run.which, "device": run.device, "dtype": run.dtype, "corpus": run.corpus}
    return Run(run.path, **{**now, **asked}) if asked else run
