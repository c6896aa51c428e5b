"""The page of a run: its losses against the n-gram baselines, a sample, its parameters and configuration."""

from pathlib import Path

import tomli_w

from vitral.core.checked import checked
from vitral.core.guarded import GuardedFolder
from vitral.evaluation import NgramBaselines, baseline_name, rank_among_baselines
from vitral.figures.html import page
from vitral.figures.lines import Line, loss_plot
from vitral.figures.margin import Reference
from vitral.figures.sections import Callout, Details, Heading, Paragraph, Preformatted, Section, Table
from vitral.model import parameter_table
from vitral.reports.folder import ReportFolder, check_report
from vitral.reports.model import parameter_section
from vitral.runs import SealedRun, enter
from vitral.runs.loading import warn_on_stderr

ORDERS_SHOWN = (1, 2, 3, 4, 5, 6)
GRAY = " Gray lines: n-gram baselines."
PAGE = "run.html"


@checked(first=True)
def write_run_report(path: Path) -> Path:
    """Write `report/run.html`, `report/losses.svg` and `.png` into a run's folder, and return the path of the page.

    Raises:
        UsageError: not a run, or a link or a device stands in the way.
        StorageError: writing to disk failed.
    """
    run = enter(path, warn_on_stderr)
    folder, counted = run.folder, run.ngrams()  # there are none before the first evaluation
    baselines = None if counted is None else NgramBaselines.from_plain(counted)
    report = ReportFolder(folder.files.within("report"))
    sections: list[Section] = [*loss_sections(run, baselines, report)]
    samples = folder.metrics("sample")
    if samples:
        sections += [Heading("Sample"), Preformatted(samples[-1]["text"], f"after step {samples[-1]['step']:,}")]
    sections += [Heading("Parameters"), parameter_section(parameter_table(run.config.model, run.tokenizer.vocab_size))]
    configuration = tomli_w.dumps(run.config.plain())
    sections.append(Details("The whole configuration", (Preformatted(configuration),)))
    report.add(PAGE, page(f"Run {path.name}", sections, footer="Made by Vitral."))
    report.write()
    return path / "report" / PAGE


@checked(first=True)
def require_run_report(path: Path) -> None:
    """Write the page of a run again unless it is there as it was written.

    Raises:
        UsageError: not a run, or a link or a device stands in the way.
        StorageError: writing to disk failed.
    """
    folder = GuardedFolder(path).within("report")
    if folder.kind(PAGE) is None or check_report(folder):
        write_run_report(path)


def loss_sections(run: SealedRun, baselines: NgramBaselines | None, report: ReportFolder) -> list[Section]:
    """The losses of a run as a sentence, a figure (added to the report) and a table."""
    folder = run.folder
    evaluations = folder.metrics("evaluation")
    if not evaluations or baselines is None:
        return [Paragraph("There is no evaluation yet.")]
    last = evaluations[-1]
    steps = [event["step"] for event in evaluations]
    lines = [
        Line(label, steps, [event[key] for event in evaluations])
        for label, key in (("training", "train_loss"), ("validation", "validation_loss"), ("test", "test_loss"))
    ]
    is_causal_lm = run.config.training.objective == "next-token"
    orders = [order for order in ORDERS_SHOWN if order in baselines.orders] if is_causal_lm else []
    references = [Reference(baseline_name(order), baselines.orders[order]) for order in orders]
    drawn = loss_plot(lines, references=references, title="Loss while training")
    compared = (
        f"nats per token, {rank_among_baselines(last['test_loss'], baselines)}"
        if is_causal_lm
        else "nats per masked token"
    )
    rows = [
        (f"{e['step']:,}", f"{e['train_loss']:.3f}", f"{e['validation_loss']:.3f}", f"{e['test_loss']:.3f}")
        for e in evaluations
    ]
    return [
        Callout(f"After {last['step']:,} steps the test loss is {last['test_loss']:.3f} {compared}."),
        report.figure(
            drawn,
            "losses",
            "Loss against steps. Training: mean over the batches since the previous evaluation, with dropout. "
            f"Validation and test: full passes.{GRAY if is_causal_lm else ''}",
            f"The test loss falls to {last['test_loss']:.3f} {compared}.",
        ),
        Table("Losses in nats per token", ("step", "training", "validation", "test"), tuple(rows)),
    ]
