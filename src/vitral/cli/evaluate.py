"""vitral evaluate: the measurements of a run."""

from typing import TYPE_CHECKING, Annotated

import typer

from vitral.cli.completion import complete_text
from vitral.cli.options import (
    DeviceName,
    DeviceOption,
    DtypeOption,
    Precision,
    RecordedCorpusOption,
    ReplaceOption,
    RunArgument,
    TableFormat,
    TableFormatOption,
    Which,
    WhichOption,
)
from vitral.core.language import in_language

if TYPE_CHECKING:
    from vitral.lab import Measures, TextMeasures


def evaluate(
    run: RunArgument,
    text: Annotated[
        str | None,
        typer.Option(
            help="Measure the loss on this text: a file, a folder or a name.  [default: the run's own text]",
            autocompletion=complete_text,
        ),
    ] = None,
    replace: ReplaceOption = None,
    corpus: RecordedCorpusOption = None,
    checkpoint: WhichOption = Which.best,
    device: DeviceOption = DeviceName.cpu,
    dtype: DtypeOption = Precision.float32,
    copying: Annotated[
        bool | None,
        typer.Option(
            "--copying/--no-copying",
            help="Measure how much of a sample is copied from the training text.  [default: copying]",
        ),
    ] = None,
    format: TableFormatOption = TableFormat.text,
) -> None:
    """Measure a run: loss, perplexity, bits, copying.

    The n-gram baselines of the same text are listed beside them. With --text, any run is measured on any text.
    """
    from vitral.cli.screen import print_form, print_json
    from vitral.lab import evaluate as measured

    measures = measured(
        run,
        text=text,
        replace=replace,
        copying=copying,
        corpus=corpus,
        checkpoint=checkpoint.value,
        device=device.value,
        dtype=dtype.value,
    )
    if format is TableFormat.json:
        with in_language("en"):  # data has no other language
            print_json(measures.plain())
    elif format is TableFormat.text:
        print_measures(measures)
    else:
        print_form(measures.table(), format.value)


def print_measures(measures: "Measures | TextMeasures") -> None:
    """Print the losses on whole splits, the n-gram baselines, and how much a sample copies."""
    from vitral.cli.screen import print_sections

    print_sections(measures.sections())
