"""Several runs: `study`, `demo`, `compare`."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from vitral.app.arguments import (
    Argument,
    Callback,
    Count,
    Natural,
    Option,
    Paths,
    RunLike,
    Text,
    Threads,
    given,
    named,
    numbers,
    path_of,
    validated,
)
from vitral.core.errors import Interrupted, UsageError
from vitral.core.language import _

if TYPE_CHECKING:
    from vitral.app.results import DemoPage
    from vitral.compare import RunComparison
    from vitral.report.study import StudyPage


@validated
def study(
    name: Annotated[Paths, Argument("NAME|MY.toml", offers="studies")],
    start: Annotated[Paths | None, Option("--base", parsed=str, offers="presets")] = None,
    *,
    budget: str | None = None,
    corpus: Text | None = None,
    out: Paths | None = None,
    seeds: Annotated[Sequence[int] | None, Option(parsed=str, read=numbers)] = None,
    threads: Threads | None = None,
    workers: Threads | None = None,
    executor: Annotated[Any, Option(metavar="dask:ADDRESS|slurm:KEY=VALUE", parsed=str)] = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> "StudyPage":
    """Compare variants over several seeds.

    The report has intervals and a verdict.
    The same command continues a study that was stopped.
    Its trainings may be shared among processes and machines; the numbers are the same.

    Args:
        name: A study's name (vitral list studies), or a file.
        start: Preset or configuration of the base model.  [default: the study's own]
        budget: quick (up to 5 minutes on 2 cores), standard (up to 30) or full.  [default: the smallest that the study
            has]
        corpus: Text to use instead of the one in the configuration.
        out: Folder of the study.  [default: studies/NAME-BUDGET]
        seeds: Seeds, as in 1,2,3.  [default: the study's own]
        threads: Threads of the processor.  [default: that of the configuration, OMP_NUM_THREADS, or the faster of 1 and
            all cores]
        workers: Trainings at a time on this machine, each in a process of its own.  [default: 1]
        executor: Train on the workers of a dask scheduler, or as jobs of Slurm by submitit, whose parameters follow, as
            in slurm:slurm_partition=cpu,timeout_min=600.
        callback: Python only: called with every event of training and measuring.
        progress: Python only: whether the progress is shown; None: in a notebook.
        settings: Set a configuration value, as in model.d_model=64; repeatable (all are in docs/configuration.md).

    Note:
        From Python, the executor may also be any object with the `submit` of `concurrent.futures`.

    Raises:
        UsageError: an unknown study, an invalid argument, or the folder contains another study.
        StorageError: writing to disk failed.
        Interrupted: it was stopped; the same call goes on from there.
    """
    from vitral.report.study import write_report
    from vitral.studies.plan import plan_study

    if workers is not None and executor is not None:
        raise UsageError("--workers is for this machine, --executor for others: leave one of them out")
    folder = None if out is None else Path(out)
    how = given(budget=budget, corpus=named(corpus), seeds=seeds, out=folder)
    layers = [settings, {"training": given(threads=threads)}]
    plan = plan_study(str(name), named(start), **how, overrides=layers)
    with _shown(plan.out, progress, callback) as shown:
        done = plan.run(callback=shown, executor=executor or workers)
        return write_report(done, command=plan.command)


@validated
def demo(
    out: Annotated[Paths | None, Option()] = None,
    *,
    on_plan: Callback | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> "DemoPage":
    """Take a short tour: a text, a model, a study, an explanation.

    Takes about two minutes on 2 cores and writes two pages: a report, and one that carries the model. Called again
    after it was stopped, it goes on.

    Args:
        out: Folder to create, or to go on with.  [default: in runs/]
        on_plan: Python only: called with the `Demonstration` before anything is trained.
        callback: Python only: called with every event of training and measuring.
        progress: Python only: whether the progress is shown; None: in a notebook.
        settings: Set a configuration value, as in model.d_model=64; repeatable (all are in docs/configuration.md).

    Raises:
        UsageError: `out` contains something else, or an invalid configuration.
        StorageError: writing to disk failed.
        Interrupted: it was stopped; the same call goes on from there.
    """
    from vitral.app.demonstration import plan_demonstration
    from vitral.app.results import DemoPage
    from vitral.report.demonstration import write_demonstration

    planned = plan_demonstration(None if out is None else Path(out), settings)
    if on_plan is not None:
        on_plan(planned)
    with _shown(planned.out, progress, callback) as shown:
        result = planned.finish(planned.train(shown))
        carried = planned.carry(result.run)
        return DemoPage(write_demonstration(result, planned.out), carried, result, planned.subject.prompt)


@contextmanager
def _shown(folder: Path, progress: bool | None, callback: Callback | None) -> Generator[Callback]:
    """The callback with the progress; whoever interrupts the block reads how to go on."""
    from vitral.app.progress import progress_shown

    try:
        with progress_shown(progress, callback) as shown:
            yield shown
    except KeyboardInterrupt:
        line = _(
            "stopped; what was trained and measured is in {folder}, and the same call goes on from there", folder=folder
        )
        raise Interrupted(line) from None


@validated
def compare(
    *runs: Annotated[RunLike, Argument("RUN...", Path)],
    prompt: str = "",
    seed: Natural = 0,
    max_tokens: Count = 200,
    losses: bool = True,
    corpus: Text | None = None,
) -> "RunComparison":
    """Compare runs: what may be compared, losses with paired intervals, configurations, curves, samples.

    Losses are compared only on the same test text: in nats per token if the tokens are the same, else in bits per
    character.

    Args:
        runs: Two or more runs, or a folder of runs.
        prompt: Text that every run continues.  [default: an empty one]
        seed: Seed of the samples.
        max_tokens: Tokens of each sample at most.
        losses: Measure the losses on the whole test split.
        corpus: The run's text, if it is no longer where it was: a file, a folder, a name.

    Raises:
        UsageError: fewer than two runs, or one of them cannot be read.
    """
    from vitral.compare.side_by_side import compare

    corpora = [corpus, *(None if isinstance(run, str | Path) else run.corpus for run in runs)]
    return compare(
        map(path_of, runs),
        prompt=prompt,
        seed=seed,
        max_tokens=max_tokens,
        losses=losses,
        corpora=[one for one in corpora if one is not None],
    )
