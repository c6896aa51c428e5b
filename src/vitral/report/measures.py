"""The tables, the text and the page of a run's measurements."""

import math

from vitral.core.language import N_, _
from vitral.evaluation.measures import NOVEL_LENGTH, Measures, TextMeasures
from vitral.report.html import page
from vitral.report.notebook import page_of, text_of
from vitral.report.plain import plain_text
from vitral.report.sections import Paragraph, Section
from vitral.report.survey import named, ngram_table
from vitral.report.tables import Column, Table, decimals, whole

LOSSES = (
    Column("num_targets", N_("tokens"), whole),
    Column("loss", N_("nats per token"), decimals(4)),
    Column("perplexity", N_("perplexity"), decimals(3)),
    Column("bits_per_character", N_("bits per character"), decimals(4)),
    Column("bits_per_byte", N_("bits per byte"), decimals(4)),
)
"""Columns of a loss."""
SPLITS = (N_("train"), N_("validation"), N_("test"))
"""Names of splits, as `_` translates them."""


def losses_table(measures: Measures | TextMeasures, *, baselines: bool = False) -> Table:
    """The losses of whole splits, or of a text, in a form to be written.

    Args:
        measures: the measurements.
        baselines: whether the n-gram baselines on the test split are rows too.
    """
    rows, first = measures.records(), Column("text", N_("text"), is_prose=True)
    if isinstance(measures, Measures):
        first = Column("split", N_("split"), named, is_prose=True)
        if baselines and not measures.is_masked_lm:
            losses = [(row["quantity"], row["value"]) for row in ngram_table(measures.baselines).plain()[:-1]]
            rows += [{"split": name, "loss": loss, "perplexity": math.exp(loss)} for name, loss in losses]
    title = _("{run} at step {step:,}", run=measures.run, step=measures.step)
    return Table(title, (first, *LOSSES), rows)


def measures_sections(measures: Measures | TextMeasures) -> list[Section]:
    """The losses, the n-gram baselines, and how much a sample copies."""
    sections: list[Section] = [losses_table(measures)]
    if isinstance(measures, TextMeasures):
        note = _(
            "The tokenizer changes this text: the text that its tokens spell is another one. Bits per character and "
            "per byte count the text as it is, and the model does not predict what the tokenizer leaves out."
        )
        return [*sections, *([Paragraph(note)] if measures.is_changed else [])]
    sections.append(ngram_table(measures.baselines, _("N-gram baselines on the test split")))
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
