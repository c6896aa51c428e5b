"""The page of the demonstration: the text that the model wrote, and how it came to be: data, model, training, study."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitral.core.guarded import GuardedFolder
from vitral.evaluation.copying import COPIED_WORDS
from vitral.explanation import Walkthrough, to_sections
from vitral.figures.html import page
from vitral.figures.maps import attention_maps
from vitral.figures.sections import (
    Callout,
    Columns,
    Details,
    Figure,
    Heading,
    Listing,
    Paragraph,
    Preformatted,
    Section,
)
from vitral.reports.folder import ReportFolder
from vitral.reports.model import ModelCount, parameter_section
from vitral.reports.run import loss_sections
from vitral.reports.study import study_report, study_sections
from vitral.reports.text import Survey, survey_sections
from vitral.runs import SealedRun, enter
from vitral.runs.loading import warn_on_stderr
from vitral.studies import StudyResult, loss_claims
from vitral.studies.losses import AgainstCounts, LossClaims

PAGE, FIGURES = "report.html", "figures"


@dataclass(frozen=True)
class WrittenText:
    """A text that the model wrote.

    Attributes:
        text: the characters.
        step: of the checkpoint.
        temperature: of sampling.
        copied: begin and end of each passage that stands in the training text (`vitral.evaluation.copied_spans`).
    """

    text: str
    step: int
    temperature: float
    copied: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class DemonstrationResult:
    """The contents of the page.

    Attributes:
        survey: of the text.
        count: of the model.
        run: the folder of the run that is shown.
        sample: written by its best checkpoint.
        sentence: the text the model reads.
        labels: its tokens.
        weights: attention weights of the last block over the sentence, [heads, time, source].
        walkthrough: one attention computation.
        study: the model compared with the same without attention.
        verdict: the model beside counted n-grams.
    """

    survey: Survey
    count: ModelCount
    run: Path
    sample: WrittenText
    sentence: str
    labels: Sequence[str]
    weights: np.ndarray
    walkthrough: Walkthrough
    study: StudyResult
    verdict: AgainstCounts


def write_demonstration(result: DemonstrationResult, out: Path) -> Path:
    """Write `report.html` and its figures into the folder `out`, and return the path of the page.

    Raises:
        StorageError: writing to disk failed.
    """
    report = ReportFolder(GuardedFolder(out), figures=FIGURES)
    of_run = ReportFolder(GuardedFolder(out).within(f"{result.run.relative_to(out).as_posix()}/report"))
    of_study = study_report(result.study)
    model = result.count.config
    claims = loss_claims(result.study)
    run = enter(result.run, warn_on_stderr)
    sections: list[Section] = [
        Heading("The text it wrote"),
        *_written(result),
        *_results(result, claims),
        Heading("Learning"),
        *_on_the_way(run),
        *_drawings_first(loss_sections(run, result.study.baselines, of_run), "The losses in numbers"),
        Heading("The same model without attention"),
        *_drawings_first(study_sections(result.study, claims, of_study), "The whole study: arms, intervals, method"),
        Heading("One attention computation in numbers"),
        *_attention(result, report),
        *to_sections(result.walkthrough),
        Heading("The model and the text"),
        Paragraph(
            f"{result.count.cost.parameters:,} parameters: {model.num_layers} blocks of attention with "
            f"{model.num_heads} heads and a feed-forward layer, around a residual stream of width {model.d_model}. "
            f"The context is {model.context_length} characters."
        ),
        Details("The parameter table", (parameter_section(result.count.rows),)),
        Details("The text in numbers", tuple(survey_sections(result.survey, report))),
    ]
    lead = "A small language model, trained from scratch on the bundled play and examined step by step."
    html = page("Vitral: a demonstration", sections, lead=lead, footer="Made by vitral demo.")
    report.add(PAGE, html)
    for one in (of_run, of_study, report):
        one.write()
    return out / PAGE


def _written(result: DemonstrationResult) -> list[Section]:
    sample, caption = result.sample, "the checkpoint with the lowest validation loss"
    copies = (
        f"Underlined: {COPIED_WORDS} or more words in a row that stand in the training text."
        if sample.copied
        else f"No {COPIED_WORDS} words in a row of it stand in the training text."
    )
    return [
        Preformatted(sample.text, f"After step {sample.step:,}, {caption}", sample.copied),
        Paragraph(
            f"{len(sample.text):,} characters from an empty prompt at temperature {sample.temperature}: the first "
            f"sample, not the best of several. {copies} The model learned spelling, words and layout from the training "
            "text alone, one character at a time."
        ),
    ]


def _results(result: DemonstrationResult, claims: LossClaims) -> list[Section]:
    return [Callout(result.verdict.text), Listing(tuple(claim.text for claim in claims.contrasts))]


def _on_the_way(run: SealedRun) -> list[Section]:
    """The first sample while training, and one half-way."""
    samples = list({event["step"]: event for event in run.folder.metrics("sample")}.values())
    shown = samples[:1] + samples[(len(samples) - 1) // 2 : -1][: len(samples) > 3]
    return [
        Columns(
            tuple(
                Preformatted(event["text"], f"After step {event['step']:,}", tuple(map(tuple, event.get("copied", ()))))
                for event in shown
            )
        )
    ]


def _drawings_first(sections: Sequence[Section], rest: str) -> list[Section]:
    """Figures and samples; then the other sections, folded under a summary."""
    shown = [section for section in sections if isinstance(section, Figure | Columns)]
    folded = [_one_level_down(section) for section in sections if not isinstance(section, Figure | Columns)]
    return [*shown, Details(rest, tuple(folded))]


def _attention(result: DemonstrationResult, report: ReportFolder) -> list[Section]:
    last = result.count.config.num_layers - 1
    title = f"Attention weights of block {last}, every head"
    drawn = attention_maps(result.weights, result.labels, title=title)
    caption = (
        f"Rows are query positions, columns are key positions of {result.sentence!r}. Each row adds up to one. "
        "Weights right of the diagonal are zero, because no position attends to a later one. "
        "The numbers below are those of block 0."
    )
    alt = f"Attention weights of {len(result.weights)} heads over {len(result.labels)} characters, lower triangular."
    return [report.figure(drawn, "attention", caption, alt)]


def _one_level_down(section: Section) -> Section:
    return Heading(section.text, min(section.level + 1, 4)) if isinstance(section, Heading) else section
