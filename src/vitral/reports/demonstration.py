"""The page of the demonstration: a text, a model, its training, one attention computation, and a study."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitral.core.guarded import GuardedFolder
from vitral.explain import Walkthrough, to_sections
from vitral.figures.html import page
from vitral.figures.maps import attention_maps
from vitral.figures.sections import Details, Heading, Paragraph, Section
from vitral.reports.folder import ReportFolder
from vitral.reports.model import ModelCount, parameter_section
from vitral.reports.run import loss_sections
from vitral.reports.study import study_report, study_sections
from vitral.reports.text import Survey, survey_sections
from vitral.runs import enter
from vitral.runs.loading import warn_on_stderr
from vitral.studies import StudyResult, loss_claims

PAGE, FIGURES = "report.html", "figures"


@dataclass(frozen=True)
class DemonstrationResult:
    """The contents of the page.

    Attributes:
        survey: of the text.
        count: of the model.
        run: the folder of the run that is shown.
        sentence: the text the model reads.
        labels: its tokens.
        weights: attention weights of the last block over the sentence, [heads, time, source].
        walkthrough: one attention computation.
        study: the model compared with the same without attention.
    """

    survey: Survey
    count: ModelCount
    run: Path
    sentence: str
    labels: Sequence[str]
    weights: np.ndarray
    walkthrough: Walkthrough
    study: StudyResult


def write_demonstration(result: DemonstrationResult, out: Path) -> Path:
    """Write `report.html` and its figures into the folder `out`, and return the path of the page.

    Raises:
        StorageError: writing to disk failed.
    """
    report = ReportFolder(GuardedFolder(out), figures=FIGURES)
    of_run = ReportFolder(GuardedFolder(out).within(f"{result.run.relative_to(out).as_posix()}/report"))
    of_study = study_report(result.study)
    model = result.count.config
    sections: list[Section] = [
        Heading("The text"),
        *survey_sections(result.survey, report),
        Heading("The model"),
        Paragraph(
            f"{result.count.cost.parameters:,} parameters: {model.num_layers} blocks of attention with "
            f"{model.num_heads} heads and a feed-forward layer, around a residual stream of width {model.d_model}. "
            f"The context is {model.context_length} characters."
        ),
        Details("The parameter table", (parameter_section(result.count.rows),)),
        Heading("Training"),
        *loss_sections(enter(result.run, warn_on_stderr), result.study.baselines, of_run),
        Heading("One attention computation in numbers"),
        *_attention(result, report),
        *to_sections(result.walkthrough),
        Heading("The same model without attention"),
        *map(_one_level_down, study_sections(result.study, loss_claims(result.study), of_study)),
    ]
    lead = "A small language model, trained from scratch on the bundled play and examined step by step."
    html = page("Vitral: a demonstration", sections, lead=lead, footer="Made by vitral demo.")
    report.add(PAGE, html)
    for one in (of_run, of_study, report):
        one.write()
    return out / PAGE


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
