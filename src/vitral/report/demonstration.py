"""The page of the demonstration: the text that the model wrote, and how it came to be: data, model, training, study."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vitral.core.language import N_, _
from vitral.explanation import Walkthrough
from vitral.report.folder import ReportFolder
from vitral.report.html import page
from vitral.report.maps import attention_maps
from vitral.report.model import ModelCount, parameter_section
from vitral.report.run import copied_text, loss_sections, sample
from vitral.report.sections import (
    Callout,
    Columns,
    Details,
    Figure,
    Heading,
    Listing,
    Paragraph,
    Section,
)
from vitral.report.study import FIGURES, study_sections
from vitral.report.survey import Survey, survey_sections
from vitral.report.walkthrough import to_sections
from vitral.runs import SealedRun, enter
from vitral.runs.loading import warn_on_stderr
from vitral.studies import StudyResult, loss_claims
from vitral.studies.record import REPORT

PAGE = "report.html"
MODEL = "model.html"
"""The page that carries the model."""


@dataclass(frozen=True)
class DemonstrationResult:
    """The contents of the page.

    Attributes:
        survey: of the text.
        count: of the model.
        run: the folder of the run that is shown.
        sample: a text by its best checkpoint: "text", "step", "temperature", and "copied", as the event of a run.
        sentence: the text the model reads.
        labels: its tokens.
        weights: attention weights of the last block over the sentence, [heads, time, source].
        walkthrough: one attention computation.
        study: the model compared with the same without attention.
    """

    survey: Survey
    count: ModelCount
    run: Path
    sample: Mapping[str, Any]
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
    report = ReportFolder(out, figures=FIGURES)
    of_run = ReportFolder(result.run / "report")
    of_study = ReportFolder(result.study.folder / REPORT, figures=FIGURES)
    model = result.count.config
    claims = loss_claims(result.study)
    run = enter(result.run, warn_on_stderr)
    own = Paragraph(_("Write a sentence of your own, and see what the model makes of it."), MODEL)
    sections: list[Section] = [
        Heading(_("The text it wrote")),
        *_written(result),
        *([own] if (out / MODEL).is_file() else []),
        Callout(claims.rank.text),
        Listing(tuple(claim.text for claim in claims.contrasts)),
        Heading(_("Learning")),
        *_on_the_way(run),
        *_drawings_first(loss_sections(run, result.study.baselines, of_run), _("The losses in numbers")),
        Heading(_("The same model without attention")),
        *_drawings_first(study_sections(result.study, claims, of_study), _("The whole study: arms, intervals, method")),
        Heading(_("One attention computation in numbers")),
        *_attention(result, report),
        *to_sections(result.walkthrough),
        Heading(_("The model and the text")),
        Paragraph(
            _(
                "{parameters:,} parameters: {layers} blocks of attention with {heads} heads and a feed-forward "
                "layer, around a residual stream of width {width}. The context is {context} characters.",
                parameters=result.count.cost.parameters,
                layers=model.num_layers,
                heads=model.num_heads,
                width=model.d_model,
                context=model.context_length,
            )
        ),
        Details(_("The parameter table"), (parameter_section(result.count.rows),)),
        Details(_("The text in numbers"), tuple(survey_sections(result.survey))),
    ]
    lead = _("A small language model, trained from scratch on the bundled play and examined step by step.")
    html = page(_("Vitral: a demonstration"), sections, lead=lead, footer=_("Made by vitral demo."))
    report.add(PAGE, html)
    for one in (of_run, of_study, report):
        one.write()
    return out / PAGE


def _written(result: DemonstrationResult) -> list[Section]:
    how = _(
        "{characters:,} characters from an empty prompt at temperature {temperature}: the first sample, not the best "
        "of several. {copies} The model learned spelling, words and layout from the training text alone, one character "
        "at a time.",
        characters=len(result.sample["text"]),
        temperature=result.sample["temperature"],
        copies=copied_text([result.sample]),
    )
    title = N_("After step {step:,}, the checkpoint with the lowest validation loss")
    return [sample(result.sample, title), Paragraph(how)]


def _on_the_way(run: SealedRun) -> list[Section]:
    """The first sample while training, and one half-way."""
    samples = list({event["step"]: event for event in run.metrics("sample")}.values())
    shown = samples[:1] + samples[(len(samples) - 1) // 2 : -1][: len(samples) > 3]
    return [Columns(tuple(sample(event) for event in shown))]


def _drawings_first(sections: Sequence[Section], rest: str) -> list[Section]:
    """Figures and samples; then the other sections, folded under a summary, their headings a level lower."""
    shown = [section for section in sections if isinstance(section, Figure | Columns)]
    folded = [
        replace(section, level=min(section.level + 1, 4)) if isinstance(section, Heading) else section
        for section in sections
        if section not in shown
    ]
    return [*shown, Details(rest, tuple(folded))]


def _attention(result: DemonstrationResult, report: ReportFolder) -> list[Section]:
    last = result.count.config.num_layers - 1
    title = _("Attention weights of block {block}, every head", block=last)
    drawn = attention_maps(result.weights, result.labels, title=title)
    caption = _(
        "Rows are query positions, columns are key positions of {sentence!r}. Each row adds up to one. Weights "
        "right of the diagonal are zero, because no position attends to a later one. The numbers below are "
        "those of block 0.",
        sentence=result.sentence,
    )
    alt = _(
        "Attention weights of {heads} heads over {characters} characters, lower triangular.",
        heads=len(result.weights),
        characters=len(result.labels),
    )
    return [report.figure(drawn, "attention", caption, alt)]
