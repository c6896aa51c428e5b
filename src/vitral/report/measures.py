"""The tables, the text and the page of a run's measurements."""

import math

from vitral.core.language import N_, _, in_language
from vitral.evaluation import baseline_name
from vitral.evaluation.measures import NOVEL_LENGTH, Measures, TextMeasures
from vitral.report.html import page
from vitral.report.notebook import page_of, text_of
from vitral.report.plain import plain_text
from vitral.report.sections import Paragraph, Section, Table
from vitral.report.survey import ngram_rows
from vitral.report.tables import Column, DataTable, decimals, whole

LOSSES = (
    Column("num_targets", N_("tokens"), whole),
    Column("loss", N_("nats per token"), decimals(4)),
    Column("perplexity", N_("perplexity"), decimals(3)),
    Column("bits_per_character", N_("bits per character"), decimals(4)),
    Column("bits_per_byte", N_("bits per byte"), decimals(4)),
)
"""Columns of a loss."""
SPLITS = {"train": N_("train"), "validation": N_("validation"), "test": N_("test")}


def losses_table(measures: Measures | TextMeasures, *, baselines: bool = False) -> DataTable:
    """The losses of whole splits, or of a text, in a form to be written.

    Args:
        measures: the measurements.
        baselines: whether the n-gram baselines on the test split are rows too.
    """
    rows, first = measures.records(), Column("text", N_("text"), is_prose=True)
    if isinstance(measures, Measures):
        orders = measures.baselines.orders if baselines and not measures.is_masked_lm else {}
        with in_language("en"):  # as data
            names = {baseline_name(order): order for order in orders}

        def told(name: str) -> str:
            return baseline_name(names[name]) if name in names else _(SPLITS.get(name, name))

        first = Column("split", N_("split"), told, is_prose=True)
        losses = ((name, orders[order]) for name, order in names.items())
        rows += [{"split": name, "loss": loss, "perplexity": math.exp(loss)} for name, loss in losses]
    title = _("{run} at step {step:,}", run=measures.run, step=measures.step)
    return DataTable(title, (first, *LOSSES), rows)


def measures_sections(measures: Measures | TextMeasures) -> list[Section]:
    """The losses, the n-gram baselines, and how much a sample copies."""
    sections: list[Section] = [losses_table(measures).section()]
    if isinstance(measures, TextMeasures):
        note = _(
            "The tokenizer changes this text: the text that its tokens spell is another one. Bits per character and "
            "per byte count the text as it is, and the model does not predict what the tokenizer leaves out."
        )
        return [*sections, *([Paragraph(note)] if measures.is_changed else [])]
    heading, rows = _("N-gram baselines on the test split"), tuple(ngram_rows(measures.baselines))
    sections.append(Table(heading, ("", _("nats per token")), rows))
    sections.append(Paragraph(_("The test loss is {standing}.", standing=measures.standing)))
    sections += [Paragraph(_(problem)) for problem in measures.problems]
    copied = measures.copying
    if copied is not None:
        told = _(
            "The longest piece of a sample ({characters:,} characters) that is copied from the training text has "
            "{length} characters: {text!r}. {novel:.0%} of its pieces of {piece} characters are not in the "
            "training text.",
            characters=copied.characters,
            length=copied.longest.length,
            text=copied.longest.text,
            novel=copied.novel_share,
            piece=NOVEL_LENGTH,
        )
        sections.append(Paragraph(told))
    return sections


@text_of.register(Measures)
@text_of.register(TextMeasures)
def _measures_text(measures: Measures | TextMeasures) -> str:
    return plain_text("", measures_sections(measures)).lstrip()


@page_of.register(Measures)
@page_of.register(TextMeasures)
def _measures_page(measures: Measures | TextMeasures) -> str:
    return page(_("Measurements"), measures_sections(measures))
