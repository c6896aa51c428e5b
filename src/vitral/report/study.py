"""The page of a study: Markdown, one HTML file, a table for programs (CSV), figures; and how it was run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from vitral.compare.side_by_side import TEMPERATURE, continued
from vitral.core.language import N_, _, in_language, number
from vitral.core.shown import Shown, Tabular
from vitral.core.text import NONE
from vitral.report.folder import ReportFolder
from vitral.report.html import page
from vitral.report.markdown import markdown
from vitral.report.notebook import written_page
from vitral.report.sections import (
    Callout,
    Columns,
    Details,
    Heading,
    Listing,
    Paragraph,
    Preformatted,
    Section,
)
from vitral.report.study_tables import (
    CLAIMS,
    LOSSES,
    arms_table,
    baselines_section,
    claim_row,
    claims_table,
    contrasts_section,
    results,
    runs_data,
    runs_table,
    tuning_data,
    tuning_section,
)
from vitral.report.study_views import (
    JudgedView,
    curve_figure,
    difference_figure,
    not_measured,
    probe_sections,
    probe_views,
)
from vitral.report.tables import Table, data_table
from vitral.studies.claims import Claim, Judged
from vitral.studies.losses import LossClaims, headline, loss_claims
from vitral.studies.plan import leaves
from vitral.studies.record import REPORT
from vitral.studies.resolution import is_causal_lm
from vitral.studies.results import ArmResult, StudyResult, load_last

PAIRED = N_(
    "Every arm was trained once from each seed. Arms of one seed saw the same batches in the same order where their "
    "texts and tokens are the same, and began from the same initial numbers wherever their shapes agree, so arms are "
    "compared seed by seed."
)
METHOD = N_(
    "Losses are of the test split at the last step; no result was selected. Contrasts of losses are one family, "
    "judged on the log scale: each arm has its own variance, each contrast its own degrees of freedom, and one "
    "simulated level gives both the p values and the intervals, so that an interval excludes zero exactly where p <"
    " 0.05. Arms are equivalent where the whole interval lies within the margin of {margin}% of the loss. An arm "
    "fails from a seed where its loss is not finite, or not below the bigram baseline although it sees more than "
    "one token; no mean contains such a run. Where runs failed, the ranks of all runs of both arms are compared, "
    "failed ones last, by the exact permutation test, with Bonferroni's correction for all contrasts of losses that "
    "the study has. Each probe is a further family, "
    "exploratory: paired t tests with Bonferroni's correction. Intervals of single means are 95% Student t "
    "intervals."
)
TUNED = N_(
    "The arms in contrasts of losses were tuned: each value was tried in runs from seeds that are not among the "
    "results, and the one of least mean validation loss is the arm's; of values within one standard error of it the "
    "base's is taken. Where two arms run with different values, their interval contains the uncertainty of that "
    "choice. Everything else is as in the base, unless an arm says so."
)
UNTUNED = N_("No arm was tuned here: all arms use the hyperparameters of the base; an arm that changes one says so.")
CHARACTERS, SAMPLE_SEED = 300, 1
"""Of the samples."""


def _sample(arm: ArmResult) -> str | None:
    """The text that an arm's first finished run writes after its last step, at temperature 0.8, 300 characters.

    An arm that finished from no seed, and a model that cannot continue a text or answers questions, has none.
    """
    finished = [run for run in arm.runs if run.seed in arm.losses]
    if not finished or not is_causal_lm(arm.config) or arm.config["corpus"].get("records"):
        return None
    # Every non-empty token decodes to at least one character, so CHARACTERS tokens suffice.
    return continued(load_last(finished[0], arm), "", CHARACTERS, SAMPLE_SEED)[:CHARACTERS]


def samples_section(result: StudyResult) -> list[Section]:
    """What each arm writes, side by side; nothing where no arm can."""
    texts = [Preformatted(text, arm.arm.title) for arm in result.arms if (text := _sample(arm)) is not None]
    if not texts:
        return []
    how = _(
        "{characters} characters from each arm's first finished seed after its last step, from an empty prompt at "
        "temperature {temperature:g}, sampling seed {seed}; the first sample, not cherry-picked.",
        characters=CHARACTERS,
        temperature=TEMPERATURE,
        seed=SAMPLE_SEED,
    )
    return [Heading(_("Samples")), Paragraph(how), Columns(tuple(texts))]


def how_it_was_run(result: StudyResult, command: str) -> list[Section]:
    """Method, seeds, text, configurations and machine."""
    seeds = ", ".join(map(str, result.seeds))
    source = result.corpus.get("source", result.base["corpus"]["source"])
    text = f"{source}, SHA-256 {result.corpus.get('sha256', NONE)}"
    ran = _("Seeds: {seeds}. Budget: {budget}. Text: {text}.", seeds=seeds, budget=result.budget or NONE, text=text)
    changes = tuple((arm.arm.title, _changes(arm)) for arm in result.arms)
    method = (
        _(PAIRED),
        _(TUNED if result.tuning else UNTUNED),
        _(METHOD, margin=number(100 * result.study.margin, ".3g")),
    )
    environment = json.dumps(dict(result.environment), indent=2, ensure_ascii=False)
    sections: list[Section] = [Heading(_("How it was run")), Paragraph(" ".join(method))]
    sections += [Preformatted(command, _("Command"))] if command else []
    return [
        *sections,
        Paragraph(ran),
        Table(_("What each arm changes in the configuration."), (_("arm"), _("changes")), changes, prose=(1,)),
        Details(_("Every run"), (runs_table(result),)),
        Details(
            _("Configuration of the base"), (Preformatted(tomli_w.dumps(dict(result.arms[0].config)), "config.toml"),)
        ),
        Details(_("Machine and versions"), (Preformatted(environment, "environment.json"),)),
    ]


def _changes(arm: ArmResult) -> str:
    """An arm's changes as assignments: `model.attention = "none"`."""
    parts = [f"{path} = {json.dumps(value)}" for path, value in leaves(arm.arm.changes)]
    if arm.arm.match == "parameters":
        model = arm.config["model"]
        key = "d_model" if model["feed_forward"] == "none" else "d_ff"
        text = _("model.{key} = {width} (chosen for as many parameters as the base)", key=key, width=model[key])
        parts.append(text)
    elif arm.arm.match == "flops":
        steps = arm.config["training"]["steps"]
        parts.append(_("training.steps = {steps} (chosen for as many FLOPs as the base)", steps=steps))
    return "; ".join(parts) or _("nothing: the base")


HTML, MARKDOWN, TABLE, RESULTS, FIGURES = "study.html", "study.md", "study.csv", "results.json", "figures"


SHOWN = [key for key in CLAIMS if key != "change"]
"""Columns of the comparisons for people: the numbers of an interval are apart."""


@dataclass(frozen=True, repr=False)
class StudyPage(Shown, Tabular):
    """The files of a study's report.

    Attributes:
        html: one self-contained page.
        markdown: the same for a repository; its figures lie beside it.
        table: one line for each run (CSV).
        results: everything as data (JSON).
        listed: the claims that the verdict lists as sentences.
        verdict: these sentences in English.
        shown: every comparison for people, losses first.
        data: every comparison as data in English.
    """

    html: Path
    markdown: Path
    table: Path
    results: Path
    listed: tuple[Judged, ...]
    verdict: tuple[str, ...]
    shown: Table
    data: Table

    def __str__(self) -> str:
        """The verdict in sentences, and the page."""
        return "\n".join([*(claim.text for claim in self.listed), _("report: {path}", path=self.html)])

    def plain(self) -> dict[str, Any]:
        """The files, every comparison with its interval, and the verdict in sentences."""
        files = {name: str(getattr(self, name)) for name in ("html", "markdown", "table", "results")}
        return {**files, "comparisons": self.records(), "verdict": list(self.verdict)}

    def records(self) -> list[dict[str, Any]]:
        """One row for each comparison, losses first; `table` is a file with one row for each run."""
        return self.data.plain()

    def page(self) -> str:
        """The page of the study, as it was written."""
        return written_page(self.html, self)


def write_report(result: StudyResult, *, command: str = "") -> StudyPage:
    """Write `report/study.html`, `study.md`, `results.json`, tables and `figures/` into the study's folder.

    The page is in the current language, data are in English.

    Args:
        result: the measured study.
        command: the command that ran the study, for the page; empty if there was none.

    Raises:
        StorageError: the disk did not take them.
        UsageError: a run's last checkpoint cannot be loaded for its sample.
    """
    with in_language("en"):
        english = result.translated
        losses, views = loss_claims(english), probe_views(english)
        families = _families(losses, views)
        data = results(english, families, headline(losses, _listed(views)), {view.name: view.view for view in views})
        rows = [claim_row(claim) for claim in _claims(families)]
        verdict = tuple(one.text for one in (*losses.all, *_listed(views)))
    result = result.translated
    losses, views = loss_claims(result), probe_views(result)
    report = ReportFolder(result.folder / REPORT, figures=FIGURES)
    sections = study_sections(result, losses, report, command=command, views=views)
    title, lead = result.study.title, result.study.question
    version = f"Vitral {result.environment.get('vitral') or ''}".strip()
    footer = _("Made by {vitral}, study {study}.", vitral=version, study=result.study.name)
    report.add(HTML, page(title, sections, lead=lead, footer=footer))
    report.add(MARKDOWN, markdown(title, sections, lead=lead, footer=footer))
    report.add(TABLE, runs_data(result).write("csv"))
    report.add_json(RESULTS, data)
    caption = _("Comparisons with their 95% intervals")
    shown = claims_table(caption, SHOWN, _claims(_families(losses, views)))
    compared = data_table(caption, rows)
    report.add_table("comparisons", shown, compared)
    if result.tuning:
        report.add("tuning.csv", tuning_data(result).write("csv"))
    report.write()
    html, text, table, facts = (result.folder / REPORT / name for name in (HTML, MARKDOWN, TABLE, RESULTS))
    return StudyPage(html, text, table, facts, (*losses.all, *_listed(views)), verdict, shown, compared)


def _families(losses: LossClaims, views: Sequence[JudgedView]) -> dict[str, tuple[Judged, ...]]:
    """Everything that was judged, the losses first."""
    return {LOSSES: losses.all, **{view.name: view.all for view in views}}


def _claims(families: Mapping[str, Sequence[Judged]]) -> list[Claim]:
    return [one for family in families.values() for one in family if isinstance(one, Claim)]


def _listed(views: Sequence[JudgedView]) -> list[Judged]:
    return [one for view in views for one in view.listed]


def study_sections(
    result: StudyResult,
    losses: LossClaims,
    report: ReportFolder,
    *,
    command: str = "",
    views: Sequence[JudgedView] = (),
) -> list[Section]:
    """The report's sections, for a page of its own or inside another.

    Args:
        result: the measured study.
        losses: the judged losses.
        report: receives the figures.
        command: the command that ran it; empty if there was none.
        views: of its probes.

    Raises:
        UsageError: a run's last checkpoint cannot be loaded for its sample.
    """
    result = result.translated
    return [
        *_question(result),
        *_verdict(losses, views),
        Heading(_("Arms")),
        *contrasts_section(losses),
        arms_table(result),
        *difference_figure(result, losses, report),
        *curve_figure(result, report),
        *tuning_section(result),
        *(section for view in views for section in probe_sections(view, report)),
        *not_measured(result),
        *baselines_section(result),
        *samples_section(result),
        *how_it_was_run(result, command),
    ]


def _question(result: StudyResult) -> list[Section]:
    study = result.study
    texts = ((_("Sources"), study.source), (_("Theory"), study.claim), (_("Design"), study.design))
    paragraphs = [Paragraph(f"{who}: {text}") for who, text in texts if text]
    return [Heading(_("The question")), *paragraphs] if paragraphs else []


def _verdict(losses: LossClaims, views: Sequence[JudgedView]) -> list[Section]:
    exploratory = _listed(views)
    top = headline(losses, exploratory)
    sections: list[Section] = [Heading(_("Verdict")), Callout(" ".join(one.text for one in top))]
    for title, claims in (("", losses.all), (_("Exploratory: results of the probes"), exploratory)):
        rest = tuple(one.text for one in claims if one not in top)
        if rest:
            sections += [Heading(title, 3)] if title else []
            sections.append(Listing(rest))
    return sections
