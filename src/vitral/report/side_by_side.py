"""Runs side by side: what may be compared, losses with paired intervals, configurations, curves, samples; as a page."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitral.compare.comparison import BITS, NATS, ComparedRun, Relation, RunComparison
from vitral.core.language import N_, _, language
from vitral.core.text import NONE
from vitral.evaluation import baseline_name
from vitral.report.folder import ReportFolder, Unwritten
from vitral.report.html import page
from vitral.report.lines import MOST_LINES, Line, left_out, loss_plot
from vitral.report.margin import Reference
from vitral.report.markdown import markdown
from vitral.report.notebook import page_of, text_of
from vitral.report.plain import plain_text
from vitral.report.relations import BATCHES, OVER_THE_TEXT, UNITS, interval_text, relation_text
from vitral.report.runs import COLUMNS, PAGE_LANGUAGE, SORTED_BY, data_table, run_row
from vitral.report.sections import (
    Callout,
    Columns,
    Details,
    Heading,
    Listing,
    Paragraph,
    Preformatted,
    Section,
    SortableTable,
)
from vitral.report.tables import Column, DataTable, as_text, decimals

if TYPE_CHECKING:
    import matplotlib.figure

PAGE = "comparison.html"
FOOTER = N_("Made by vitral compare.")
SIDE_BY_SIDE = 4
"""Runs whose configurations are the columns of a table; of more, they are its rows."""
SAMPLES_SHOWN = 6
MOST_ROWS = 20
"""Differences in one figure."""
SHOWN = (
    *("name", "text", "tokens", "size", "context", "progress", "nats", "bits_per_character", "rank"),
    *("tokens_per_second", "minutes", "standing"),
)
"""Columns of the table for people."""
NOT_TABULAR = {"curve", "sample", "missing", "missing_sample"}
"""What is known of a run beside its numbers."""
KEPT = {"name", "size", "nats", "bits_per_character"}
"""Columns that are there although all runs are the same in them."""
RELATIONS = (
    Column("run", N_("run")),
    Column("against", N_("compared with"), is_prose=True, is_long=True),
    Column("unit", N_("comparable in"), is_prose=True, is_long=True),
    Column("difference", N_("difference"), decimals(4, sign=True)),
    Column("interval", N_("interval over blocks"), is_prose=True, is_long=True),
    Column("text", N_("test text"), is_prose=True, is_long=True),
    Column("tokens", N_("tokens"), is_prose=True, is_long=True),
    Column("batches", N_("batches"), is_prose=True, is_long=True),
)


def comparison_table(found: RunComparison) -> DataTable:
    """The runs: size, speed, losses."""
    return DataTable(_("Runs"), tuple(COLUMNS[key] for key in SHOWN), [_main_row(run) for run in found.runs])


def comparison_data(found: RunComparison) -> DataTable:
    """The runs as data, with every number in full precision."""
    rows = [{key: value for key, value in row.items() if key not in NOT_TABULAR} for row in found.records()]
    return data_table("", rows)


def varied_table(found: RunComparison) -> DataTable:
    """The same without the columns in which all runs are the same; the caption says these."""
    return comparison_table(found).varied(KEPT)


def relation_table(found: RunComparison) -> DataTable:
    """The possible comparisons, and the differences of losses, for people."""
    return DataTable(_("What may be compared"), RELATIONS, [_relation_row(one) for one in found.relations])


def relation_data(found: RunComparison) -> DataTable:
    """The same as data."""
    keys = ("run", "against", "same_text", "same_test", "same_tokens", "same_task", "batches", "comparable")
    numbers = ("difference", "low", "high", "confidence", "num_blocks", "targets")
    rows = [
        {key: getattr(one, key) for key in keys} | {key: getattr(one.difference, key, None) for key in numbers}
        for one in found.relations
    ]
    return data_table(_("What may be compared"), rows)


def configuration_table(found: RunComparison) -> DataTable:
    """The keys that differ; of many runs, with a row for each run."""
    caption, changed = _("Keys of the configuration that differ"), found.changed
    if len(found.runs) <= SIDE_BY_SIDE:
        names = [
            Column(run.name, run.name, shown_value, is_prose=True, is_name=True, is_long=True) for run in found.runs
        ]
        rows = [
            {"configuration key": key, **dict(zip((run.name for run in found.runs), values, strict=True))}
            for key, values in changed.items()
        ]
        return DataTable(caption, (Column("configuration key", N_("key")), *names), rows)
    keys = [Column(key, key, shown_value, is_prose=True, is_name=True, is_long=True) for key in changed]
    rows = [
        {"name": run.name, **{key: values[index] for key, values in changed.items()}}
        for index, run in enumerate(found.runs)
    ]
    return DataTable(caption, (Column("name", N_("run")), *keys), rows)


def comparison_sections(found: RunComparison, report: ReportFolder | None = None) -> list[Section]:
    """The page; figures are added to `report`, and left out without one."""
    told: list[Section] = [Callout(finding(found)), _sortable(varied_table(found))]
    told += [Heading(_("What may be compared")), _sortable(relation_table(found))]
    told += [Listing(tuple(relation_text(one) for one in found.relations))] if len(found.relations) <= 8 else []
    if any(one.difference for one in found.relations):
        told += [Paragraph(_(OVER_THE_TEXT))]
        told += [] if report is None else _difference_figures(found, report)
    told += [] if report is None else [Heading(_("Curves")), *_curve_figures(found, report)]
    told += [Heading(_("Configuration"))]
    told += [_sortable(configuration_table(found)) if found.changed else Paragraph(_("No key differs."))]
    told += _samples(found)
    told += [Listing(tuple(map(_, found.notes)))] if found.notes else []
    return told


def comparison_page(found: RunComparison, sections: Sequence[Section]) -> str:
    """A page of these sections."""
    return page(_title(found), sections, footer=_(FOOTER), language=PAGE_LANGUAGE[language()])


def _title(found: RunComparison) -> str:
    """Of the page."""
    if len(found.runs) == 2:
        return _("{run} and {other} side by side", run=found.runs[0].name, other=found.runs[1].name)
    return _("{count:,} runs side by side", count=len(found.runs))


def finding(found: RunComparison) -> str:
    """The main result: of two runs their relation, of more which is best on each text."""
    if len(found.relations) == 1:
        return relation_text(found.relations[0])
    return " ".join(_best(runs) for runs in _groups(found) if any(run.loss for run in runs)) or _(
        "No loss was measured."
    )


def write_comparison(found: RunComparison, out: Path) -> Path:
    """Write page, tables and figures (SVG, PNG, PDF) into the folder `out`; return the page's path.

    Raises:
        StorageError: writing to disk failed.
    """
    report = ReportFolder(out, figures="figures")
    sections = comparison_sections(found, report)
    report.add(PAGE, comparison_page(found, sections))
    report.add("comparison.md", markdown(_title(found), sections, footer=_(FOOTER)))
    report.add_json("comparison.json", found.plain())
    report.add_table("runs", comparison_table(found), comparison_data(found))
    report.add_table("relations", relation_table(found), relation_data(found))
    report.add_table("configuration", configuration_table(found))
    report.write(listed=False)  # the folder is the user's own
    return out / PAGE


@text_of.register
def _comparison_text(found: RunComparison) -> str:
    """The tables in aligned lines, and the sentences."""
    told: list[Section] = [varied_table(found).section(), Listing(tuple(relation_text(one) for one in found.relations))]
    if any(one.difference for one in found.relations):
        told.append(Paragraph(_(OVER_THE_TEXT)))
    told += [configuration_table(found).section()] if found.changed else []
    return plain_text(_title(found), [*told, *_samples(found), Listing(tuple(map(_, found.notes)))])


def _samples(found: RunComparison) -> list[Section]:
    written = [Preformatted(run.sample, run.name) for run in found.runs if run.sample is not None]
    lacking = lacking_samples(found)
    if not written:
        return [Heading(_("Samples")), Listing(lacking)] if lacking else []
    how = _(
        "Each run continues the same prompt with the same seed ({seed}), at temperature {temperature}: the first "
        "sample, not the best of several.",
        seed=found.seed,
        temperature=0.8,
    )
    told: list[Section] = [Heading(_("Samples")), Paragraph(how)]
    told += [Preformatted(found.prompt, _("prompt"))] if found.prompt else []
    told.append(Columns(tuple(written[:SAMPLES_SHOWN])))
    rest = tuple(written[SAMPLES_SHOWN:])
    told += [Details(_("More samples"), (Columns(rest),))] if rest else []
    return [*told, *([Listing(lacking)] if lacking else [])]


def lacking_samples(found: RunComparison) -> tuple[str, ...]:
    """A line for each run without a sample, with the reason."""
    return tuple(
        _("{run}: no sample ({reason}).", run=run.name, reason=_(run.why_no_sample))
        for run in found.runs
        if run.why_no_sample
    )


def _difference_figures(found: RunComparison, report: ReportFolder) -> list[Section]:
    from vitral.report.intervals import IntervalRow, interval_dots

    told: list[Section] = []
    for unit in (NATS, BITS):
        shown = [(one, one.difference) for one in found.relations if one.difference and one.difference.unit == unit]
        if not shown:
            continue
        rows = [
            IntervalRow(one.run, paired.blocks, paired.difference, paired.low, paired.high)
            for one, paired in shown[:MOST_ROWS]
        ]
        label = _("difference to the run it is compared with ({unit})", unit=_(UNITS[unit]))
        drawn = interval_dots(
            rows,
            references=[Reference("", 0.0)],
            title=_("Differences of the test loss"),
            x_label=label,
        )
        caption = _(
            "Each dot is a block of the test split, the mark above is the difference over all of it with its "
            "interval. Left of zero: the run predicts better."
        )
        if len(shown) > MOST_ROWS:
            caption += " " + _("Only the first {n} are drawn.", n=MOST_ROWS)
        alt = relation_text(max(shown, key=lambda pair: abs(pair[1].difference))[0])
        told.append(report.figure(drawn, f"differences-{'nats' if unit == NATS else 'bits'}", caption, alt))
    return told


def _curve_figures(found: RunComparison, report: ReportFolder) -> list[Section]:
    told: list[Section] = []
    groups = _groups(found)
    for number_, runs in enumerate(groups, start=1):
        runs = _with_curves(runs)
        if not runs:
            continue
        for axis, label, values in _axes(runs):
            drawn = _curves(runs, label, values)
            caption = _("Test loss at every evaluation while training.")
            caption += left_out([run.name for run in runs])
            name = f"curves-by-{axis}" + (f"-{number_}" if len(groups) > 1 else "")
            told.append(
                report.figure(drawn, name, caption, _("Curves of {names}", names=", ".join(r.name for r in runs)))
            )
    if told or not any(run.curve for run in found.runs):
        return told or [Paragraph(_("No evaluation was recorded."))]
    return [Paragraph(_("No curves: the tokens differ, and without the losses bits per character are not known."))]


def _groups(found: RunComparison) -> list[list[ComparedRun]]:
    """Runs that can be drawn in one figure."""
    groups: dict[Any, list[ComparedRun]] = {}
    for run in found.runs:
        groups.setdefault((run.summary.test_text or run.name, run.summary.objective), []).append(run)
    return list(groups.values())


@page_of.register
def _comparison_page(found: RunComparison) -> str:
    return comparison_page(found, comparison_sections(found, Unwritten()))


def _best(runs: Sequence[ComparedRun]) -> str:
    """The run that predicts a test text best."""
    measured = [(run, run.loss) for run in runs if run.loss is not None]
    same_tokens = len({run.summary.test_tokens for run, _loss in measured}) == 1
    losses = [(loss.loss if same_tokens else loss.bits_per_character, run) for run, loss in measured]
    lowest, best = min(losses, key=lambda pair: pair[0])
    places = {"text": best.summary.text, "run": best.name, "count": len(losses), "loss": lowest}
    if not same_tokens and not all(run.is_whole for run, _loss in measured):
        return _(
            "On the text {text} no run is ranked first: of its long test split only parts were measured, which are "
            "other parts in other tokens.",
            **places,
        )
    unit = _(UNITS[NATS if same_tokens else BITS])
    if len(losses) == 1:
        return _("On the text {text} there is one run, {run}: {loss:.3f} {unit}.", **places, unit=unit)
    return _(
        "On the text {text}, {run} has the lowest test loss of {count:,} runs: {loss:.3f} {unit}.", **places, unit=unit
    )


def _main_row(run: ComparedRun) -> dict[str, Any]:
    loss = run.loss
    return {
        **run_row(run.summary),
        "tokens_per_second": None if run.tokens_per_second is None else round(run.tokens_per_second),
        "nats": None if loss is None else loss.loss,
        "bits_per_character": None if loss is None else loss.bits_per_character,
    }


def _sortable(table: DataTable) -> SortableTable:
    keys = tuple(tuple(_key(row, column) for column in table.columns) for row in table.rows)
    return SortableTable(table.section(), keys)


def _key(row: Mapping[str, Any], column: Column) -> float | str | None:
    value = row.get(SORTED_BY.get(column.key, column.key))
    return float(value) if isinstance(value, int | float) else None if value is None else str(value)


def _relation_row(one: Relation) -> dict[str, Any]:
    found = one.difference
    return {
        "run": one.run,
        "against": one.against,
        "text": _("the same text") if one.same_test else _("another part") if one.same_text else _("another text"),
        "tokens": _("the same tokens") if one.same_tokens else _("other tokens"),
        "batches": batches_text(one),
        "unit": _(UNITS[one.comparable]),
        "difference": None if found is None else found.difference,
        "interval": NONE if found is None else interval_text(found),
    }


def batches_text(one: Relation) -> str:
    """Whether two runs had the same batches, in a few words."""
    if one.batches == "other":
        return _(BATCHES["other"], keys=", ".join(map(_, one.batches_differ)))
    return _(BATCHES[one.batches])


def shown_value(value: Any) -> str:
    """A value of the configuration; a dash where it is not set."""
    if value is None or isinstance(value, str):
        return as_text(value)
    return json.dumps(value, ensure_ascii=False)


def _axes(runs: Sequence[ComparedRun]) -> list[tuple[str, str, Any]]:
    """The horizontal axes that say different things about these runs: name, label, reader of a point."""
    axes: list[tuple[str, str, Any]] = [("step", _("optimizer step"), lambda point: point.step)]
    ratios = {round(point.tokens / point.step, 6) for run in runs for point in run.curve if point.step}
    if len(ratios) > 1:
        axes.append(("tokens", _("tokens trained on"), lambda point: point.tokens))
    if all(point.seconds is not None for run in runs for point in run.curve):
        axes.append(("seconds", _("seconds of training steps"), lambda point: point.seconds))
    return axes


def _has_same_tokens(runs: Sequence[ComparedRun]) -> bool:
    return len({run.summary.test_tokens for run in runs}) == 1


def _with_curves(runs: Sequence[ComparedRun]) -> list[ComparedRun]:
    """The runs that can be drawn together: in other tokens only with a loss, which gives the bits per character.

    The best stand first where not all fit into a figure.
    """
    drawn = [run for run in runs if any(math.isfinite(point.test) for point in run.curve)]
    if _has_same_tokens(drawn):
        losses = {run.name: run.summary.test_loss for run in drawn}
    else:
        losses = {run.name: run.loss.bits_per_character for run in drawn if run.loss is not None}
        drawn = [run for run in drawn if run.name in losses]
    if len(drawn) <= MOST_LINES:
        return drawn
    return sorted(drawn, key=lambda run: math.inf if (loss := losses[run.name]) is None else loss)


def _curves(runs: Sequence[ComparedRun], label: str, read: Any) -> "matplotlib.figure.Figure":
    """The test losses of runs on one text; in bits per character where their tokens differ."""
    same_tokens = _has_same_tokens(runs)
    lines = []
    for run in runs[:MOST_LINES]:
        factor = 1.0 if same_tokens or run.loss is None else run.loss.bits_per_character / run.loss.loss
        lines.append(Line(run.name, [read(p) for p in run.curve], [p.test * factor for p in run.curve], look="dots"))
    summary = runs[0].summary
    orders = summary.baselines or {} if same_tokens and summary.objective == "next-token" else {}
    references = [Reference(baseline_name(order), loss) for order, loss in orders.items()]
    unit = _(UNITS[NATS if same_tokens else BITS])
    y_label = _("test loss ({unit})", unit=unit)
    title = _("Test loss while training, {text}", text=summary.text)
    return loss_plot(lines, references=references, title=title, x_label=label, y_label=y_label)
