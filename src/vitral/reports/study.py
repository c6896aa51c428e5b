"""The page of a study: Markdown, one HTML file, a table for programs (CSV), figures."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from vitral.core.checked import checked
from vitral.core.guarded import GuardedFolder
from vitral.core.language import N_, _, in_language, language, ngettext, number, retold
from vitral.core.tables import Tabular
from vitral.decoding import Sampling, generate
from vitral.figures.html import page
from vitral.figures.markdown import markdown
from vitral.figures.notebook import Shown, page_of, written_page
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
from vitral.figures.tables import Column, DataTable, as_text, decimals, whole
from vitral.figures.text import NONE, big, nats, p_text, unbroken
from vitral.reports.folder import ReportFolder
from vitral.reports.study_figures import added, references, study_figures
from vitral.runs import RunFolder
from vitral.studies.claims import Claim, Interval, Judged, Note, judge
from vitral.studies.losses import LossClaims, baseline_arm, difference_text, headline, loss_claims, mean_loss
from vitral.studies.probe import ArmMeasures, Plot, RunProbe, View, is_causal_lm
from vitral.studies.probes import probe_named
from vitral.studies.record import REPORT
from vitral.studies.results import ArmResult, RunResult, StudyResult, load_last

PAIRED = N_(
    "Every arm was trained once from each seed. Arms of one seed saw the same batches in the same order, and began "
    "from the same initial numbers wherever their shapes agree, so arms are compared seed by seed."
)
PAIRED_TEXTS = N_(
    "Every arm was trained once from each seed. Arms of one seed saw the same batches in the same order where their "
    "texts and tokens are the same, and began from the same initial numbers wherever their shapes agree, so arms are "
    "compared seed by seed."
)
METHOD = N_(
    "Losses are of the test split at the last step; no result was selected. All arms use the hyperparameters of the "
    "base; an arm that changes one says so. Contrasts of losses are one family: paired two-sided t tests with "
    "Bonferroni's correction of both the p value and the interval, so that an interval excludes zero exactly where p "
    "< 0.05. Each probe is a further family, corrected in the same way and exploratory. Intervals of single means "
    "are 95% Student t intervals. A contrast that is undecided is compatible with every difference in its interval."
)
HTML, MARKDOWN, TABLE = "study.html", "study.md", "study.csv"
MOST_NAMED = 6
MOST_SENTENCES = 8
BASELINES = N_(
    "The n-gram baselines are Witten-Bell smoothed counts of the training split, scored on the test split. A model at "
    "the bigram baseline knows which token follows which; one between the trigram and the 4-gram baseline has learned "
    "what two to three preceding tokens predict."
)
CHARACTERS, TEMPERATURE, SAMPLE_SEED, MOST_SAMPLES = 300, 0.8, 1, 16
"""Of the samples; of more than MOST_SAMPLES arms only the compared ones have one."""


@dataclass(frozen=True)
class JudgedView:
    """A probe's view with its family of comparisons, judged.

    Attributes:
        view: of the probe.
        claims: one for each of the view's comparisons.
    """

    view: View
    claims: tuple[Claim, ...]

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


@checked(first=True)
@dataclass(frozen=True, repr=False)
class StudyPage(Shown, Tabular):
    """The files of a study's report.

    Attributes:
        html: one self-contained page.
        markdown: the same for a repository; its figures lie beside it.
        table: one line for each run (CSV).
        claims: everything that was judged, losses first.
        listed: the claims that the verdict lists as sentences.
        in_english: `claims` with English labels, for programs.
    """

    html: Path
    markdown: Path
    table: Path
    claims: tuple[Judged, ...]
    listed: tuple[Judged, ...]
    in_english: tuple[Judged, ...]

    def __str__(self) -> str:
        """The verdict in sentences, and the page."""
        return "\n".join([*(claim.text for claim in self.listed), _("report: {path}", path=self.html)])

    def plain(self) -> dict[str, Any]:
        """The files, every comparison with its interval, and the verdict in sentences."""
        files = {"html": str(self.html), "markdown": str(self.markdown), "table": str(self.table)}
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
            Column("p", "p", decimals(4), is_name=True),
            Column("verdict", N_("verdict"), lambda verdict: as_text(verdict and _(verdict)), is_prose=True),
        )
        rows = self.records() if as_data else _rows(self.claims)
        return DataTable(_("Comparisons with their 95% intervals"), columns, rows)

    def records(self) -> list[dict[str, Any]]:
        """One row for each comparison, losses first; `table` is a file with one row for each run."""
        with in_language("en"):
            return _rows(self.in_english)


def _rows(claims: Sequence[Judged]) -> list[dict[str, Any]]:
    return [
        {
            "subject": claim.comparison.subject,
            "against": claim.comparison.against,
            "quantity": claim.comparison.quantity.label,
            "seeds": claim.seeds,
            "difference": claim.difference if math.isfinite(claim.difference) else None,
            "low": claim.low,
            "high": claim.high,
            "p": claim.p,
            "family": claim.family,
            "verdict": claim.verdict if not claim.why else None,
            "why": claim.why or None,
        }
        for claim in claims
        if isinstance(claim, Claim)
    ]


@page_of.register
def _study_page(shown: StudyPage) -> str:
    return written_page(shown.html, shown)


@checked(first=True)
def write_report(result: StudyResult, *, command: str = "") -> StudyPage:
    """Write `report/study.html`, `study.md`, tables and `figures/` into the study's folder.

    The page is in the current language, the table for programs in none.

    Args:
        result: the measured study.
        command: the command that ran the study, for the page; empty if there was none.

    Raises:
        StorageError: the disk did not take them.
        UsageError: a run's last checkpoint cannot be loaded for its sample.
    """
    with in_language("en"):
        in_english = _judged(loss_claims(result), probe_views(result))
    result = result.told
    losses, views = loss_claims(result), probe_views(result)
    report = study_report(result)
    sections = study_sections(result, losses, report, command=command, views=views)
    title, lead = result.study.title, result.study.question
    version = f"Vitral {result.environment.get('vitral') or ''}".strip()
    footer = _("Made by {vitral}, study {study}.", vitral=version, study=result.study.name)
    told = {"language": language(), "contents": _("Contents")}
    report.add(HTML, page(title, sections, lead=lead, footer=footer, **told))
    report.add(MARKDOWN, markdown(title, sections, lead=lead, footer=footer))
    report.add(TABLE, _csv(result))
    sentences = (*losses.all, *(one for view in views for one in view.listed))
    html, text, table = (result.folder / REPORT / name for name in (HTML, MARKDOWN, TABLE))
    shown = StudyPage(html, text, table, _judged(losses, views), sentences, in_english)
    report.add_table("comparisons", shown.comparisons(), shown.comparisons(as_data=True))
    report.write()
    return shown


def _judged(losses: LossClaims, views: Sequence[JudgedView]) -> tuple[Judged, ...]:
    return (*losses.all, *(one for view in views for one in view.all))


def study_report(result: StudyResult) -> ReportFolder:
    """The report folder inside the study's, to be filled."""
    return ReportFolder(GuardedFolder(result.folder).within(REPORT), figures="figures")


def probe_views(result: StudyResult) -> tuple[JudgedView, ...]:
    """One judged view for each probe of the study, in the design's order, from the measured data alone."""
    views, result = [], result.told
    for name in result.study.probes:
        probe, found = probe_named(name), result.measured.get(name)
        if isinstance(probe, RunProbe):
            arms = [
                ArmMeasures(arm.arm.name, arm.arm.title, arm.config, dict(sorted(found[arm.arm.name].items())))
                for arm in result.arms
                if found and found.get(arm.arm.name)
            ]
            views.append(probe.view(result, arms) if arms else View())
        else:
            views.append(View() if found is None else probe.view(result, found))
    return tuple(JudgedView(view, judge(view.comparisons)) for view in views)


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
        _arms_table(result, losses),
        *study_figures(result, report),
        *(section for view in views for section in _probe_sections(view, report)),
        *_not_measured(result),
        *_baselines(result),
        *_samples(result),
        *_how(result, command),
    ]


def _question(result: StudyResult) -> list[Section]:
    study = result.study
    told = ((_("Sources"), study.source), (_("Theory"), study.claim), (_("Design"), study.design))
    paragraphs = [Paragraph(f"{who}: {text}") for who, text in told if text]
    return [Heading(_("The question")), *paragraphs] if paragraphs else []


def _verdict(losses: LossClaims, views: Sequence[JudgedView]) -> list[Section]:
    exploratory = [one for view in views for one in view.listed]
    top = headline(losses, exploratory)
    sections: list[Section] = [Heading(_("Verdict")), Callout(" ".join(one.text for one in top))]
    for title, claims in (("", losses.all), (_("Exploratory: results of the probes"), exploratory)):
        rest = tuple(one.text for one in claims if one not in top)
        if rest:
            sections += [Heading(title, 3)] if title else []
            sections.append(Listing(rest))
    return sections


def _probe_sections(judged: JudgedView, report: ReportFolder) -> list[Section]:
    sections = [added(one, report) if isinstance(one, Plot) else one for one in judged.view.sections]
    if judged.claims:
        table = claims_table(judged.claims)
        sections.append(Details(_("Every comparison of this probe ({n})", n=len(table.rows)), (table,)))
    return sections


def _not_measured(result: StudyResult) -> list[Section]:
    reasons = tuple(
        f"{name}: {f'{result.arm(arm).arm.title}: ' if arm else ''}{retold(why)}."
        for name in result.study.probes
        for arm, why in result.unmeasured.get(name, ())
    )
    return [Heading(_("Not measured")), Listing(reasons)] if reasons else []


def _arms_table(result: StudyResult, losses: LossClaims) -> Table:
    rows, others = [], any(arm.arm.against is not None for arm in result.arms)
    for arm in result.arms:
        claim, mean = losses.contrast(arm.arm.name), mean_loss(arm)
        rows.append(
            (
                arm.arm.title,
                number(arm.num_parameters, ","),
                big(arm.flops),
                number(sum(run.seconds for run in arm.runs) / max(1, len(arm.runs)), ".0f"),
                NONE if mean is None else nats(mean.mean),
                _interval(mean),
                difference_text(claim),
                *([NONE if claim is None else baseline_arm(result, arm).arm.title] if others else []),
                p_text(None if claim is None else claim.p),
            )
        )
    columns = (
        _("arm"),
        _("parameters"),
        _("training FLOPs"),
        _("seconds"),
        _("test loss"),
        _("95% interval"),
        *(
            (_("difference (simultaneous 95% CI)"), _("from"))
            if others
            else (_("difference from the base (simultaneous 95% CI)"),)
        ),
        _("corrected p"),
    )
    return Table(_arms_caption(result), columns, tuple(rows))


def _arms_caption(result: StudyResult) -> str:
    caption = ngettext(
        "Means over {n} seed; losses in {unit}, seconds of training for each run.",
        "Means over {n} seeds; losses in {unit}, seconds of training for each run.",
        len(result.seeds),
        n=len(result.seeds),
        unit=_(result.study.unit),
    )
    names = [arm.arm.title for arm in result.arms if not arm.arm.compared]
    if not names:
        return caption
    apart = ", ".join(names) if len(names) <= MOST_NAMED else _("{n} arms", n=len(names))
    return f"{caption} {_('Not compared here, because of another task or judged below: {arms}.', arms=apart)}"


def _interval(mean: Interval | None) -> str:
    if mean is None or mean.low is None or mean.high is None:
        return NONE
    return unbroken(_("{low} to {high}", low=nats(mean.low), high=nats(mean.high)))


def arm_samples(result: StudyResult) -> dict[str, str]:
    """By arm, the text its first finished run writes after its last step, at temperature 0.8, 300 characters.

    Arms that finished from no seed and models that cannot continue a text have none; of more than MOST_SAMPLES arms
    only the compared ones have one.
    """
    chosen = result.arms if len(result.arms) <= MOST_SAMPLES else [arm for arm in result.arms if arm.arm.compared]
    texts = {arm.arm.name: _sample(arm) for arm in chosen}
    return {name: text for name, text in texts.items() if text is not None}


def _sample(arm: ArmResult) -> str | None:
    finished = [run for run in arm.runs if run.seed in arm.losses]
    if not finished or not is_causal_lm(arm.config):
        return None
    run, sampling = load_last(finished[0], arm), Sampling(temperature=TEMPERATURE)
    # Every non-empty token decodes to at least one character, so CHARACTERS tokens suffice.
    sample = generate(run.model, run.tokenizer, [""], max_tokens=CHARACTERS, sampling=sampling, seed=SAMPLE_SEED)[0]
    return sample.text[:CHARACTERS]


def _baselines(result: StudyResult) -> list[Section]:
    rows = [(reference.label, nats(reference.value)) for reference in references(result, result.baselines)]
    floor = result.baselines.test_bigram_entropy * result.arms[0].factor
    rows.append((_("bigram entropy of the test text"), nats(floor)))
    caption = _("On the test split, in {unit}.", unit=_(result.study.unit))
    return [
        Heading(_("N-gram baselines")),
        Paragraph(_(BASELINES)),
        Table(caption, (_("baseline"), _("loss")), tuple(rows)),
    ]


def _samples(result: StudyResult) -> list[Section]:
    texts = arm_samples(result)
    if not texts:
        return []
    titles = {arm.arm.name: arm.arm.title for arm in result.arms}
    how = _(
        "{characters} characters from each arm's first finished seed after its last step, from an empty prompt at "
        "temperature {temperature:g}, sampling seed {seed}; the first sample, not cherry-picked.",
        characters=CHARACTERS,
        temperature=TEMPERATURE,
        seed=SAMPLE_SEED,
    )
    columns = Columns(tuple(Preformatted(text, titles[name]) for name, text in texts.items()))
    return [Heading(_("Samples")), Paragraph(how), columns]


def _how(result: StudyResult, command: str) -> list[Section]:
    seeds = ", ".join(map(str, result.seeds))
    given = {"seeds": seeds, "text": _text(result)}
    ran = _("Seeds: {seeds}. Text: {text}.", **given)
    if result.budget:
        ran = _("Seeds: {seeds}. Budget: {budget}. Text: {text}.", **given, budget=result.budget)
    changes = tuple((arm.arm.title, _changes(arm)) for arm in result.arms)
    corpus = {key: value for key, value in result.corpus.items() if key != "ngrams"}
    sections: list[Section] = [Heading(_("How it was run")), Paragraph(_method(result))]
    sections += [Preformatted(command, _("Command"))] if command else []
    return [
        *sections,
        Paragraph(ran),
        *_other_texts(result),
        Table(_("What each arm changes in the configuration."), (_("arm"), _("changes")), changes, prose=(1,)),
        Details(_("Every run"), (_runs_table(result),)),
        Details(_("Configuration of the base"), (Preformatted(tomli_w.dumps(dict(result.base)), "config.toml"),)),
        Details(_("Text"), (Preformatted(_json(corpus), "corpus.json"),)),
        Details(_("Machine and versions"), (Preformatted(_json(result.environment), "environment.json"),)),
    ]


def _method(result: StudyResult) -> str:
    paired = PAIRED_TEXTS if result.study.varies_text else PAIRED
    return f"{_(paired)} {_(METHOD)}"


def _other_texts(result: StudyResult) -> list[Section]:
    """The keys that arms with another text or other tokens record."""
    rows = []
    for arm in result.arms:
        if arm.config["corpus"] == result.base["corpus"]:
            continue
        text = RunFolder.open(arm.runs[0].path).document("corpus")
        trained_on = json.dumps(text["trained_on"], ensure_ascii=False) if "trained_on" in text else NONE
        sizes = number(text["split"]["tokens"]["train"], ","), number(text["vocab_size"], ",")
        rows.append((arm.arm.title, text["tokenizer"], *sizes, trained_on, text["sha256"]))
    columns = (_("arm"), _("tokenizer"), _("training tokens"), _("vocabulary"), _("trained on"))
    caption = _("Arms that have another text than the base, or other tokens.")
    told = Table(caption, (*columns, _("SHA-256 of the text")), tuple(rows), prose=(1, 4, 5))
    return [Details(_("Texts of the arms"), (told,))] if rows else []


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
        model = arm.config["model"]
        key = "d_model" if model["feed_forward"] == "none" else "d_ff"
        text = _("model.{key} = {width} (chosen for as many parameters as the base)", key=key, width=model[key])
        parts.append(text)
    elif arm.arm.match == "flops":
        steps = arm.config["training"]["steps"]
        parts.append(_("training.steps = {steps} (chosen for as many FLOPs as the base)", steps=steps))
    return "; ".join(parts) or _("nothing: the base")


def _leaves(table: dict, path: str = "") -> list[tuple[str, object]]:
    leaves: list[tuple[str, object]] = []
    for key, value in table.items():
        leaves += _leaves(value, f"{path}{key}.") if isinstance(value, dict) else [(f"{path}{key}", value)]
    return leaves


def _runs_table(result: StudyResult) -> Table:
    columns = (_("arm"), _("seed"), _("train loss"), _("validation loss"), _("test loss"), _("seconds"), _("stopped"))
    rows = [
        (
            arm.arm.title,
            str(run.seed),
            *map(_loss, _losses(run)),
            number(run.seconds, ".1f"),
            retold(run.stopped) if run.stopped else NONE,
        )
        for arm in result.arms
        for run in arm.runs
    ]
    caption = _(
        "Losses in nats per token; train loss is the mean over the last batches, with dropout where there is any."
    )
    return Table(caption, columns, tuple(rows), prose=(6,))


def _losses(run: RunResult) -> tuple[float | None, float | None, float | None]:
    return run.train_loss, run.validation_loss, run.test_loss


def _loss(value: float | None) -> str:
    return NONE if value is None else number(value, ".4f")


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
            size = [arm.num_parameters, steps, arm.flops, f"{run.seconds:.3f}"]
            writer.writerow([arm.arm.name, run.seed, *size, *losses, compared, run.stopped or ""])
    return buffer.getvalue()
