"""The page of a study: Markdown, one HTML file, a table for programs (CSV), figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.core.language import N_, _, in_language, language
from vitral.core.shown import Shown
from vitral.core.tables import Tabular
from vitral.report.folder import ReportFolder
from vitral.report.html import page
from vitral.report.markdown import markdown
from vitral.report.notebook import page_of, written_page
from vitral.report.sections import (
    Callout,
    Heading,
    Listing,
    Paragraph,
    Section,
)
from vitral.report.study_data import LOSSES, claim_row, results
from vitral.report.study_figures import study_figures
from vitral.report.study_method import how_it_was_run, samples_section
from vitral.report.study_tables import (
    arms_table,
    baselines_section,
    contrasts_section,
    runs_csv,
    tuning_data,
    tuning_section,
)
from vitral.report.study_views import JudgedView, not_measured, probe_sections, probe_views
from vitral.report.tables import Column, DataTable, as_text, decimals, whole
from vitral.studies.claims import Claim, Judged
from vitral.studies.losses import LossClaims, headline, loss_claims
from vitral.studies.record import REPORT
from vitral.studies.results import StudyResult

HTML, MARKDOWN, TABLE, RESULTS = "study.html", "study.md", "study.csv", "results.json"


DATA_ONLY = (
    "percent_low",
    "percent_high",
    "margin",
    "detectable",
    "failed",
    "rival_failed",
    "rival_seeds",
    "fisher_p",
    "family",
    "why",
    "arm",
    "rival",
)
"""Columns of the comparisons that only data have."""


@dataclass(frozen=True, repr=False)
class StudyPage(Shown, Tabular):
    """The files of a study's report.

    Attributes:
        html: one self-contained page.
        markdown: the same for a repository; its figures lie beside it.
        table: one line for each run (CSV).
        results: everything as data (JSON).
        claims: everything that was judged, losses first.
        listed: the claims that the verdict lists as sentences.
        in_english: `claims` with English labels, for programs.
    """

    html: Path
    markdown: Path
    table: Path
    results: Path
    claims: tuple[Judged, ...]
    listed: tuple[Judged, ...]
    in_english: tuple[Judged, ...]

    def __str__(self) -> str:
        """The verdict in sentences, and the page."""
        return "\n".join([*(claim.text for claim in self.listed), _("report: {path}", path=self.html)])

    def plain(self) -> dict[str, Any]:
        """The files, every comparison with its interval, and the verdict in sentences."""
        paths = {"html": self.html, "markdown": self.markdown, "table": self.table, "results": self.results}
        files = {name: str(path) for name, path in paths.items()}
        with in_language("en"):
            verdict = [
                each.text for claim, each in zip(self.claims, self.in_english, strict=True) if claim in self.listed
            ]
        return {**files, "comparisons": self.records(), "verdict": verdict}

    def comparisons(self, *, as_data: bool = False) -> DataTable:
        """Every comparison, in a form to be written: for people in the page's language, or as data in English."""
        columns = (
            Column("subject", N_("arm"), is_prose=True),
            Column("against", N_("compared with"), is_prose=True),
            Column("quantity", N_("quantity"), is_prose=True),
            Column("seeds", N_("seeds"), whole),
            Column("difference", N_("difference"), decimals(4, sign=True)),
            Column("low", N_("from"), decimals(4, sign=True)),
            Column("high", N_("to"), decimals(4, sign=True)),
            Column("percent", N_("difference in %"), decimals(1, sign=True)),
            Column("p", "p", decimals(4), is_name=True),
            Column("verdict", N_("verdict"), lambda verdict: as_text(verdict and _(verdict)), is_prose=True),
        )
        rows = self.records() if as_data else _rows(self.claims)
        columns += tuple(Column(key, key, is_name=True) for key in DATA_ONLY) if as_data else ()
        return DataTable(_("Comparisons with their 95% intervals"), columns, rows)

    def records(self) -> list[dict[str, Any]]:
        """One row for each comparison, losses first; `table` is a file with one row for each run."""
        with in_language("en"):
            return _rows(self.in_english)


def _rows(claims: Sequence[Judged]) -> list[dict[str, Any]]:
    return [claim_row(claim) for claim in claims if isinstance(claim, Claim)]


@page_of.register
def _study_page(shown: StudyPage) -> str:
    return written_page(shown.html, shown)


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
        english = _families(result, loss_claims(result), probe_views(result))
        told = result.told
        data = results(told, english, headline(loss_claims(told), _listed(probe_views(told))))
    result = result.told
    losses, views = loss_claims(result), probe_views(result)
    report = study_report(result)
    sections = study_sections(result, losses, report, command=command, views=views)
    title, lead = result.study.title, result.study.question
    version = f"Vitral {result.environment.get('vitral') or ''}".strip()
    footer = _("Made by {vitral}, study {study}.", vitral=version, study=result.study.name)
    shell = {"language": language(), "contents": _("Contents")}
    report.add(HTML, page(title, sections, lead=lead, footer=footer, **shell))
    report.add(MARKDOWN, markdown(title, sections, lead=lead, footer=footer))
    report.add(TABLE, runs_csv(result))
    report.add_json(RESULTS, data)
    html, text, table, facts = (result.folder / REPORT / name for name in (HTML, MARKDOWN, TABLE, RESULTS))
    judged, in_english = (
        tuple(one for family in families.values() for one in family)
        for families in (_families(result, losses, views), english)
    )
    shown = StudyPage(html, text, table, facts, judged, (*losses.all, *_listed(views)), in_english)
    report.add_table("comparisons", shown.comparisons(), shown.comparisons(as_data=True))
    if result.tuning:
        report.add("tuning.csv", tuning_data(result).csv())
    report.write()
    return shown


def _families(result: StudyResult, losses: LossClaims, views: Sequence[JudgedView]) -> dict[str, tuple[Judged, ...]]:
    """Everything that was judged, the losses first."""
    probes = {name: view.all for name, view in zip(result.study.probes, views, strict=True)}
    return {LOSSES: losses.all, **probes}


def _listed(views: Sequence[JudgedView]) -> list[Judged]:
    return [one for view in views for one in view.listed]


def study_report(result: StudyResult) -> ReportFolder:
    """The report folder inside the study's, to be filled."""
    return ReportFolder(result.folder / REPORT, figures="figures")


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
    result = result.told
    return [
        *_question(result),
        *_verdict(losses, views),
        Heading(_("Arms")),
        *contrasts_section(losses),
        arms_table(result),
        *study_figures(result, losses, report),
        *tuning_section(result),
        *(section for view in views for section in probe_sections(view, report)),
        *not_measured(result),
        *baselines_section(result),
        *samples_section(result),
        *how_it_was_run(result, command),
    ]


def _question(result: StudyResult) -> list[Section]:
    study = result.study
    told = ((_("Sources"), study.source), (_("Theory"), study.claim), (_("Design"), study.design))
    paragraphs = [Paragraph(f"{who}: {text}") for who, text in told if text]
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
