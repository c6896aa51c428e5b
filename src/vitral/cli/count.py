"""vitral count: the size and cost of a model."""

from typing import TYPE_CHECKING, Annotated

import typer

from vitral.cli.options import EncodingOption, FieldOption, Format, FormatOption, GlobOption, SetOption, reading

if TYPE_CHECKING:
    from vitral.reports.model import ModelCount


def count(
    start: Annotated[
        str, typer.Argument(metavar="PRESET|CONFIG.toml", help="Preset or configuration file of the model.")
    ] = "shakespeare",
    text: Annotated[str | None, typer.Option("--corpus", help="Count with the vocabulary of this text.")] = None,
    vocabulary: Annotated[
        int | None,
        typer.Option(
            help="Count with this many tokens.  [default: the nominal vocabulary of a preset, or that of the "
            "configuration's text]",
            min=1,
        ),
    ] = None,
    encoding: EncodingOption = None,
    field: FieldOption = None,
    glob: GlobOption = None,
    settings: SetOption = None,
    format: FormatOption = Format.text,
) -> None:
    """Count the parameters, operations and bytes of a model."""
    from vitral.cli.screen import print_json
    from vitral.core.config import assignment, merge
    from vitral.lab import count

    overrides = merge(reading(encoding, field, glob), *(assignment(setting) for setting in settings or []))
    if text is not None:
        overrides = merge({"corpus": {"source": text}}, overrides)
    counted = count(start, vocabulary=vocabulary, **overrides)
    if format is Format.json:
        print_json(counted.plain())
    else:
        print_count(counted)


def print_count(counted: "ModelCount") -> None:
    """Print every tensor with its formula, the total, operations and bytes."""
    from vitral.cli.screen import console, table
    from vitral.reports.model import cost_rows

    rows = [
        (row.name, row.part, "×".join(str(size) for size in row.shape), row.formula, f"{row.count:,}")
        for row in counted.rows
    ]
    total = f"{counted.cost.parameters:,}"
    title = f"Parameters of {counted.name} with {counted.vocab_size} tokens: {total}"
    screen = console()
    columns = ("name", "part", "shape", "formula", "parameters")
    screen.print(table(title, columns, [*rows, ("total", "", "", "", total)], words=4))
    screen.print(table("Operations and bytes (float32)", ("", "", "how counted"), cost_rows(counted), words=3))
