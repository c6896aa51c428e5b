"""A text before training, with its n-gram baselines; and the losses of a run beside them: tables, text and pages."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from vitral.core.language import N_, _, in_language
from vitral.core.shown import Shown, Tabular
from vitral.data import CorpusReport, Dataset, Text, corpus_report
from vitral.data.batches import Reading
from vitral.evaluation import NgramBaselines, baseline_name, ngram_baselines
from vitral.evaluation.measures import NOVEL_LENGTH, Measures, TextMeasures
from vitral.report.folder import ReportFolder
from vitral.report.html import page
from vitral.report.markdown import plain_text
from vitral.report.sections import Details, Heading, Listing, Paragraph, Section
from vitral.report.tables import Column, Table, decimals, whole

PAGE = "corpus.html"


@dataclass(frozen=True, repr=False)
class Survey(Shown, Tabular):
    """A text before training.

    Attributes:
        report: size, alphabet, lines, duplicates, problems.
        baselines: n-gram models counted on its training split and scored on its test split.
        plan: how the text is trained on: each choice as plain data, with its reason.
        advice: the same for people, one line for each choice.
    """

    report: CorpusReport
    baselines: NgramBaselines
    plan: tuple[Mapping[str, Any], ...] = ()
    advice: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {**self.report.plain(), "ngrams": self.baselines.plain(), "plan": [dict(one) for one in self.plan]}

    def __str__(self) -> str:
        """The text in numbers, its n-gram baselines, its problems, and how to train on it."""
        lines = tuple(map(_, (*self.report.notes, *self.report.problems, *self.advice)))
        return plain_text("", [text_table(self.report), ngram_table(self.baselines), Listing(lines)]).lstrip()

    def records(self) -> list[dict[str, Any]]:
        """The alphabet, one row for each character, the most frequent first."""
        ordered = sorted(self.report.alphabet, key=lambda entry: -entry.count)
        return [asdict(entry) for entry in ordered]

    def table(self) -> Table:
        """The text in numbers, with its n-gram baselines in nats per token, in a form to be written."""
        facts = text_table(self.report)
        return replace(facts, columns=FACTS[:2], rows=[*facts.rows, *ngram_table(self.baselines).rows])

    def page(self) -> str:
        """The report as an HTML document."""
        return page(_("The text: {name}", name=self.report.name), survey_sections(self))

    def write(self, out: Path) -> Path:
        """Write the report as a page into the folder `out`, and return the path of the page.

        Raises:
            StorageError: writing to disk failed.
        """
        report = ReportFolder(out)
        report.add(PAGE, self.page())
        report.write(listed=False)  # the folder is the user's own
        return out / PAGE


_TOKENS = {
    "train": N_("tokens of the training split"),
    "validation": N_("tokens of the validation split"),
    "test": N_("tokens of the test split"),
}


def named(quantity: str) -> str:
    """A quantity or an n-gram, by its English name, in the current language."""
    order = quantity.removesuffix("-gram")
    return _(quantity) if order == quantity else _("{order}-gram", order=order)


FACTS = (
    Column("quantity", N_("quantity"), named),
    Column("value", N_("value"), lambda value: (whole if isinstance(value, int) else decimals(3))(value)),
    Column("note", "", lambda note: note or "", is_prose=True),
)


def survey_dataset(dataset: Dataset, text: Text, *, context_length: int | Reading, batch_size: int) -> Survey:
    """The survey of a prepared text, for batches of `batch_size` windows of `context_length` tokens, or records."""
    report = corpus_report(dataset, text, context_length=context_length, batch_size=batch_size)
    splits = dataset.splits
    return Survey(report, ngram_baselines(splits["train"], splits["test"], dataset.tokenizer.vocab_size))


def text_table(report: CorpusReport) -> Table:
    """The text in numbers."""
    lines, twice = report.lines, report.duplicates
    details = _("longest {longest:,} characters", longest=lines.longest)
    in_lines = [(N_("lines"), lines.num_lines, details)] if lines.num_lines else []  # records have none
    rows = [
        (N_("bytes"), report.num_bytes, f"SHA-256 {report.sha256[:16]}…"),
        (N_("characters"), report.num_characters, ""),
        *in_lines,
        (N_("distinct characters"), len(report.alphabet), _("{rare:,} of them rare", rare=len(report.rare))),
        (N_("tokens in the vocabulary"), report.vocab_size, report.tokenizer),
        *((_TOKENS[split], count, "") for split, count in report.tokens.items()),
        (
            N_("training windows"),
            report.num_windows,
            _("{batches:,.0f} batches per epoch", batches=report.batches_per_pass),
        ),
        (
            N_("share of the test text that is in the training text"),
            twice.share,
            _("windows of {length} characters", length=twice.length),
        ),
    ]
    keys = [column.key for column in FACTS]
    return Table(_("The text: {name}", name=report.name), FACTS, [dict(zip(keys, row, strict=True)) for row in rows])


def ngram_table(baselines: NgramBaselines, caption: str = "") -> Table:
    """The n-gram baselines in nats per token."""
    with in_language("en"):  # as data
        rows = [{"quantity": baseline_name(order), "value": loss} for order, loss in baselines.orders.items()]
    rows.append({"quantity": N_("bigram entropy of the test text"), "value": baselines.test_bigram_entropy})
    columns = (FACTS[0], replace(FACTS[1], label=N_("nats per token")))
    return Table(caption or _("N-gram baselines"), columns, rows)


ALPHABET = (
    Column("label", N_("character")),
    Column("code_point", N_("code point"), is_prose=True),
    Column("count", N_("occurrences"), whole),
)
"""Columns of the characters; their Unicode names are English, and stand in the data only."""


def survey_sections(survey: Survey) -> list[Section]:
    """The survey as sections of a page."""
    report = survey.report
    problems = Listing(tuple(map(_, report.problems))) if report.problems else Paragraph(_("No problems were found."))
    advice = [Heading(_("Training on it"), 3), Listing(tuple(map(_, survey.advice)))] if survey.advice else []
    return [
        text_table(report),
        *on_reading(report.notes),
        *advice,
        Heading(_("Problems"), 3),
        problems,
        Heading(_("N-gram baselines"), 3),
        Paragraph(
            _(
                "Witten-Bell smoothed n-gram models, counted on the training split and scored on the test "
                "split, in nats per token. A model whose loss is below the bigram baseline uses more than the "
                "last token."
            )
        ),
        ngram_table(survey.baselines),
        Details(_("Characters of {name}", name=report.name), (Table("", ALPHABET, survey.records()),)),
    ]


def on_reading(notes: Sequence[str]) -> list[Section]:
    """What was changed in a text while it was read, and what is special in it."""
    return [Paragraph(_("On reading: {notes}", notes=" ".join(map(_, notes))))] if notes else []


LOSSES = (
    Column("num_targets", N_("tokens"), whole),
    Column("loss", N_("nats per token"), decimals(4)),
    Column("perplexity", N_("perplexity"), decimals(3)),
    Column("bits_per_character", N_("bits per character"), decimals(4)),
    Column("bits_per_byte", N_("bits per byte"), decimals(4)),
)
"""Columns of a loss."""
OF_LABELS = (Column("num_targets", N_("labels"), whole), Column("loss", N_("nats per label"), decimals(4)), LOSSES[2])
"""Columns of a loss of labels."""
EXACT = Column("exact_match", N_("exact answers"), decimals(4))
SPLITS = (N_("train"), N_("validation"), N_("test"), N_("validation, hidden tokens"), N_("test, hidden tokens"))
"""Names of splits, as `_` translates them."""


def losses_table(measures: Measures | TextMeasures, *, baselines: bool = False) -> Table:
    """The losses of whole splits, or of a text, in a form to be written.

    Args:
        measures: the measurements.
        baselines: whether the n-gram baselines on the test split are rows too.
    """
    rows, first, columns = measures.records(), Column("text", N_("text")), LOSSES
    if isinstance(measures, Measures):
        first = Column("split", N_("split"), named)
        columns = OF_LABELS if measures.labels else LOSSES
        rows += [{"split": f"{name}, hidden tokens", **one.plain()} for name, one in measures.masked.items()]
        if baselines and measures.is_of_next_tokens:
            losses = [(row["quantity"], row["value"]) for row in ngram_table(measures.baselines).plain()[:-1]]
            rows += [{"split": name, "loss": loss, "perplexity": math.exp(loss)} for name, loss in losses]
    answered = [row for row in rows if "exact_match" in row]
    for row in answered:
        row["exact_match"] = row["exact_match"]["share"]
    title = _("{run} at step {step:,}", run=measures.run, step=measures.step)
    return Table(title, (first, *columns, *[EXACT] * bool(answered)), rows)


ANSWERS = (
    Column("by", N_("answers by"), _, is_prose=True),
    Column("right", N_("exact"), whole),
    Column("total", N_("of"), whole),
    Column("share", N_("as a share"), decimals(3)),
    Column("low", N_("from"), decimals(3)),
    Column("high", N_("to"), decimals(3)),
)
"""Columns of the right answers; the last two are an interval."""
CLASSIFIERS = {"majority": N_("the most frequent label"), "naive_bayes": N_("naive Bayes")}


def answers_sections(measures: Measures) -> Iterator[Section]:
    """The exact answers on the test split, beside those of simple classifiers of labels."""
    answers = measures.splits["test"].answers
    if answers is None:
        return
    rows = {N_("this run"): answers, **{CLASSIFIERS[name]: score for name, score in measures.labels.items()}}
    shares = [
        {"by": name, **vars(one), "share": one.share, **dict(zip(("low", "high"), one.interval, strict=True))}
        for name, one in rows.items()
    ]
    yield Table(_("Exact answers on the test split, with 95% intervals"), ANSWERS, shares)
    if answers.left_out:
        yield Paragraph(_("{n:,} further records are longer than the model reads.", n=answers.left_out))


def measures_sections(measures: Measures | TextMeasures) -> list[Section]:
    """The losses, the n-gram baselines, and how much a sample copies."""
    sections: list[Section] = [losses_table(measures)]
    if isinstance(measures, TextMeasures):
        note = _(
            "The tokenizer changes this text: the text that its tokens spell is another one. Bits per character and "
            "per byte count the text as it is, and the model does not predict what the tokenizer leaves out."
        )
        return [*sections, *([Paragraph(note)] if measures.is_changed else [])]
    if measures.is_of_next_tokens:
        sections.append(ngram_table(measures.baselines, _("N-gram baselines on the test split")))
    sections.append(Paragraph(_("The test loss is {standing}.", standing=measures.standing)))
    sections += answers_sections(measures)
    sections += [Paragraph(_(problem)) for problem in measures.problems]
    copied = measures.copying
    if copied is not None:
        copy_text = _(
            "The longest piece of a sample ({characters:,} characters) that is copied from the training text has "
            "{length} characters: {text!r}. {novel:.0%} of its pieces of {piece} characters are not in the "
            "training text.",
            characters=copied.characters,
            length=copied.longest.length,
            text=copied.longest.text,
            novel=copied.novel_share,
            piece=NOVEL_LENGTH,
        )
        sections.append(Paragraph(copy_text))
    return sections


def table_of(measures: Measures | TextMeasures) -> Table:
    """The losses of all splits and of the n-gram baselines."""
    return losses_table(measures, baselines=True)


def text_of(measures: Measures | TextMeasures) -> str:
    """The tables in aligned lines, and the sentences."""
    return plain_text("", measures_sections(measures)).lstrip()


def page_of(measures: Measures | TextMeasures) -> str:
    """The same as an HTML document."""
    return page(_("Measurements"), measures_sections(measures))
