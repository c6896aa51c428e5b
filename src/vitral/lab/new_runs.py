"""Training from Python: `train`, `resume` and `continue_`, as the commands of these names."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from vitral.core.checked import Count, Finite, Natural, checked
from vitral.core.devices import DeviceName, DtypeName
from vitral.core.errors import Interrupted
from vitral.core.language import _
from vitral.core.renamed import renamed
from vitral.lab.configuration import pinned, plan_run
from vitral.lab.opened import path_of
from vitral.lab.progress import progress_shown
from vitral.lab.run import Run
from vitral.runs import RunFolder, is_run
from vitral.training import Callback, ranks, silent
from vitral.training import continue_run as continue_training
from vitral.training import resume as resume_training
from vitral.training.deadline import TimeFrame

StepPlan = Literal["auto", "float32", "bfloat16", "compiled-float32", "compiled-bfloat16"]
OF_TEXT = {"encoding": "encoding", "field": "field", "glob": "glob", "specials": "specials", "replace": "replacement"}
"""Arguments of `train` and `count` that are keys of `[corpus]`."""


@checked
def train(
    start: str | Path | None = None,
    out: str | Path | None = None,
    *,
    corpus: str | Path | Mapping[str, Any] | None = None,
    minutes: Finite | None = None,
    tokenizer: str | None = None,
    context: Count | None = None,
    init_from: str | Path | Run | None = None,
    seed: Natural | None = None,
    device: DeviceName | None = None,
    dtype: DtypeName | None = None,
    threads: Count | None = None,
    plan: StepPlan | None = None,
    callback: Callback = silent,
    progress: bool | None = None,
    **overrides: Any,
) -> Run:
    """Train a model and return the run.

    Args:
        start: a preset, a `.toml` file, or a text (a file, a folder, a name such as "tinyshakespeare").
        out: the run's folder; a free one under `runs/` if None.
        corpus: the text, instead of the one in `start`; or a table with keys of `[corpus]`.
        minutes: training time; 2 for a bare text.
        tokenizer: "char", "byte", "bpe" or "bpe:1024". None: that of the configuration, or for a bare text that of its
            plan.
        context: tokens in the model's input; None as for `tokenizer`.
        init_from: a run whose weights to start from (fine-tuning); new characters are added to its vocabulary.
        seed: of initial weights, batches and dropout; None as in the configuration, and so the next four.
        device: "auto", "cpu", "cuda" or "mps".
        dtype: precision of training.
        threads: of the processor.
        plan: precision and compilation of a step; "auto" times a few steps and takes the fastest.
        callback: called with every event of training; if it raises, the run is saved first.
        progress: whether the progress is shown; None: in a notebook.
        overrides: tables of the configuration, for example `model={"d_model": 64}, training={"steps": 100}`; and of the
            text `encoding`, `field`, `glob`, `specials` and, with `init_from`, `replace`, as options of the command.

    Raises:
        UsageError: an invalid argument or configuration, in one line.
        TrainingStopped: a number was not finite.
        StorageError: writing to disk failed.
        Interrupted: it was stopped (Ctrl-C, SIGTERM); everything trained is saved.
    """
    if "reporter" in overrides:
        renamed("reporter", "callback")
        callback = overrides.pop("reporter")
    frame = TimeFrame()
    runtime = {"device": device, "dtype": dtype, "threads": threads} | planned_steps(plan)
    layers = [text_layer(overrides), {"training": given(runtime)}, given({"seed": seed}), pinned(tokenizer, context)]
    source = None if init_from is None else path_of(init_from)
    whole = plan_run(
        text(start), corpus=text(corpus), init_from=source, minutes=minutes, overrides=[*layers, overrides]
    )
    folder = Path(out) if out is not None else free_folder(text(start) or whole.config.corpus.source)
    with shown_by_one(progress, callback) as told, interruptible(folder):
        folder = whole.train(folder, told, frame).path
    return ended(folder)


@checked
def resume(
    run: str | Path | Run,
    *,
    callback: Callback = silent,
    corpus: str | Path | None = None,
    strict: bool = False,
    changed_parts: bool = False,
    progress: bool | None = None,
) -> Run:
    """Continue a run from its last checkpoint, with the same result as if it had never stopped.

    Args:
        run: the run's folder, or the run.
        callback: called with every event of training.
        corpus: the run's text, if it is no longer where it was: a file, a folder or a name.
        strict: whether to refuse another processor or PyTorch than before, with which other bits may result.
        changed_parts: whether to go on although the source of an own part has changed; the new one is recorded.
        progress: whether the progress is shown; None: in a notebook.

    Raises:
        UsageError: not a run, a finished run, or its text has changed.
        TrainingStopped: a number was not finite.
        StorageError: writing to disk failed.
        Interrupted: as for `train`.
    """
    folder = path_of(run)
    with shown_by_one(progress, callback) as told, interruptible(folder):
        how = {"corpus": text(corpus), "strict": strict, "changed_parts": changed_parts}
        resume_training(folder, callback=told, **how)
    return ended(folder)


@checked
def continue_(
    run: str | Path | Run,
    out: str | Path | None = None,
    *,
    minutes: Finite | None = None,
    steps: Count | None = None,
    threads: Count | None = None,
    callback: Callback = silent,
    corpus: str | Path | None = None,
    progress: bool | None = None,
) -> Run:
    """Train a finished run for longer, in a new folder, and return the new run; see `vitral.training.continue_run`.

    Args:
        run: the finished run or its folder, which does not change.
        out: the new run's folder; a free one under `runs/` if None.
        minutes: time for the new steps; give this or `steps`.
        steps: number of new steps.
        threads: threads of the processor; those of the finished run if None.
        callback: called with every event of training.
        corpus: the run's text, if it is no longer where it was: a file, a folder or a name.
        progress: whether the progress is shown; None: in a notebook.

    Raises:
        UsageError: not a run, not finished, or its text has changed.
        TrainingStopped: a number was not finite.
        StorageError: writing to disk failed.
        Interrupted: as for `train`.
    """
    parent = path_of(run)
    folder = Path(out) if out is not None else free_folder(str(parent))
    how = {"minutes": minutes, "steps": steps, "threads": threads}
    with shown_by_one(progress, callback) as told, interruptible(folder):
        folder = continue_training(parent, folder, **how, callback=told, corpus=text(corpus)).path
    return ended(folder)


@checked
def continue_run(run: str | Path | Run, out: str | Path | None = None, **options: Any) -> Run:
    """The former name of `continue_`."""
    renamed("continue_run", "continue_")
    return continue_(run, out, **options)


@checked
def free_folder(name: str) -> Path:
    """A folder for a new run that does not exist yet: `runs/NAME`, then `runs/NAME-2` and so on."""
    stem = Path("runs") / (Path(name).resolve().stem or "run")
    number = 1
    while (candidate := stem if number == 1 else stem.with_name(f"{stem.name}-{number}")).exists():
        number += 1
    return candidate


def text(value: Any) -> Any:
    """A path as the text that a configuration has; everything else as it is."""
    return str(value) if isinstance(value, Path) else value


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a caller chose."""
    return {name: value for name, value in options.items() if value is not None}


def text_layer(overrides: dict[str, Any]) -> dict[str, Any]:
    """Take the arguments about the text out of `overrides`, as a layer of configuration."""
    found = given({key: overrides.pop(name) for name, key in OF_TEXT.items() if name in overrides})
    return {"corpus": found} if found else {}


def planned_steps(plan: str | None) -> dict[str, Any]:
    """The keys of `[training]` for a plan of steps: "auto", or a precision, compiled or not."""
    if plan is None or plan == "auto":
        return given({"plan": plan})
    precision = plan.removeprefix("compiled-")
    return {"plan": "as-written", "dtype": precision, "compile": plan != precision}


@contextmanager
def shown_by_one(progress: bool | None, callback: Callback) -> Generator[Callback]:
    """Train inside the block, as one of several ranks where torchrun has started them; rank 0 calls the callback."""
    with ranks.joined():
        if not ranks.leads():
            yield silent
            return
        with progress_shown(progress, callback) as told:
            yield told


@contextmanager
def interruptible(folder: Path) -> Generator[None]:
    """Tell a person who interrupts the block with force what is there of the run."""
    try:
        yield
    except KeyboardInterrupt:
        if is_run(folder):
            line = _("interrupted; the last checkpoint is kept, go on with: vitral.resume({path!r})", path=str(folder))
        else:
            line = _("interrupted before the first step; there was nothing to save")
        raise Interrupted(line) from None


def ended(folder: Path) -> Run:
    """The run after its training.

    Raises:
        Interrupted: it was stopped before its end; what comes after must not go on with it.
    """
    ends = RunFolder.open(folder).metrics("end")
    if ends and not ends[-1]["finished"]:
        raise Interrupted(
            _(
                "stopped after step {step:,}, saved; go on with: vitral.resume({path!r})",
                step=ends[-1]["step"],
                path=str(folder),
            )
        )
    return Run(folder)
