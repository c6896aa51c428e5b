"""Runs side by side: what may be compared, losses with paired intervals, configurations, curves, samples; as a page."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vitral.compare import BITS, NATS, ComparedRun, Relation, RunComparison
from vitral.compare.side_by_side import TEMPERATURE
from vitral.core.language import N_, _, number
from vitral.core.text import signed
from vitral.report.folder import ReportFolder
from vitral.report.html import page
from vitral.report.markdown import markdown, plain_text
from vitral.report.runs import curves, run_row, runs_table
from vitral.report.sections import Callout, Columns, Heading, Listing, Paragraph, Preformatted, Section
from vitral.report.tables import Column, Table, as_text, data_table

PAGE = "comparison.html"
FOOTER = N_("Made by vitral compare.")
SHOWN = (
    *("name", "text", "tokens", "size", "context", "progress", "test_loss", "bits_per_character", "rank"),
    *("tokens_per_second", "minutes", "standing"),
)
"""Columns of the table for people."""
LESS = 0.95
"""Share of the tokens of another run below which one was trained less."""
KEPT = {"name", "size", "test_loss", "bits_per_character"}
"""Columns that are there although all runs are the same in them."""
BATCHES = {
    "same": N_("Their batches are the same, by their hash."),
    "same by configuration": N_("Their batches are the same, by configuration."),
    "other": N_("Their batches differ: {keys}."),
}
OVER_THE_TEXT = N_(
    "The intervals hold together with 95%. They are the uncertainty over texts like this test split, cut into "
    "contiguous blocks: they are about these trained models. They do not contain the chance of another seed, so they "
    "are no claim about the variants in general; vitral study makes such claims. Nor do they hold if the run that "
    "others are compared with was chosen because its loss on this test split is the lowest."
)


def table_of(comparison: RunComparison) -> Table:
    """The runs: size, speed, losses."""
    rows = [
        {
            **run_row(run.summary),
            "tokens_per_second": run.tokens_per_second,
            "test_loss": getattr(run.loss, "loss", None),
            "bits_per_character": None
            if run.summary.objective == "label"
            else getattr(run.loss, "bits_per_character", None),
        }
        for run in comparison.runs
    ]
    return runs_table(_("Runs"), SHOWN, rows)


def data_of(comparison: RunComparison) -> Table:
    """The runs as data, with every number in full precision."""
    beside = {"curve", "sample", "missing", "missing_sample"}
    return data_table("", [{key: row[key] for key in row if key not in beside} for row in comparison.records()])


def varied_table(comparison: RunComparison) -> Table:
    """The same without the columns in which all runs are the same; the caption says these."""
    return table_of(comparison).varied(KEPT)


def relation_data(comparison: RunComparison) -> Table:
    """The possible comparisons, and the differences of losses, as data."""
    keys = ("run", "against", "same_text", "same_test", "same_tokens", "same_task", "batches", "comparable")
    numbers = ("difference", "low", "high", "confidence", "num_blocks", "targets")
    rows = [
        {key: getattr(one, key) for key in keys} | {key: getattr(one.difference, key, None) for key in numbers}
        for one in comparison.relations
    ]
    return data_table(_("What may be compared"), rows)


def configuration_table(comparison: RunComparison) -> Table:
    """The keys that differ, with a column for each run."""

    def show(value: Any) -> str:
        return as_text(value) if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    names = [run.name for run in comparison.runs]
    columns = [Column(name, name, show, is_prose=True, is_name=True) for name in names]
    rows = [
        {"configuration key": key, **dict(zip(names, values, strict=True))}
        for key, values in comparison.changed.items()
    ]
    caption = _("Keys of the configuration that differ")
    return Table(caption, [Column("configuration key", N_("setting")), *columns], rows, is_sortable=True)


def comparison_sections(comparison: RunComparison, report: ReportFolder) -> list[Section]:
    """The page; figures are added to `report`."""
    sections: list[Section] = [Callout(finding(comparison)), varied_table(comparison)]
    sections += [
        Heading(_("What may be compared")),
        Listing(tuple(map(relation_text, comparison.relations))),
        *_less(comparison),
    ]
    if any(one.difference for one in comparison.relations):
        sections += [Paragraph(_(OVER_THE_TEXT)), *_difference_figures(comparison, report)]
    sections += [Heading(_("Curves")), *_curve_figures(comparison, report), Heading(_("Configuration"))]
    sections += [configuration_table(comparison)]
    sections += _samples(comparison)
    sections += [Listing(tuple(map(_, comparison.notes)))] if comparison.notes else []
    return sections


def _title(comparison: RunComparison) -> str:
    """Of the page."""
    return _("{runs} side by side", runs=", ".join(run.name for run in comparison.runs))


def finding(comparison: RunComparison) -> str:
    """The main result: of two runs their relation, of more which is best on each text."""
    if len(comparison.relations) == 1:
        return relation_text(comparison.relations[0])
    groups = ([run for run in runs if run.loss] for runs in _groups(comparison))
    return " ".join(_best(runs) for runs in groups if runs) or _("No loss was measured.")


def write_of(comparison: RunComparison, out: Path) -> Path:
    """Write page, tables and figures (SVG, PNG, PDF) into the folder `out`; return the page's path.

    Raises:
        StorageError: writing to disk failed.
    """
    report = ReportFolder(out, figures="figures")
    sections = comparison_sections(comparison, report)
    report.add(PAGE, page(_title(comparison), sections, footer=_(FOOTER)))
    report.add("comparison.md", markdown(_title(comparison), sections, footer=_(FOOTER)))
    report.add_json("comparison.json", comparison.plain())
    report.add_table("runs", table_of(comparison), data_of(comparison))
    report.add_table("relations", relation_data(comparison))
    report.add_table("configuration", configuration_table(comparison))
    report.write(listed=False)  # the folder is the user's own
    return out / PAGE


def text_of(comparison: RunComparison) -> str:
    """The tables in aligned lines, and the sentences."""
    sections: list[Section] = [
        varied_table(comparison),
        Listing(tuple(map(relation_text, comparison.relations))),
        *_less(comparison),
    ]
    sections += [configuration_table(comparison)] if comparison.changed else []
    sections += [Paragraph(_(OVER_THE_TEXT))] if any(one.difference for one in comparison.relations) else []
    return plain_text(_title(comparison), [*sections, *_samples(comparison), Listing(tuple(map(_, comparison.notes)))])


def page_of(comparison: RunComparison) -> str:
    """The page, with its figures in it."""
    return page(_title(comparison), comparison_sections(comparison, ReportFolder()), footer=_(FOOTER))


def _less(comparison: RunComparison) -> list[Section]:
    """Which run was trained least, where that is less than another; of runs whose whole training is known."""
    identities = [run.sealed.identity for run in comparison.runs]
    if any(one.parent for one in identities) or len({one.documents["tokenizer.json"] for one in identities}) > 1:
        return []
    trained = [(run.checkpoint * run.tokens_per_step, run.name) for run in comparison.runs]
    (least, run), (most, other) = min(trained), max(trained)
    sentence = N_(
        "{run} was trained less: on {least:,} tokens, {other} on {most:,}. A difference may be one of training."
    )
    is_less = 0 < least < LESS * most  # an imported model has 0
    return [Paragraph(_(sentence, run=run, other=other, least=least, most=most))] * is_less


def _samples(comparison: RunComparison) -> list[Section]:
    written = [Preformatted(run.sample, run.name) for run in comparison.runs if run.sample is not None]
    lacking: list[Section] = [Listing(lines)] if (lines := lacking_samples(comparison)) else []
    if not written:
        return [Heading(_("Samples")), *lacking] if lacking else []
    answering = {run.sealed.config.corpus.records is not None for run in comparison.runs}
    of_texts = _(
        "Each run continues the same prompt with the same seed ({seed}), at temperature {temperature}: the first "
        "sample, not the best of several.",
        seed=comparison.seed,
        temperature=TEMPERATURE,
    )
    of_records = _("A run of records answers the first questions of its test split, at temperature 0.")
    how = " ".join([of_texts] * (False in answering) + [of_records] * (True in answering))
    prompt = [Preformatted(comparison.prompt, _("prompt"))] if comparison.prompt else []
    return [Heading(_("Samples")), Paragraph(how), *prompt, Columns(tuple(written)), *lacking]


def lacking_samples(comparison: RunComparison) -> tuple[str, ...]:
    """A line for each run without a sample, with the reason."""
    return tuple(
        _("{run}: no sample ({reason}).", run=run.name, reason=_(run.missing_sample))
        for run in comparison.runs
        if run.missing_sample
    )


def _difference_figures(comparison: RunComparison, report: ReportFolder) -> list[Section]:
    from vitral.report.intervals import Row, interval_plot  # matplotlib is slow to import, and tables need none

    figures: list[Section] = []
    for unit, name in ((NATS, "differences-nats"), (BITS, "differences-bits")):
        shown = [
            (one, one.difference) for one in comparison.relations if one.difference and one.difference.unit == unit
        ]
        if not shown:
            continue
        rows = [
            Row(one.run, one.against, paired.difference, paired.low, paired.high, paired.blocks)
            for one, paired in shown
        ]
        label = _("difference to the run it is compared with ({unit})", unit=_(unit))
        drawn = interval_plot(rows, label, title=_("Differences of the test loss"), digits=4)
        caption = _(
            "Each dot is a block of the test split, the mark above is the difference over all of it with its "
            "interval. Left of zero: the run predicts better."
        )
        alt = relation_text(max(shown, key=lambda pair: abs(pair[1].difference))[0])
        figures.append(report.figure(drawn, name, caption, alt))
    return figures


def _curve_figures(comparison: RunComparison, report: ReportFolder) -> list[Section]:
    """The test losses of runs on one text, by steps, tokens and seconds as far as these say different things."""
    figures: list[Section] = []
    groups = _groups(comparison)
    for position, group in enumerate(groups, start=1):
        drawn = [run for run in group if any(math.isfinite(test) for *_, test in run.summary.curve)]
        same_tokens = len({run.summary.test_tokens for run in drawn}) == 1
        if not same_tokens:  # their bits per character follow from a loss
            drawn = [run for run in drawn if run.loss is not None]
        if not drawn:
            continue
        axes = {"step": _("optimizer step")}
        axes |= {"tokens": _("tokens trained on")} if len({run.tokens_per_step for run in drawn}) > 1 else {}
        axes |= {"seconds": _("seconds of training steps")} if all(map(_speed, drawn)) else {}
        for axis, label in axes.items():
            name = f"curves-by-{axis}" + (f"-{position}" if len(groups) > 1 else "")
            figures.append(_curves(drawn, name, axis, label, report, same_tokens=same_tokens))
    return figures or [
        Paragraph(_("No curves: there is no evaluation, or the tokens differ and no loss was measured."))
    ]


def _curves(
    runs: Sequence[ComparedRun], name: str, axis: str, label: str, report: ReportFolder, *, same_tokens: bool
) -> Section:
    """One figure; in bits per character where the tokens of the runs differ. The best are drawn where not all fit."""

    def rank(run: ComparedRun) -> float:
        loss = run.summary.test_loss if same_tokens else run.loss and run.loss.bits_per_character
        return math.inf if loss is None else loss

    points = {}
    for run in sorted(runs, key=rank):
        factor = 1.0 if same_tokens or run.loss is None else run.loss.bits_per_character / run.loss.loss
        a_step = {"step": 1.0, "tokens": run.tokens_per_step, "seconds": _speed(run)}[axis] or 1.0
        curve = run.summary.curve
        points[run.name] = [step * a_step for step, *_ in curve], [test * factor for *_, test in curve]
    summary = runs[0].summary
    title = _("Test loss while training, {text}", text=summary.text)
    unit = _("test loss ({unit})", unit=_(NATS if same_tokens else BITS))
    return curves(report, name, points, summary if same_tokens else None, title=title, x_label=label, y_label=unit)


def _speed(run: ComparedRun) -> float | None:
    """Seconds of a training step."""
    return run.tokens_per_second and run.tokens_per_step / run.tokens_per_second


def _groups(comparison: RunComparison) -> list[list[ComparedRun]]:
    """Runs that can be drawn in one figure."""
    groups: dict[Any, list[ComparedRun]] = {}
    for run in comparison.runs:
        groups.setdefault((run.summary.test_text or run.name, run.summary.objective), []).append(run)
    return list(groups.values())


def _best(runs: Sequence[ComparedRun]) -> str:
    """The run that predicts a test text best, of those whose loss was measured."""
    same_tokens = len({run.summary.test_tokens for run in runs}) == 1
    losses = [(loss.loss if same_tokens else loss.bits_per_character, run) for run in runs if (loss := run.loss)]
    lowest, best = min(losses, key=lambda pair: pair[0])
    values = {"text": best.summary.text, "run": best.name, "count": len(losses), "loss": lowest}
    if not same_tokens and not all(run.whole_test_split for run in runs):
        return _(
            "On the text {text} no run is ranked first: of its long test split only parts were measured, which are "
            "other parts in other tokens.",
            **values,
        )
    values["unit"] = _(NATS if same_tokens else BITS)
    if len(losses) == 1:
        return _("On the text {text} there is one run, {run}: {loss:.3f} {unit}.", **values)
    return _("On the text {text}, {run} has the lowest test loss of {count:,} runs: {loss:.3f} {unit}.", **values)


def relation_text(relation: Relation) -> str:
    """The possible comparison, the difference, and whether the batches were the same, in a few sentences."""
    names = {"run": relation.run, "against": relation.against}
    batches = _(BATCHES[relation.batches], keys=", ".join(map(_, relation.batches_differ)))
    return " ".join(filter(None, (_(_allowed(relation), **names), _difference_text(relation), batches)))


def _allowed(relation: Relation) -> str:
    if not relation.same_text:
        return N_("{run} was tested on another text than {against}: their losses cannot be compared.")
    if not relation.same_test:
        return N_(
            "{run} has the text of {against}, but read or split in another way: their losses are of other test "
            "texts and cannot be compared."
        )
    if not relation.same_task:
        return N_("{run} predicts something else than {against}: their losses cannot be compared.")
    if relation.same_tokens:
        return N_("{run} and {against} have the same test text in the same tokens: losses can be compared.")
    if relation.comparable == "nothing":
        return N_(
            "{run} has the test text of {against} in other tokens, and of this long text only parts were measured, "
            "which are other parts in other tokens: their losses cannot be compared."
        )
    return N_(
        "{run} has the test text of {against} in other tokens: losses in nats per token cannot be compared, bits "
        "per character can."
    )


def _difference_text(relation: Relation) -> str:
    difference = relation.difference
    if difference is None:
        return _("No difference: {reason}.", reason=_(relation.why)) if relation.why else ""
    values: dict[str, Any] = {"run": relation.run, "against": relation.against, "unit": _(difference.unit)}
    size = signed(difference.difference, 4)
    if difference.low is None or difference.high is None:
        return _("{run} minus {against}: {size} {unit}.", **values, size=size)
    values["blocks"] = difference.num_blocks
    if not difference.excludes_zero:
        interval = _("{low} to {high}", low=signed(difference.low, 4), high=signed(difference.high, 4))
        return _(
            "No difference is shown: {size} {unit} (interval over {blocks} blocks {interval}).",
            **values,
            size=size,
            interval=interval,
        )
    sentence = N_(
        "{run} predicts this text {verdict} than {against}, by {size} {unit} (interval of the difference over {blocks} "
        "blocks {interval})."
    )
    verdict = _(N_("worse") if difference.difference > 0 else N_("better"))
    least, most = sorted((abs(difference.low), abs(difference.high)))
    interval = _("{low} to {high}", low=number(least, ".4f"), high=number(most, ".4f"))
    size = number(abs(difference.difference), ".4f")
    return _(sentence, **values, size=size, interval=interval, verdict=verdict)
