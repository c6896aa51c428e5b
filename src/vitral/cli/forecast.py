"""vitral forecast: what a training needs on machines that are not here."""

from typing import Annotated

import typer

from vitral.cli.count import CountedArgument, CountedTextOption, VocabularyOption
from vitral.cli.options import SetOption, TableFormat, TableFormatOption, TokenizerOption
from vitral.core.language import _


def forecast(
    start: CountedArgument = "shakespeare",
    gpus: Annotated[int, typer.Option(help="Number of accelerators.", min=1)] = 1,
    kind: Annotated[
        str, typer.Option(help="Their kind: h100, h200, b200, a100, a100-40, l40s, l4 or rtx-4090.")
    ] = "h100",
    measure: Annotated[
        bool, typer.Option("--measure", help="Time a few steps on this machine's device, and forecast several of it.")
    ] = False,
    text: CountedTextOption = None,
    vocabulary: VocabularyOption = None,
    tokenizer: TokenizerOption = None,
    settings: SetOption = None,
    format: TableFormatOption = TableFormat.text,
) -> None:
    """Forecast a training on several accelerators: memory, tokens per second, hours."""
    from vitral.cli.screen import console, print_form, print_json, say, table
    from vitral.core.config import assignment, merge
    from vitral.lab import forecast

    source = {} if text is None else {"corpus": {"source": text}}
    overrides = merge(source, *(assignment(setting) for setting in settings or []))
    asked = {"gpus": gpus, "kind": kind, "measure": measure, "vocabulary": vocabulary, "tokenizer": tokenizer}
    told = forecast(start, **{**asked, **overrides})
    if format is TableFormat.json:
        print_json(told.plain())
    elif format is TableFormat.text:
        console().print(table(told.title, ("", "", _("how counted")), told.rows(), words=3))
        for note in told.notes:
            say(_("note: {text}", text=_(note)))
    else:
        print_form(told.table(), format.value)
