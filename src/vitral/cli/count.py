"""vitral count: the size and cost of a model."""

from typing import TYPE_CHECKING, Annotated

import typer

from vitral.cli.completion import complete_counted, complete_text
from vitral.cli.options import (
    ContextOption,
    EncodingOption,
    FieldOption,
    GlobOption,
    SetOption,
    TableFormat,
    TableFormatOption,
    TokenizerOption,
    reading,
)
from vitral.core.language import _, number

if TYPE_CHECKING:
    from vitral.reports.model import ModelCount


CountedArgument = Annotated[
    str,
    typer.Argument(
        metavar="PRESET|CONFIG.toml|TEXT|RUN",
        help="A preset, a configuration file, a text (the model that vitral train would use for it), or a run.",
        autocompletion=complete_counted,
    ),
]
CountedTextOption = Annotated[
    str | None,
    typer.Option("--corpus", help="Count with the vocabulary of this text.", autocompletion=complete_text),
]
VocabularyOption = Annotated[
    int | None,
    typer.Option(
        help="Count with this many tokens.  [default: the nominal vocabulary of a preset, that of the text or run]",
        min=1,
    ),
]


def count(
    start: CountedArgument = "shakespeare",
    text: CountedTextOption = None,
    vocabulary: VocabularyOption = None,
    tokenizer: TokenizerOption = None,
    context: ContextOption = None,
    minutes: Annotated[
        float | None, typer.Option(help="Training time, which decides the model for a text.  [default: 2]")
    ] = None,
    encoding: EncodingOption = None,
    field: FieldOption = None,
    glob: GlobOption = None,
    settings: SetOption = None,
    format: TableFormatOption = TableFormat.text,
) -> None:
    """Count the parameters, operations and bytes of a model."""
    from vitral.cli.screen import print_form, print_json
    from vitral.core.config import assignment, merge
    from vitral.lab import count

    source = {} if text is None else {"corpus": {"source": text}}
    overrides = merge(source, reading(encoding, field, glob), *(assignment(setting) for setting in settings or []))
    chosen = {"minutes": minutes, "vocabulary": vocabulary, "tokenizer": tokenizer, "context": context}
    counted = count(start, **{**chosen, **overrides})
    if format is TableFormat.json:
        print_json(counted.plain())
    elif format is TableFormat.text:
        _print(counted)
    else:
        print_form(counted.table(), format.value)


def _print(counted: "ModelCount") -> None:
    """Print every tensor with its formula, the total, operations and bytes."""
    from vitral.cli.screen import console, say, table
    from vitral.reports.model import cost_rows

    rows = [
        (row.name, _(row.part), "×".join(str(size) for size in row.shape), row.formula, number(row.count, ","))
        for row in counted.rows
    ]
    columns = (_("name"), _("part"), _("shape"), _("formula"), _("parameters"))
    total = (_("total"), "", "", "", number(counted.cost.parameters, ","))
    console().print(table(counted.title, columns, [*rows, total], words=4))
    console().print(table(_("Operations and bytes (float32)"), ("", "", _("how counted")), cost_rows(counted), words=3))
    for line in counted.advice:
        say(_(line))
