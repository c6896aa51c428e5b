"""Training: `train`, `resume`, `continue_`."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from vitral.app.arguments import (
    Argument,
    Callback,
    Count,
    Device,
    Encoding,
    Field,
    Glob,
    Natural,
    Option,
    Paths,
    Precision,
    RunLike,
    Specials,
    StepPlan,
    Text,
    TextOrTable,
    Threads,
    Tokenizer,
    free_folder,
    given,
    named,
    of_text,
    path_of,
    steps_planned,
    validated,
)
from vitral.app.session import time_frame
from vitral.core.errors import Interrupted
from vitral.core.language import _

if TYPE_CHECKING:
    from vitral.app.run import Run


@validated
def train(
    start: Annotated[Paths | None, Argument("PRESET|CONFIG.toml|TEXT", offers="presets texts")] = None,
    out: Paths | None = None,
    *,
    corpus: TextOrTable | None = None,
    encoding: Encoding = None,
    field: Field = None,
    glob: Glob = (),
    init_from: Annotated[RunLike | None, Option(parsed=Path)] = None,
    specials: Specials = (),
    replace: str | None = None,
    tokenizer: Tokenizer = None,
    context: Count | None = None,
    seed: Natural | None = None,
    device: Device | None = None,
    dtype: Precision | None = None,
    plan: StepPlan | None = None,
    minutes: float | None = None,
    film: bool = False,
    threads: Threads | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> "Run":
    """Train a model on a text.

    Args:
        start: A preset, a configuration file, or a text to train on (vitral list).  [default: sample]
        out: Folder to create.  [default: a new one under runs/]
        corpus: Text to use instead of the one in the configuration.
        encoding: Encoding of the text, such as shift_jis or cp1252.  [default: UTF-8]
        field: Of JSON lines, the key of the text, such as text or message.content.  [default: lines as they are]
        glob: Of a folder, only files such as '*.py'; repeatable.  [default: all]
        init_from: Run whose weights to start from (fine-tuning).  [default: random weights]
        specials: Special token, as in '<|endoftext|>': a string that is one token; repeatable.
        replace: With --init-from: character to put in place of ones that run has never seen.  [default: they are added
            to its vocabulary]
        tokenizer: char, byte, bpe, or bpe with its size, as in bpe:1024.  [default: chosen for the text]
        context: Tokens in the model's input.  [default: chosen for the text and the time]
        seed: Seed of initial weights, batches and dropout.  [default: that of the configuration]
        device: Device to train on.  [default: that of the configuration]
        dtype: Precision to train in.  [default: that of the configuration]
        plan: Precision and compilation of the steps; auto times a few steps and takes the fastest.  [default: that of
            the configuration]
        minutes: Train for this many minutes: as many steps as fit.  [default: 2 for a bare text]
        film: Keep the weights of about a dozen steps, so that the run's page can show how the model learned.
        threads: Threads of the processor.  [default: that of the configuration, OMP_NUM_THREADS, or the faster of 1 and
            all cores]
        callback: Python only: called with every event of training; if it raises, the run is saved first.
        progress: Python only: whether the progress is shown; None: in a notebook.
        settings: Set a configuration value, as in model.d_model=64; repeatable (all are in docs/configuration.md).

    Note:
        From Python, `corpus` may be a table with keys of `[corpus]`, and `settings` are tables of the configuration, as
        in `model={"d_model": 64}, training={"steps": 100}`. The run is returned, loaded.

    Raises:
        UsageError: an invalid argument or configuration, in one line.
        TrainingStopped: a number was not finite.
        StorageError: writing to disk failed.
        Interrupted: it was stopped (Ctrl-C, SIGTERM); everything trained is saved.
    """
    from vitral.training.configuration import pinned, plan_run
    from vitral.training.ranks import joined

    frame = time_frame()
    layers = [
        {"training": given(device=device, dtype=dtype) | steps_planned(plan)},
        of_text(encoding, field, glob, specials, replace),
        settings,
        pinned(tokenizer, context),
        {"training": given(threads=threads, film=film or None), **given(seed=seed)},
    ]
    source = None if init_from is None else path_of(init_from)
    with joined():
        planned = plan_run(named(start), corpus=named(corpus), init_from=source, minutes=minutes, overrides=layers)
        folder = Path(out) if out is not None else free_folder(named(start) or planned.config.corpus.source)
        with _trained(folder, progress, callback) as shown:
            planned.train(folder, shown, frame)
    return _ended(folder)


@validated
def resume(
    run: RunLike,
    *,
    corpus: Text | None = None,
    strict: bool = False,
    changed_parts: bool = False,
    callback: Callback | None = None,
    progress: bool | None = None,
) -> "Run":
    """Continue a stopped run from its last checkpoint.

    The result is the same as if the run had never stopped.

    Args:
        run: Folder of a run.
        corpus: The run's text, if it is no longer where it was: a file, a folder, a name.
        strict: Refuse another processor or PyTorch, with which other bits may result.
        changed_parts: Go on although the source of a part of your own has changed, and record it.
        callback: Python only: called with every event of training.
        progress: Python only: whether the progress is shown; None: in a notebook.

    Raises:
        UsageError: not a run, a finished run, or its text has changed.
        TrainingStopped: a number was not finite.
        StorageError: writing to disk failed.
        Interrupted: as for `train`.
    """
    from vitral.report.run import write_run_report
    from vitral.training import resume
    from vitral.training.ranks import joined
    from vitral.training.resumption import FinishedRun

    folder = path_of(run, changes=True)
    with joined():
        try:
            with _trained(folder, progress, callback) as shown:
                resume(
                    folder,
                    callback=shown,
                    corpus=named(corpus),
                    strict=strict,
                    changed_parts=changed_parts,
                    frame=time_frame(),
                )
        except FinishedRun:
            write_run_report(folder)  # it may have been killed while it was written
            raise
    return _ended(folder)


@validated
def continue_(
    run: RunLike,
    out: Paths | None = None,
    *,
    minutes: float | None = None,
    steps: Count | None = None,
    corpus: Text | None = None,
    threads: Threads | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
) -> "Run":
    """Train a finished run for longer, in a new folder.

    Weights, optimizer and step numbers go on; the run itself does not change.

    Args:
        run: Folder of a run.
        out: Folder to create.  [default: a new one under runs/]
        minutes: Train for this many more minutes.
        steps: Train for this many more steps.
        corpus: The run's text, if it is no longer where it was: a file, a folder, a name.
        threads: Threads of the processor.  [default: those of the run]
        callback: Python only: called with every event of training.
        progress: Python only: whether the progress is shown; None: in a notebook.

    Raises:
        UsageError: not a run, not finished, or its text has changed.
        TrainingStopped: a number was not finite.
        StorageError: writing to disk failed.
        Interrupted: as for `train`.
    """
    from vitral.training import continue_run
    from vitral.training.ranks import joined

    parent = path_of(run, changes=True)
    folder = Path(out) if out is not None else free_folder(str(parent))
    with joined(), _trained(folder, progress, callback) as shown:
        continue_run(
            parent,
            folder,
            minutes=minutes,
            steps=steps,
            threads=threads,
            corpus=named(corpus),
            callback=shown,
            frame=time_frame(),
        )
    return _ended(folder)


@contextmanager
def _trained(folder: Path, progress: bool | None, callback: Callback | None) -> Generator[Callback]:
    """The callback of rank 0, silence on the others; whoever interrupts with force reads what there is."""
    from vitral.app.progress import progress_shown
    from vitral.runs import is_run
    from vitral.training import silent
    from vitral.training.ranks import leads

    try:
        if not leads():
            yield silent
            return
        with progress_shown(progress, callback) as shown:
            yield shown
    except KeyboardInterrupt:
        line = _("interrupted before the first step; there was nothing to save")
        if is_run(folder):
            line = _("interrupted; the last checkpoint is kept, go on with: vitral.resume({path!r})", path=str(folder))
        raise Interrupted(line) from None


def _ended(folder: Path) -> "Run":
    """The run after its training.

    Raises:
        Interrupted: before its end; what comes after must not go on with it.
    """
    from vitral.app.run import Run
    from vitral.runs import RunFolder

    ends = RunFolder.open(folder).metrics("end")
    if ends and not ends[-1]["finished"]:
        step = ends[-1]["step"]
        line = _("stopped after step {step:,}, saved; go on with: vitral.resume({path!r})", step=step, path=str(folder))
        raise Interrupted(line, run=folder, step=step)
    return Run(folder)
