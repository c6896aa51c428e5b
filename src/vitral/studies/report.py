"""A study as something to read and to check: Markdown, one HTML file, a table for programs, figures."""

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from vitral.figures.html import page
from vitral.figures.markdown import markdown
from vitral.figures.sections import (
    Callout,
    Columns,
    Details,
    Heading,
    Listing,
    Paragraph,
    Preformatted,
    Section,
    Table,
)
from vitral.runs import RunFolder
from vitral.runs.files import replace_durably, storage
from vitral.studies.comparison import compare, rival_of
from vitral.studies.exhibits import exhibits, left_out, sections_of
from vitral.studies.figures import draw_figures, references
from vitral.studies.probes import Exhibit
from vitral.studies.results import ArmResult, RunResult, StudyResult
from vitral.studies.samples import CHARACTERS, SEED, TEMPERATURE, arm_samples
from vitral.studies.verdict import Finding, headline, verdict
from vitral.studies.wording import NONE, big, difference_text, interval_text, mean_text, nats, p_text

METHOD = (
    "Every arm was trained once from each seed. {batches} and began from the same initial numbers wherever their "
    "shapes agree, so arms are compared seed by seed. Intervals are 95% "
    "Student t intervals of the mean; p values are of the paired two-sided t test, corrected for the number of "
    "comparisons after Holm (1979). Losses are of the test part at the last step; nothing was chosen by looking at "
    "them. Learning rates and the like are the base's: no arm was tuned for itself unless its changes say so."
)
MOST_NAMED = 6
SAME_BATCHES = "Arms of one seed saw the same batches in the same order,"
OTHER_BATCHES = "Arms of one seed saw the same batches in the same order where their texts and tokens are the same,"
LINES = (
    "The n-gram lines are what counting achieves: Witten-Bell smoothed counts of the training part, scored on the test "
    "part. A model at the bigram line knows which token follows which; one between the trigram and the 4-gram has "
    "learned what two to three tokens before the next one tell."
)


@dataclass(frozen=True)
class Report:
    """What was written.

    Attributes:
        html: one self-contained page.
        markdown: the same for a repository; its figures lie beside it.
        table: one line for each run (CSV).
        findings: the verdict.
    """

    html: Path
    markdown: Path
    table: Path
    findings: tuple[Finding, ...]


def write_report(result: StudyResult, *, command: str = "") -> Report:
    """Write `report/study.html`, `study.md`, `study.csv` and `figures/` into the study's folder.

    Args:
        result: what was measured.
        command: the command that ran the study, to be shown; empty if there was none.

    Raises:
        StorageError: the disk did not take them.
        UsageError: a run's last checkpoint cannot be loaded for its sample.
    """
    folder = result.folder / "report"
    shown = exhibits(result)
    findings = (*verdict(result), *(finding for exhibit in shown for finding in exhibit.findings))
    sections = study_sections(result, findings, command=command, shown=shown)
    title, lead = result.study.title, result.study.question
    footer = f"Made by Vitral {result.environment.get('vitral') or ''}".strip() + f", study {result.study.name}."
    with storage(folder):
        folder.mkdir(parents=True, exist_ok=True)
    report = Report(folder / "study.html", folder / "study.md", folder / "study.csv", findings)
    replace_durably(report.html, page(title, sections, lead=lead, footer=footer).encode())
    replace_durably(report.markdown, markdown(title, sections, lead=lead, footer=footer).encode())
    replace_durably(report.table, _csv(result).encode())
    return report


def study_sections(
    result: StudyResult, findings: tuple[Finding, ...], *, command: str = "", shown: tuple[Exhibit, ...] = ()
) -> list[Section]:
    """The report's sections, for a page of its own or inside another; writes the figures into the study's folder.

    Args:
        result: what was measured.
        findings: the verdict, of its probes too.
        command: the command that ran it, or nothing.
        shown: what its probes have to show.

    Raises:
        StorageError: the disk did not take the figures.
        UsageError: a run's last checkpoint cannot be loaded for its sample.
    """
    report = result.folder / "report"
    return [
        *_asked(result),
        *_verdict(result, findings),
        Heading("Arms"),
        _arms_table(result),
        *draw_figures(result, report),
        *(section for exhibit in shown for section in sections_of(exhibit, report)),
        *left_out(result),
        *_lines(result),
        *_samples(result),
        *_how(result, command),
    ]


def _asked(result: StudyResult) -> list[Section]:
    """What the sources and theory say, and how it is asked here."""
    study = result.study
    told = (("The sources", study.source), ("Theory", study.claim), ("The design", study.design))
    paragraphs = [Paragraph(f"{who}: {text}") for who, text in told if text]
    return [Heading("What is asked"), *paragraphs] if paragraphs else []


def _verdict(result: StudyResult, findings: tuple[Finding, ...]) -> list[Section]:
    told = headline(findings)
    others = tuple(finding.text for finding in findings if finding not in told)
    listing = [Listing(others)] if others else []
    return [Heading("Verdict"), Callout(" ".join(finding.text for finding in told)), *listing]


def _arms_table(result: StudyResult) -> Table:
    rows, rivals = [], any(arm.arm.against is not None for arm in result.arms)
    for arm, comparison in zip(result.arms, compare(result), strict=True):
        rows.append(
            (
                arm.arm.title,
                f"{arm.num_parameters:,}",
                big(arm.flops_per_token * arm.num_tokens),
                f"{sum(run.seconds for run in arm.runs) / max(1, len(arm.runs)):.0f}",
                mean_text(comparison),
                interval_text(comparison.mean),
                difference_text(comparison.paired),
                *([rival_of(result, arm).arm.title if comparison.paired else NONE] if rivals else []),
                p_text(comparison.adjusted_p),
            )
        )
    columns = (
        "arm",
        "parameters",
        "training FLOPs",
        "seconds",
        "test loss",
        "95% interval",
        *(("paired difference", "to") if rivals else (f"paired difference to {result.arms[0].arm.title}",)),
        "Holm p",
    )
    num = len(result.seeds)
    others = [arm.arm.title for arm in result.arms if not arm.arm.compared]
    apart = ", ".join(others) if len(others) <= MOST_NAMED else f"{len(others)} arms"
    caption = (
        f"Means over {num} seed{'s' * (num > 1)}; losses in {result.study.unit}, seconds of training for each run."
        f"{f' Not compared with the base, being of another task or judged below: {apart}.' if apart else ''}"
    )
    return Table(caption, columns, tuple(rows))


def _lines(result: StudyResult) -> list[Section]:
    rows = [(reference.label, nats(reference.value)) for reference in references(result, result.lines)]
    floor = result.lines.test_bigram_entropy * result.arms[0].factor
    rows.append(("the test text's own bigram entropy", nats(floor)))
    return [
        Heading("What counting achieves"),
        Paragraph(LINES),
        Table(f"On the test part, in {result.study.unit}.", ("line", "loss"), tuple(rows)),
    ]


def _samples(result: StudyResult) -> list[Section]:
    texts = arm_samples(result)
    if not texts:
        return []
    titles = {arm.arm.name: arm.arm.title for arm in result.arms}
    how = (
        f"{CHARACTERS} characters from each arm's first finished seed after its last step, from an empty prompt at "
        f"temperature {TEMPERATURE}, sampling seed {SEED}; the first that came, not chosen."
    )
    columns = Columns(tuple(Preformatted(text, titles[name]) for name, text in texts.items()))
    return [Heading("Samples"), Paragraph(how), columns]


def _how(result: StudyResult, command: str) -> list[Section]:
    seeds = ", ".join(map(str, result.seeds))
    budget = f" Budget: {result.budget}." if result.budget else ""
    changes = tuple((arm.arm.title, _changes(arm)) for arm in result.arms)
    corpus = {key: value for key, value in result.corpus.items() if key != "ngrams"}
    sections: list[Section] = [Heading("How it was run"), Paragraph(_method(result))]
    sections += [Preformatted(command, "Command")] if command else []
    return [
        *sections,
        Paragraph(f"Seeds: {seeds}.{budget} Text: {_text(result)}."),
        *_other_texts(result),
        Table("What each arm changes in the configuration.", ("arm", "changes"), changes, prose=(1,)),
        Details("Every run", (_runs_table(result),)),
        Details("Configuration of the base", (Preformatted(tomli_w.dumps(dict(result.base)), "config.toml"),)),
        Details("Text", (Preformatted(_json(corpus), "corpus.json"),)),
        Details("Machine and versions", (Preformatted(_json(result.environment), "environment.json"),)),
    ]


def _method(result: StudyResult) -> str:
    return METHOD.format(batches=OTHER_BATCHES if result.study.varies_text else SAME_BATCHES)


def _other_texts(result: StudyResult) -> list[Section]:
    """What arms with another text or other tokens record of theirs."""
    rows = []
    for arm in result.arms:
        if arm.config["corpus"] == result.base["corpus"]:
            continue
        text = RunFolder.open(arm.runs[0].path).document("corpus")
        trained_on = json.dumps(text["trained_on"], ensure_ascii=False) if "trained_on" in text else NONE
        sizes = f"{text['split']['tokens']['train']:,}", f"{text['vocab_size']:,}"
        rows.append((arm.arm.title, text["tokenizer"], *sizes, trained_on, text["sha256"]))
    columns = ("arm", "tokenizer", "training tokens", "vocabulary", "trained on", "SHA-256 of the text")
    told = Table("Arms that have another text than the base, or other tokens.", columns, tuple(rows), prose=(1, 4, 5))
    return [Details("Texts of the arms", (told,))] if rows else []


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(dict(document), indent=2, ensure_ascii=False)


def _text(result: StudyResult) -> str:
    """Which text, as exactly as its record says."""
    source = result.corpus.get("source", result.base["corpus"]["source"])
    return f"{source}, SHA-256 {result.corpus.get('sha256', NONE)}"


def _changes(arm: ArmResult) -> str:
    """An arm's changes as assignments: `model.attention = "none"`."""
    parts = [f"{path} = {json.dumps(value)}" for path, value in _leaves(arm.arm.changes)]
    if arm.arm.match == "parameters":
        parts.append(f"model.d_ff = {arm.config['model']['d_ff']} (chosen for as many parameters as the base)")
    elif arm.arm.match == "flops":
        parts.append(f"training.steps = {arm.config['training']['steps']} (chosen for as many FLOPs as the base)")
    return "; ".join(parts) or "nothing: the base"


def _leaves(table: dict, path: str = "") -> list[tuple[str, object]]:
    leaves: list[tuple[str, object]] = []
    for key, value in table.items():
        leaves += _leaves(value, f"{path}{key}.") if isinstance(value, dict) else [(f"{path}{key}", value)]
    return leaves


def _runs_table(result: StudyResult) -> Table:
    columns = ("arm", "seed", "train loss", "validation loss", "test loss", "seconds", "stopped")
    rows = [
        (arm.arm.title, str(run.seed), *map(_loss, _losses(run)), f"{run.seconds:.1f}", run.stopped or NONE)
        for arm in result.arms
        for run in arm.runs
    ]
    caption = "Losses in nats per token; train loss is the mean over the last batches, with dropout where there is any."
    return Table(caption, columns, tuple(rows), prose=(6,))


def _losses(run: RunResult) -> tuple[float | None, float | None, float | None]:
    return run.train_loss, run.validation_loss, run.test_loss


def _loss(value: float | None) -> str:
    return NONE if value is None else f"{value:.4f}"


def _csv(result: StudyResult) -> str:
    """One line for each run, losses at full precision, empty where there is none."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    names = ["train_loss", "validation_loss", "test_loss"]
    writer.writerow(["arm", "seed", "parameters", "steps", "flops", "seconds", *names, "compared_loss", "stopped"])
    for arm in result.arms:
        steps = arm.config["training"]["steps"]
        for run in arm.runs:
            losses = ["" if loss is None else repr(loss) for loss in _losses(run)]
            compared = repr(arm.losses[run.seed]) if run.seed in arm.losses else ""
            size = [arm.num_parameters, steps, arm.flops_per_token * arm.num_tokens, f"{run.seconds:.3f}"]
            writer.writerow([arm.arm.name, run.seed, *size, *losses, compared, run.stopped or ""])
    return buffer.getvalue()
