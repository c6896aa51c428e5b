"""vitral evaluate: the measurements of a run."""

from typing import TYPE_CHECKING, Annotated

import typer

from vitral.cli.options import (
    DeviceName,
    DeviceOption,
    DtypeOption,
    Format,
    FormatOption,
    Precision,
    RecordedCorpusOption,
    RunArgument,
    Which,
    WhichOption,
)

if TYPE_CHECKING:
    from vitral.lab import Measures


def evaluate(
    run: RunArgument,
    corpus: RecordedCorpusOption = None,
    checkpoint: WhichOption = Which.best,
    device: DeviceOption = DeviceName.cpu,
    dtype: DtypeOption = Precision.float32,
    copying: Annotated[
        bool, typer.Option(help="Measure how much of a sample is copied from the training text.")
    ] = True,
    format: FormatOption = Format.text,
) -> None:
    """Measure a run: loss, perplexity, bits, copying.

    The n-gram baselines of the same text are listed beside them.
    """
    from vitral.cli.screen import print_json
    from vitral.lab import Run

    loaded = Run(run, checkpoint.value, device=device.value, dtype=dtype.value, corpus=corpus)
    measures = loaded.measure(copying=copying)
    if format is Format.json:
        print_json(measures.plain())
    else:
        print_measures(measures)


def print_measures(measures: "Measures") -> None:
    """Print the losses on whole splits, the n-gram baselines, and how much a sample copies."""
    from vitral.cli.screen import console, say, table
    from vitral.lab.run import NOVEL_LENGTH
    from vitral.reports.text import ngram_rows

    rows = [
        (
            name,
            f"{split.num_targets:,}",
            f"{split.loss:.4f}",
            f"{split.perplexity:.3f}",
            f"{split.bits_per_character:.4f}",
            f"{split.bits_per_byte:.4f}",
        )
        for name, split in measures.splits.items()
    ]
    columns = ("split", "tokens", "nats per token", "perplexity", "bits per character", "bits per byte")
    screen = console()
    screen.print(table(f"{measures.run} at step {measures.step:,}", columns, rows))
    baselines = ngram_rows(measures.baselines)
    screen.print(table("N-gram baselines on the test split", ("", "nats per token"), baselines))
    say(f"The test loss is {measures.standing}.")
    if measures.copying is not None:
        copied = measures.copying
        say(
            f"The longest piece of a sample ({copied.characters:,} characters) that is copied from the training text "
            f"has {copied.longest.length} characters: {copied.longest.text!r}. "
            f"{copied.novel_share:.0%} of its pieces of {NOVEL_LENGTH} characters are not in the training text."
        )
