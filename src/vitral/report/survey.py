"""A text before training: the report of `data` and the n-gram baselines of `evaluation`, to print or as a page."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vitral.core.language import N_, _, in_language, ngettext, number
from vitral.core.shown import Shown
from vitral.core.tables import Tabular
from vitral.core.text import nats
from vitral.data import CorpusReport, Dataset, Text, corpus_report
from vitral.evaluation import NgramBaselines, baseline_name, ngram_baselines
from vitral.report.bars import alphabet_bars
from vitral.report.folder import ReportFolder, Unwritten
from vitral.report.html import page
from vitral.report.notebook import page_of
from vitral.report.plain import plain_text
from vitral.report.sections import Heading, Listing, Paragraph, Section, Table
from vitral.report.tables import Column, DataTable, decimals, whole

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
        report = self.report
        tables = [Table("", ("", ""), tuple(text_facts(report)), prose=(1,))]
        tables += [Table(_("N-gram baselines"), ("", _("nats per token")), tuple(ngram_rows(self.baselines)))]
        lines = tuple(map(_, (*report.notes, *report.problems, *self.advice)))
        return plain_text(_("The text: {name}", name=report.name), [*tables, Listing(lines)])

    def records(self) -> list[dict[str, Any]]:
        """The alphabet, one row for each character, the most frequent first."""
        ordered = sorted(self.report.alphabet, key=lambda entry: -entry.count)
        return [asdict(entry) for entry in ordered]

    def table(self) -> DataTable:
        """The text in numbers, with its n-gram baselines in nats per token, in a form to be written."""
        report, baselines = self.report, self.baselines
        with in_language("en"):  # as data
            orders = {baseline_name(order): order for order in baselines.orders}

        def told(quantity: str) -> str:
            return baseline_name(orders[quantity]) if quantity in orders else _(quantity)

        rows = [
            (N_("bytes"), report.num_bytes),
            (N_("characters"), report.num_characters),
            (N_("lines"), report.lines.num_lines),
            (N_("distinct characters"), len(report.alphabet)),
            (N_("tokens in the vocabulary"), report.vocab_size),
            *((_TOKENS[split], count) for split, count in report.tokens.items()),
            (N_("training windows"), report.num_windows),
            (N_("share of the test text that is in the training text"), report.duplicates.share),
            *((name, baselines.orders[order]) for name, order in orders.items()),
            (N_("bigram entropy of the test text"), baselines.test_bigram_entropy),
        ]
        columns = (Column("quantity", N_("quantity"), told, is_prose=True), Column("value", N_("value"), _in_words))
        plain = [{"quantity": quantity, "value": value} for quantity, value in rows]
        return DataTable(_("The text: {name}", name=report.name), columns, plain)

    def page(self, report: ReportFolder) -> str:
        """The report as an HTML document; its figure is added to `report`."""
        return page(_("The text: {name}", name=self.report.name), survey_sections(self, report))

    def write(self, out: Path) -> Path:
        """Write the report as a page with figures into the folder `out`, and return the path of the page.

        Raises:
            StorageError: writing to disk failed.
        """
        report = ReportFolder(out)
        report.add(PAGE, self.page(report))
        report.write(listed=False)  # the folder is the user's own
        return out / PAGE


_TOKENS = {
    "train": N_("tokens of the training split"),
    "validation": N_("tokens of the validation split"),
    "test": N_("tokens of the test split"),
}


def _in_words(value: float) -> str:
    return whole(value) if isinstance(value, int) else decimals(3)(value)


@page_of.register
def _survey_page(survey: Survey) -> str:
    return survey.page(Unwritten())


def survey_dataset(dataset: Dataset, text: Text, *, context_length: int, batch_size: int) -> Survey:
    """The survey of a prepared text, for batches of `batch_size` windows of `context_length` tokens."""
    report = corpus_report(dataset, text, context_length=context_length, batch_size=batch_size)
    splits = dataset.splits
    return Survey(report, ngram_baselines(splits["train"], splits["test"], dataset.tokenizer.vocab_size))


SPLIT_NAMES = {"train": N_("train"), "validation": N_("validation"), "test": N_("test")}


def text_facts(report: CorpusReport) -> list[tuple[str, str]]:
    """The text in numbers, as (quantity, value)."""
    endings = ", ".join(f"{number(count, ',')} {name}" for name, count in report.lines.endings.items() if count)
    splits = ", ".join(f"{_(SPLIT_NAMES[split])} {number(count, ',')}" for split, count in report.tokens.items())
    lines, twice = report.lines, report.duplicates
    distinct, rare = len(report.alphabet), len(report.rare)
    return [
        (_("bytes"), number(report.num_bytes, ",")),
        (_("characters"), number(report.num_characters, ",")),
        (_("lines"), _("{number:,} (longest {longest:,} characters)", number=lines.num_lines, longest=lines.longest)),
        (_("line endings"), endings or _("none")),
        (
            _("alphabet"),
            ngettext(
                "{number:,} distinct character, {rare:,} of them rare",
                "{number:,} distinct characters, {rare:,} of them rare",
                distinct,
                number=distinct,
                rare=rare,
            ),
        ),
        (
            _("tokens"),
            _(
                "{number:,} in the vocabulary ({tokenizer}); {splits}",
                number=report.vocab_size,
                tokenizer=report.tokenizer,
                splits=splits,
            ),
        ),
        (
            _("training windows"),
            _(
                "{number:,}; {batches:,.0f} batches per epoch",
                number=report.num_windows,
                batches=report.batches_per_pass,
            ),
        ),
        (
            _("test text also in training text"),
            _("{share:.1%} of windows of {length} characters", share=twice.share, length=twice.length),
        ),
        ("SHA-256", report.sha256),
    ]


def ngram_rows(baselines: NgramBaselines) -> list[tuple[str, str]]:
    """The n-gram baselines as (name, nats per token)."""
    rows = ((baseline_name(order), nats(loss)) for order, loss in baselines.orders.items())
    return [*rows, (_("bigram entropy of the test text"), nats(baselines.test_bigram_entropy))]


def survey_sections(survey: Survey, folder: ReportFolder) -> list[Section]:
    """The survey as sections of a page; its figure is added to `folder`."""
    report = survey.report
    counts = [(entry.label, entry.count) for entry in report.alphabet]
    most_frequent = max(report.alphabet, key=lambda entry: entry.count)
    figure = folder.figure(
        alphabet_bars(counts, title=_("Characters of {name}", name=report.name), rare=10),
        "alphabet",
        _("How often each character occurs, on a logarithmic axis."),
        _(
            "{characters} characters; the most frequent is {label} with {number:,} occurrences.",
            characters=len(counts),
            label=most_frequent.label,
            number=most_frequent.count,
        ),
    )
    problems: Section = Paragraph(_("No problems were found."))
    if report.problems:
        problems = Listing(tuple(map(_, report.problems)))
    advice: list[Section] = []
    if survey.advice:
        advice = [Heading(_("Training on it"), 3), Listing(tuple(map(_, survey.advice)))]
    read = _("On reading: {notes}", notes=" ".join(map(_, report.notes)))
    return [
        Table(_("The text in numbers"), ("", ""), tuple(text_facts(report)), prose=(1,)),
        *([Paragraph(read)] if report.notes else []),
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
        Table(_("N-gram baselines"), (_("model"), _("nats per token")), tuple(ngram_rows(survey.baselines))),
        figure,
    ]
