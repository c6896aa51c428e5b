"""Commands that lead to a trained model: corpus, train, resume, count."""

from pathlib import Path
from typing import Annotated, Any

import typer

from vitral.cli.options import (
    Device,
    Dtype,
    Format,
    FormatOption,
    OutOption,
    Plan,
    RunArgument,
    SetOption,
    planned,
    runtime,
)


def corpus(
    text: Annotated[
        str, typer.Argument(metavar="PATH|NAME", help="A file, a folder, or a known text's name.")
    ] = "sample",
    tokenizer: Annotated[str, typer.Option(help="char, byte or bpe.")] = "char",
    split: Annotated[str, typer.Option(help="blocks, tail or nanogpt.")] = "blocks",
    out: Annotated[Path | None, typer.Option(help="Write the report there too, as a page with figures.")] = None,
    format: FormatOption = Format.text,
) -> None:
    """Say what is in a text, and what will go wrong with it."""
    from vitral.api.corpora import survey
    from vitral.cli.corpora import print_survey
    from vitral.cli.screen import print_json, say

    surveyed = survey({"source": text, "tokenizer": tokenizer, "split": split})
    if format is Format.json:
        print_json(surveyed.plain())
    else:
        print_survey(surveyed)
    if out is not None:
        page = surveyed.write(out)
        if format is Format.text:
            say(f"page: {page}")


def train(
    start: Annotated[
        str | None,
        typer.Argument(metavar="[PRESET|CONFIG.toml|TEXT]", help="A preset, a configuration, or a text to learn."),
    ] = None,
    text: Annotated[str | None, typer.Option("--corpus", help="The text, instead of the configuration's.")] = None,
    out: OutOption = None,
    init_from: Annotated[Path | None, typer.Option(help="A run whose weights to start from (fine-tuning).")] = None,
    settings: SetOption = None,
    seed: Annotated[int | None, typer.Option(help="Seed of initial weights, batches and dropout.")] = None,
    device: Annotated[Device | None, typer.Option(help="Where the model runs.")] = None,
    dtype: Annotated[Dtype | None, typer.Option(help="In which precision the model runs.")] = None,
    plan: Annotated[
        Plan | None, typer.Option(help="How steps are computed; auto: whatever a few timed steps show to be fastest.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Train for so long: as many steps as fit.")] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard events too.")] = False,
) -> None:
    """Train a model."""
    from vitral.api import configure, free_folder
    from vitral.cli.live import live_reporter, tensorboard_reporter
    from vitral.core.config import assignment
    from vitral.training import all_of, train

    overrides: list[dict[str, Any]] = [
        runtime(device, dtype),
        planned(plan),
        *(assignment(setting) for setting in settings or []),
    ]
    if seed is not None:
        overrides.append({"seed": seed})
    config = configure(start, corpus=text, init_from=init_from, minutes=minutes, overrides=overrides)
    folder = out or free_folder(start or config.corpus.source)
    with live_reporter() as report:
        also = [tensorboard_reporter(folder)] if tensorboard else []
        train(config, folder, callback=all_of(report, *also), init_from=init_from)
    finish(folder)


def resume(run: RunArgument) -> None:
    """Go on with a run from its last checkpoint, as if it had never stopped."""
    from vitral.cli.live import live_reporter
    from vitral.training import resume

    with live_reporter() as report:
        resume(run, callback=report)
    finish(run)


def finish(run: Path) -> None:
    """Write a run's figures and page, and say what can be done next; at once, where it was stopped."""
    from vitral.cli.screen import say
    from vitral.runs import RunFolder

    ended = RunFolder.open(run).metrics("end")
    if ended and not ended[-1]["finished"]:
        say(f"stopped at step {ended[-1]['step']:,}, saved; vitral resume {run} goes on")
        return
    from vitral.api.reporting import write_run_report

    page = write_run_report(run)
    say(f"report: {page}")
    say(f'next:   vitral generate {run}    vitral evaluate {run}    vitral explain {run} --text "…"')


def count(
    start: Annotated[str, typer.Argument(metavar="PRESET|CONFIG.toml", help="Whose model to count.")] = "shakespeare",
    text: Annotated[str | None, typer.Option("--corpus", help="Count with this text's vocabulary.")] = None,
    vocabulary: Annotated[int | None, typer.Option(help="Count with so many tokens.", min=1)] = None,
    settings: SetOption = None,
    format: FormatOption = Format.text,
) -> None:
    """Count parameters, operations and bytes of a model before it is trained."""
    from vitral.api.counting import count_model
    from vitral.cli.counting import print_count
    from vitral.cli.screen import print_json

    counted = count_model(start, corpus=text, vocabulary=vocabulary, settings=settings or [])
    if format is Format.json:
        print_json(counted.plain())
    else:
        print_count(counted)
