"""The views of a study's probes: each with its family of comparisons, judged, as sections of the study's page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vitral.core.language import N_, _
from vitral.figures.forest import ForestRow, forest_plot
from vitral.figures.sections import Details, Heading, Listing, Section, Table
from vitral.figures.text import p_text, signed
from vitral.reports.folder import ReportFolder
from vitral.reports.study_figures import added
from vitral.studies.claims import Claim, Judged, Note, Quantity, digits_for
from vitral.studies.judging import judge
from vitral.studies.losses import difference_text
from vitral.studies.probe import ArmMeasures, Plot, View
from vitral.studies.probes import probe_named
from vitral.studies.results import StudyResult

MOST_SENTENCES = 8
"""Decided comparisons of a probe that the verdict says as sentences."""
LEAST_ROWS, MOST_FORESTS = 3, 3
"""Comparisons of one quantity that make a figure, and figures of one probe; the table has all comparisons."""
MOST_DOTS = 12
"""Of a row: the difference of each seed or prompt."""
PAIRED = N_(
    "Paired differences to the one above each group. The line is the simultaneous 95% interval, for the {n} "
    "comparisons of this probe together; small dots are the single differences. A triangle that points down is lower, "
    "one that points up higher, an empty circle undecided; an arrow at the edge is a difference beyond the axis."
)


@dataclass(frozen=True)
class JudgedView:
    """A probe's view with its family of comparisons, judged.

    Attributes:
        view: of the probe.
        claims: one for each of the view's comparisons.
        name: of the probe.
    """

    view: View
    claims: tuple[Claim, ...]
    name: str = ""

    @property
    def all(self) -> tuple[Judged, ...]:
        """Checks, claims and notes."""
        return (*self.view.checks, *self.claims, *self.view.notes)

    @property
    def listed(self) -> tuple[Judged, ...]:
        """The claims that the verdict lists as sentences.

        The table has undecided comparisons, and the decided ones beyond the MOST_SENTENCES of least p value.
        """
        decided = [claim for claim in self.claims if claim.shown]
        first = sorted(decided, key=lambda claim: claim.p or 0.0)[:MOST_SENTENCES]
        rest = len(decided) - len(first)
        more = [Note(_("{n} more decided comparisons of the same family are in its table.", n=rest))] if rest else []
        return (*self.view.checks, *(claim for claim in self.claims if claim in first), *more, *self.view.notes)


def probe_views(result: StudyResult) -> tuple[JudgedView, ...]:
    """One judged view for each probe of the study, in the design's order, from the measured data alone."""
    views, result = [], result.told
    for name in result.study.probes:
        probe, found = probe_named(name), result.measured.get(name)
        if probe.of_runs:
            arms = [
                ArmMeasures(arm.arm.name, arm.arm.title, arm.config, dict(sorted(found[arm.arm.name].items())))
                for arm in result.arms
                if found and found.get(arm.arm.name)
            ]
            views.append(probe.view(result, arms) if arms else View())
        else:
            views.append(View() if found is None else probe.view(result, found))
    named = zip(views, result.study.probes, strict=True)
    return tuple(JudgedView(view, judge(view.comparisons), name) for view, name in named)


def claims_table(claims: Sequence[Claim]) -> Table:
    """Every comparison of one family, decided or not."""
    rows = tuple(
        (
            claim.comparison.subject,
            claim.comparison.against,
            claim.comparison.quantity.label,
            difference_text(claim, percent=False),
            p_text(claim.p),
            _(claim.verdict) if not claim.why else _("no verdict: {why}", why=claim.why),
        )
        for claim in claims
    )
    family = max((claim.family for claim in claims), default=0)
    caption = _(
        "Paired t tests, p values and 95% intervals corrected together for {n} comparisons (Bonferroni).", n=family
    )
    columns = (_("subject"), _("against"), _("quantity"), _("difference (95% CI)"), "p", _("verdict"))
    return Table(caption, columns, rows, prose=(1, 2, 5))


def paired_forests(judged: JudgedView) -> tuple[Plot, ...]:
    """For each quantity of enough tested comparisons their differences with simultaneous intervals, in order."""
    by_quantity: dict[Quantity, list[Claim]] = {}
    for claim in judged.claims:
        if claim.p is not None and math.isfinite(claim.difference):
            by_quantity.setdefault(claim.comparison.quantity, []).append(claim)
    drawn = [(quantity, claims) for quantity, claims in by_quantity.items() if len(claims) >= LEAST_ROWS]
    return tuple(
        _paired_forest(f"{judged.name}-differences{f'-{number}' if number > 1 else ''}", quantity, claims)
        for number, (quantity, claims) in enumerate(drawn[:MOST_FORESTS], start=1)
    )


def _paired_forest(name: str, quantity: Quantity, claims: Sequence[Claim]) -> Plot:
    rows = []
    for claim in claims:
        one, dots = claim.comparison, claim.comparison.differences
        dots = dots if len(dots) <= MOST_DOTS else []
        # Better may be higher or lower: the marker says the side, the text at the right the verdict.
        side = "undecided" if not claim.shown else "higher" if claim.difference > 0 else "lower"
        told = _(claim.verdict)
        rows.append(ForestRow(one.subject, one.against, claim.difference, claim.low, claim.high, dots, side, told))
    least = quantity.digits
    digits = min(least + 2, digits_for((claim.difference for claim in claims), least))
    title = _("Difference of: {quantity}", quantity=quantity.told)
    figure = forest_plot(rows, x_label=_("difference: {quantity}", quantity=quantity.label), title=title, digits=digits)
    largest = max(claims, key=lambda claim: abs(claim.difference))
    alt = _(
        "{quantity}: {decided} of {n} differences are decided; the largest is that of {arm}, {difference}.",
        quantity=quantity.label,
        decided=sum(bool(claim.shown) for claim in claims),
        n=len(claims),
        arm=largest.comparison.subject,
        difference=signed(largest.difference, digits),
    )
    return Plot(figure, name, _(PAIRED, n=claims[0].family), alt)


def probe_sections(judged: JudgedView, report: ReportFolder) -> list[Section]:
    """A view as sections of a page, its figures added to the report."""
    sections = [added(one, report) if isinstance(one, Plot) else one for one in judged.view.pieces]
    sections += [added(plot, report) for plot in paired_forests(judged)]
    if judged.claims:
        table = claims_table(judged.claims)
        sections.append(Details(_("Every comparison of this probe ({n})", n=len(table.rows)), (table,)))
    return sections


def not_measured(result: StudyResult) -> list[Section]:
    """Why measurements are missing; nothing where none is."""
    reasons = tuple(
        f"{name}: {f'{result.arm(arm).arm.title}: ' if arm else ''}{_(why)}."
        for name in result.study.probes
        for arm, why in result.unmeasured.get(name, ())
    )
    return [Heading(_("Not measured")), Listing(reasons)] if reasons else []
