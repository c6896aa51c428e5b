"""vitral train: a new run."""

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitral.cli.completion import complete_run, complete_start
from vitral.cli.options import (
    ContextOption,
    CorpusOption,
    DeviceName,
    EncodingOption,
    FieldOption,
    GlobOption,
    Precision,
    RunFolderOption,
    SetOption,
    SpecialOption,
    ThreadsOption,
    TokenizerOption,
    reading,
    runtime,
)
from vitral.cli.ranks import RanksOption, launch_if_several, reporting
from vitral.core.language import _

if TYPE_CHECKING:
    from vitral.lab.configuration import RunPlan


class StepPlan(enum.StrEnum):
    """How a training step is executed."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    compiled_float32 = "compiled-float32"
    compiled_bfloat16 = "compiled-bfloat16"


Replace = Annotated[
    str | None,
    typer.Option(
        help="With --init-from: character to put in place of ones that run has never seen.  [default: they are added "
        "to its vocabulary]"
    ),
]
Plan = Annotated[
    StepPlan | None,
    typer.Option(
        help="Precision and compilation of the steps; auto times a few steps and takes the fastest.  [default: that of "
        "the configuration]"
    ),
]


def train(
    start: Annotated[
        str | None,
        typer.Argument(
            metavar="PRESET|CONFIG.toml|TEXT",
            help="A preset, a configuration file, or a text to train on (vitral list).  [default: sample]",
            autocompletion=complete_start,
        ),
    ] = None,
    text: CorpusOption = None,
    encoding: EncodingOption = None,
    field: FieldOption = None,
    glob: GlobOption = None,
    out: RunFolderOption = None,
    init_from: Annotated[
        Path | None,
        typer.Option(
            help="Run whose weights to start from (fine-tuning).  [default: random weights]",
            autocompletion=complete_run,
        ),
    ] = None,
    special: SpecialOption = None,
    replace: Replace = None,
    tokenizer: TokenizerOption = None,
    context: ContextOption = None,
    settings: SetOption = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of initial weights, batches and dropout.  [default: that of the configuration]"),
    ] = None,
    device: Annotated[
        DeviceName | None, typer.Option(help="Device to train on.  [default: that of the configuration]")
    ] = None,
    dtype: Annotated[
        Precision | None, typer.Option(help="Precision to train in.  [default: that of the configuration]")
    ] = None,
    plan: Plan = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="Train for this many minutes: as many steps as fit.  [default: 2 for a bare text]"),
    ] = None,
    threads: ThreadsOption = None,
    ranks: RanksOption = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard events.")] = False,
) -> None:
    """Train a model on a text."""
    launch_if_several(ranks)
    from vitral.core.config import assignment
    from vitral.lab import free_folder
    from vitral.lab.configuration import pinned, plan_run
    from vitral.training.ranks import joined, leads

    overrides: list[dict[str, Any]] = [
        runtime(device, dtype),
        reading(encoding, field, glob),
        _planned(plan),
        _tokens(special, replace),
        *(assignment(setting) for setting in settings or []),
        pinned(tokenizer, context),
    ]
    if seed is not None:
        overrides.append({"seed": seed})
    if threads is not None:
        overrides.append({"training": {"threads": threads}})
    with joined():
        planned = plan_run(start, corpus=text, init_from=init_from, minutes=minutes, overrides=overrides)
        folder = out or free_folder(start or planned.config.corpus.source)
        _train(planned, folder, tensorboard=tensorboard)
    if leads():
        finish(folder)


def _train(planned: "RunPlan", folder: Path, *, tensorboard: bool) -> None:
    from vitral.cli.progress import tensorboard_reporter
    from vitral.cli.session import time_frame
    from vitral.training import all_of, ranks

    with reporting() as report:
        reports = all_of(report, *([tensorboard_reporter(folder)] if tensorboard and ranks.leads() else []))
        planned.train(folder, reports, time_frame())


def _tokens(special: list[str] | None, replace: str | None) -> dict[str, Any]:
    given = {"specials": special, "replacement": replace}
    return {"corpus": {name: value for name, value in given.items() if value is not None}}


def _planned(plan: StepPlan | None) -> dict[str, Any]:
    training: dict[str, Any] = {}
    if plan is StepPlan.auto:
        training["plan"] = "auto"
    elif plan is not None:
        precision = plan.value.removeprefix("compiled-")
        training |= {"plan": "as-written", "dtype": precision, "compile": plan.value != precision}
    return {"training": training}


def finish(run: Path) -> None:
    """Write the page of a finished run and print what to do next; of a stopped run, only how to continue."""
    from vitral.cli.screen import runnable, say
    from vitral.runs import RunFolder

    ended = RunFolder.open(run).metrics("end")
    if ended and not ended[-1]["finished"]:
        step = ended[-1]["step"]
        say(runnable(_("stopped at step {step:,}, saved; continue with: vitral resume {run}", step=step, run=run)))
        return
    from vitral.reports.run import write_run_report

    page = write_run_report(run)
    say(_("report: {path}", path=page))
    line = _('next:   vitral generate {run}    vitral evaluate {run}    vitral inspect {run} --text "…"', run=run)
    say(runnable(line))
