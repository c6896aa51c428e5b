"""vitral forecast: what a training needs on machines that are not here."""

from pathlib import Path
from typing import Annotated

import typer

from vitral.cli.completion import complete_counted, complete_study_folder, complete_text
from vitral.cli.options import SetOption, TableFormat, TableFormatOption, TokenizerOption
from vitral.core.language import _


def forecast(
    start: Annotated[
        str,
        typer.Argument(
            metavar="PRESET|CONFIG.toml|TEXT|RUN",
            help="A preset, a configuration file, a text or a run.",
            autocompletion=complete_counted,
        ),
    ] = "shakespeare",
    gpus: Annotated[int, typer.Option(help="Number of accelerators.", min=1)] = 1,
    kind: Annotated[
        str, typer.Option(help="Their kind: h100, h200, b200, a100, a100-40, l40s, l4 or rtx-4090.")
    ] = "h100",
    price: Annotated[float | None, typer.Option(help="Price of one for one hour.  [default: no price]")] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Time a few steps on this machine's device, and forecast several of it.")
    ] = False,
    study: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a finished scaling study, whose laws predict the loss.",
            autocompletion=complete_study_folder,
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option("--corpus", help="Count with the vocabulary of this text.", autocompletion=complete_text),
    ] = None,
    vocabulary: Annotated[
        int | None,
        typer.Option(
            help="Count with this many tokens.  [default: the nominal vocabulary of a preset, that of the text or run]",
            min=1,
        ),
    ] = None,
    tokenizer: TokenizerOption = None,
    settings: SetOption = None,
    format: TableFormatOption = TableFormat.text,
) -> None:
    """Forecast a training on several accelerators: memory, tokens per second, hours, price, network, checkpoints."""
    from vitral.cli.screen import console, print_form, print_json, say, table
    from vitral.core.config import assignment, merge
    from vitral.lab import forecast
    from vitral.reports.forecast import forecast_rows

    source = {} if text is None else {"corpus": {"source": text}}
    overrides = merge(source, *(assignment(setting) for setting in settings or []))
    told = forecast(
        start,
        gpus=gpus,
        kind=kind,
        price=price,
        measure=measure,
        study=study,
        vocabulary=vocabulary,
        tokenizer=tokenizer,
        **overrides,
    )
    if format is TableFormat.json:
        print_json(told.plain())
    elif format is TableFormat.text:
        console().print(table(told.title, ("", "", _("how counted")), forecast_rows(told), words=3))
        for note in told.notes:
            say(_("note: {text}", text=_(note)))
    else:
        print_form(told.table(), format.value)
