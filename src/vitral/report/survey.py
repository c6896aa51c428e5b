"""A text before training: the report of `data` and the n-gram baselines of `evaluation`, to print or as a page."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from vitral.core.language import N_, _, in_language, number
from vitral.core.shown import Shown
from vitral.core.tables import Tabular
from vitral.data import CorpusReport, Dataset, Text, corpus_report
from vitral.evaluation import NgramBaselines, baseline_name, ngram_baselines
from vitral.report.bars import alphabet_bars
from vitral.report.folder import ReportFolder, Unwritten
from vitral.report.html import page
from vitral.report.notebook import page_of
from vitral.report.plain import plain_text
from vitral.report.sections import Heading, Listing, Paragraph, Section
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


def named(quantity: str) -> str:
    """A quantity or an n-gram, by its English name, in the current language."""
    order = quantity.removesuffix("-gram")
    return _(quantity) if order == quantity else _("{order}-gram", order=order)


FACTS = (
    Column("quantity", N_("quantity"), named, is_prose=True),
    Column("value", N_("value"), lambda value: (whole if isinstance(value, int) else decimals(3))(value)),
    Column("note", "", lambda note: note or "", is_prose=True),
)


@page_of.register
def _survey_page(survey: Survey) -> str:
    return survey.page(Unwritten())


def survey_dataset(dataset: Dataset, text: Text, *, context_length: int, batch_size: int) -> Survey:
    """The survey of a prepared text, for batches of `batch_size` windows of `context_length` tokens."""
    report = corpus_report(dataset, text, context_length=context_length, batch_size=batch_size)
    splits = dataset.splits
    return Survey(report, ngram_baselines(splits["train"], splits["test"], dataset.tokenizer.vocab_size))


def text_table(report: CorpusReport) -> Table:
    """The text in numbers."""
    endings = ", ".join(f"{number(count, ',')} {name}" for name, count in report.lines.endings.items() if count)
    lines, twice = report.lines, report.duplicates
    told = _("longest {longest:,} characters; line endings: {endings}", longest=lines.longest, endings=endings or "–")
    rows = [
        (N_("bytes"), report.num_bytes, f"SHA-256 {report.sha256[:16]}…"),
        (N_("characters"), report.num_characters, ""),
        (N_("lines"), lines.num_lines, told),
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
        text_table(report),
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
        ngram_table(survey.baselines),
        figure,
    ]
