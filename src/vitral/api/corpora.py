"""A text before training: the report of `data`, the n-gram lines of `evaluation`, as one thing to print or write."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.api.configuring import DEFAULT_PRESET, presets
from vitral.data import CorpusConfig, CorpusReport, Dataset, Text, corpus_report, load_corpus, prepare
from vitral.evaluation import NgramBaselines, baseline_name, ngram_baselines
from vitral.figures.bars import alphabet_bars
from vitral.figures.html import page
from vitral.figures.sections import Figure, Heading, Listing, Paragraph, Section, Table
from vitral.figures.style import save
from vitral.runs.files import replace_durably, storage


@dataclass(frozen=True)
class Survey:
    """What is known of a text before anything is trained on it.

    Attributes:
        report: size, alphabet, lines, duplicates, problems.
        lines: what counting alone achieves on its test part.
    """

    report: CorpusReport
    lines: NgramBaselines

    def plain(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {**self.report.plain(), "ngrams": self.lines.plain()}

    def write(self, out: Path) -> Path:
        """Write the report as a page with figures into the folder `out`; gives the page's path.

        Raises:
            StorageError: the disk did not take it.
        """
        with storage(out):
            out.mkdir(parents=True, exist_ok=True)
        target = out / "corpus.html"
        title = f"The text: {self.report.name}"
        replace_durably(target, page(title, survey_sections(self, out)).encode())
        return target


def survey(corpus: Mapping[str, Any]) -> Survey:
    """Read a text and report on it, with the batches of the default preset in mind.

    Args:
        corpus: the `[corpus]` table as plain data.

    Raises:
        UsageError: it cannot be read, or is too short to be split.
    """
    config = CorpusConfig.parse(corpus, "corpus")
    text = load_corpus(config)
    dataset = prepare(config, corpus=text)
    default = presets()[DEFAULT_PRESET].run
    return survey_dataset(
        dataset,
        text.text,
        context_length=default["model"]["context_length"],
        batch_size=default["training"]["batch_size"],
    )


def survey_dataset(dataset: Dataset, text: Text, *, context_length: int, batch_size: int) -> Survey:
    """The survey of a prepared text, batches being `batch_size` windows of `context_length` tokens."""
    report = corpus_report(dataset, text, context_length=context_length, batch_size=batch_size)
    return Survey(
        report, ngram_baselines(dataset.splits["train"], dataset.splits["test"], dataset.tokenizer.vocab_size)
    )


def facts(report: CorpusReport) -> list[tuple[str, str]]:
    """The text in numbers, as (what, how much)."""
    endings = ", ".join(f"{count:,} {name}" for name, count in report.lines.endings.items() if count) or "none"
    parts = ", ".join(f"{part} {count:,}" for part, count in report.tokens.items())
    return [
        ("bytes", f"{report.num_bytes:,}"),
        ("characters", f"{report.num_characters:,}"),
        ("lines", f"{report.lines.num_lines:,} (longest {report.lines.longest:,} characters)"),
        ("line endings", endings),
        ("alphabet", f"{len(report.alphabet):,} distinct characters, {len(report.rare):,} of them rare"),
        ("tokens", f"{report.vocab_size:,} in the vocabulary ({report.tokenizer}); {parts}"),
        ("windows to train on", f"{report.num_windows:,}; {report.batches_per_pass:,.0f} batches make one pass"),
        ("test text found in training text", f"{report.duplicates.share:.1%} of windows of {report.duplicates.length}"),
        ("SHA-256", report.sha256),
    ]


def ngram_rows(lines: NgramBaselines) -> list[tuple[str, str]]:
    """The n-gram lines as (name, nats per token)."""
    rows = [(baseline_name(order), f"{nats:.3f}") for order, nats in lines.orders.items()]
    return [*rows, ("the test text's own bigram entropy", f"{lines.test_bigram_entropy:.3f}")]


def survey_sections(surveyed: Survey, folder: Path) -> list[Section]:
    """The survey as sections of a page, its figure written into `folder`."""
    report = surveyed.report
    counts = [(entry.label, entry.count) for entry in report.alphabet]
    saved = save(alphabet_bars(counts, title=f"Characters of {report.name}", rare=10), folder, "alphabet")
    commonest = max(report.alphabet, key=lambda entry: entry.count)
    figure = Figure(
        saved.svg.read_text(encoding="utf-8"),
        "How often each character occurs. The axis is logarithmic.",
        f"{len(counts)} characters; the commonest is {commonest.label} with {commonest.count:,} occurrences.",
        saved.svg.name,
    )
    problems: list[Section] = (
        [Listing(tuple(report.problems))] if report.problems else [Paragraph("Nothing was found.")]
    )
    notes: list[Section] = [Paragraph("On reading: " + " ".join(report.notes))] if report.notes else []
    return [
        Table("The text in numbers", ("", ""), tuple(facts(report)), prose=(1,)),
        *notes,
        Heading("What is wrong with it", 3),
        *problems,
        Heading("What counting alone achieves", 3),
        Paragraph(
            "Witten-Bell n-grams counted on the training part and scored on the test part, in nats per token. They are "
            "the lines a model has to pass: below the bigram line it uses more than the last token."
        ),
        Table("n-gram lines", ("model", "nats per token"), tuple(ngram_rows(surveyed.lines))),
        figure,
    ]
