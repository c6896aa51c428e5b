"""vitral evaluate: the measurements of a run."""

from typing import TYPE_CHECKING, Annotated

import typer

from vitral.cli.options import (
    DeviceName,
    DeviceOption,
    DtypeOption,
    Precision,
    RecordedCorpusOption,
    RunArgument,
    TableFormat,
    TableFormatOption,
    Which,
    WhichOption,
)
from vitral.core.language import N_, _, in_language, number, retold

if TYPE_CHECKING:
    from vitral.lab import Measures

SPLITS = {"train": N_("train"), "validation": N_("validation"), "test": N_("test")}


def evaluate(
    run: RunArgument,
    corpus: RecordedCorpusOption = None,
    checkpoint: WhichOption = Which.best,
    device: DeviceOption = DeviceName.cpu,
    dtype: DtypeOption = Precision.float32,
    copying: Annotated[
        bool, typer.Option(help="Measure how much of a sample is copied from the training text.")
    ] = True,
    format: TableFormatOption = TableFormat.text,
) -> None:
    """Measure a run: loss, perplexity, bits, copying.

    The n-gram baselines of the same text are listed beside them.
    """
    from vitral.cli.screen import print_form, print_json
    from vitral.lab import Run

    loaded = Run(run, checkpoint.value, device=device.value, dtype=dtype.value, corpus=corpus)
    measures = loaded.measure(copying=copying)
    if format is TableFormat.json:
        with in_language("en"):  # data has no other language
            print_json(measures.plain())
    elif format is TableFormat.text:
        print_measures(measures)
    else:
        print_form(measures.table(), format.value)


def print_measures(measures: "Measures") -> None:
    """Print the losses on whole splits, the n-gram baselines, and how much a sample copies."""
    from vitral.cli.screen import console, say, table
    from vitral.lab.run import NOVEL_LENGTH
    from vitral.reports.text import ngram_rows

    rows = [
        (
            _(SPLITS.get(name, name)),
            number(split.num_targets, ","),
            number(split.loss, ".4f"),
            number(split.perplexity, ".3f"),
            number(split.bits_per_character, ".4f"),
            number(split.bits_per_byte, ".4f"),
        )
        for name, split in measures.splits.items()
    ]
    columns = [
        *(_("split"), _("tokens"), _("nats per token"), _("perplexity")),
        *(_("bits per character"), _("bits per byte")),
    ]
    screen = console()
    screen.print(table(_("{run} at step {step:,}", run=measures.run, step=measures.step), columns, rows))
    baselines = ngram_rows(measures.baselines)
    screen.print(table(_("N-gram baselines on the test split"), ("", _("nats per token")), baselines))
    say(_("The test loss is {standing}.", standing=retold(measures.standing)))
    if measures.copying is not None:
        copied = measures.copying
        say(
            _(
                "The longest piece of a sample ({characters:,} characters) that is copied from the training text has "
                "{length} characters: {text!r}. {share:.0%} of its pieces of {novel} characters are not in the "
                "training text.",
                characters=copied.characters,
                length=copied.longest.length,
                text=copied.longest.text,
                share=copied.novel_share,
                novel=NOVEL_LENGTH,
            )
        )
