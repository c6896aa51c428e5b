"""Runs side by side: what may be compared, losses with paired intervals, configurations, curves, samples; as a page."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitral.core.checked import checked
from vitral.core.config import differences
from vitral.core.language import N_, _, language
from vitral.core.tables import Tabular
from vitral.evaluation import baseline_name
from vitral.figures.html import page
from vitral.figures.lines import MOST_LINES, Line, left_out, loss_plot
from vitral.figures.margin import Reference
from vitral.figures.markdown import markdown
from vitral.figures.notebook import Shown, page_of
from vitral.figures.plain import plain_text
from vitral.figures.sections import (
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
from vitral.figures.tables import Column, DataTable, as_text, decimals, whole
from vitral.figures.text import NONE
from vitral.reports.folder import ReportFolder
from vitral.reports.relations import (
    BATCHES,
    BITS,
    NATS,
    OVER_THE_TEXT,
    UNITS,
    ComparedRun,
    Relation,
    interval_text,
)
from vitral.reports.runs import PAGE_LANGUAGE, SORTED_BY, rank_text, run_row, standing_text
from vitral.reports.unwritten import Unwritten

if TYPE_CHECKING:
    import matplotlib.figure

SCHEMA = 1
PAGE = "comparison.html"
FOOTER = N_("Made by vitral compare.")
SIDE_BY_SIDE = 4
"""Runs whose configurations are the columns of a table; of more, they are its rows."""
SAMPLES_SHOWN = 6
MOST_ROWS = 20
"""Differences in one figure."""
MAIN = (
    Column("name", N_("run")),
    Column("text", N_("text"), is_prose=True, is_long=True),
    Column("tokens", N_("tokenizer"), is_prose=True),
    Column("size", N_("size"), is_prose=True),
    Column("context", N_("context"), whole),
    Column("progress", N_("steps")),
    Column("nats", N_("test loss"), decimals(4)),
    Column("bits_per_character", N_("bits/char"), decimals(4)),
    Column("rank", N_("n-grams beside"), is_prose=True, is_long=True),
    Column("tokens_per_second", N_("tokens/s"), whole),
    Column("minutes", N_("minutes"), decimals(1)),
    Column("standing", N_("state"), is_prose=True, is_long=True),
)
RUN_DATA = (
    *(
        "name",
        "state",
        "text",
        "tokenizer",
        "vocab_size",
        "parameters",
        "layers",
        "width",
        "context",
        "objective",
        "seed",
    ),
    *("step", "steps", "checkpoint", "minutes", "tokens_per_second", "threads", "processor", "format", "run", "path"),
)
LOSS_DATA = ("loss", "perplexity", "bits_per_character", "bits_per_byte", "num_targets", "num_characters", "num_bytes")
"""Columns of data; losses are those that were measured."""
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
RELATIONS_DATA = tuple(
    Column(key, "")
    for key in (
        *("run", "against", "same_text", "same_test", "same_tokens", "same_task", "batches", "comparable"),
        *("difference", "low", "high", "confidence", "num_blocks", "targets"),
    )
)


@checked
@dataclass(frozen=True, repr=False)
class RunComparison(Shown, Tabular):
    """Runs side by side; print it to read it.

    Attributes:
        runs: in the order they were given.
        relations: of each run but the first, to the first before it with the same test tokens, else with the same test
            text, else to the first of all.
        prompt: of the samples.
        seed: of the samples.
        notes: what was left out, one English sentence each.
    """

    runs: tuple[ComparedRun, ...]
    relations: tuple[Relation, ...]
    prompt: str
    seed: int
    notes: tuple[str, ...] = ()

    @property
    def changed(self) -> dict[str, list[Any]]:
        """The keys of the configuration that are not the same in all runs, with the value of each run."""
        first = self.runs[0].config
        keys = {key for run in self.runs[1:] for key, _one, _other in differences(first, run.config)}
        return {key: [_value(run.config, key) for run in self.runs] for key in sorted(keys)}

    def plain(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "schema": SCHEMA,
            "runs": [run.plain() for run in self.runs],
            "relations": [asdict(relation) for relation in self.relations],
            "configuration": self.changed,
            "prompt": self.prompt,
            "seed": self.seed,
            "notes": list(self.notes),
        }

    def records(self) -> list[dict[str, Any]]:
        """One row for each run."""
        return [{**row, **(row["loss"] or {"loss": None})} for row in (run.plain() for run in self.runs)]

    def table(self) -> DataTable:
        """The runs: size, speed, losses."""
        return DataTable(_("Runs"), MAIN, [_main_row(run) for run in self.runs])

    def data(self) -> DataTable:
        """The runs as data, with every number in full precision."""
        return DataTable("", tuple(Column(key, "") for key in (*RUN_DATA, *LOSS_DATA)), self.records())

    def varied_table(self) -> DataTable:
        """The same without the columns in which all runs are the same; the caption says these."""
        return self.table().varied(KEPT)

    def relation_table(self) -> DataTable:
        """The possible comparisons, and the differences of losses, for people."""
        return DataTable(_("What may be compared"), RELATIONS, [_relation_row(one) for one in self.relations])

    def relation_data(self) -> DataTable:
        """The same as data."""
        rows = []
        for one in self.relations:
            found = one.difference
            numbers = {} if found is None else {**asdict(found), "num_blocks": len(found.blocks)}
            rows.append({**asdict(one), "difference": None, **numbers})
        return DataTable(_("What may be compared"), RELATIONS_DATA, rows)

    def configuration_table(self) -> DataTable:
        """The keys that differ; of many runs, with a row for each run."""
        caption, changed = _("Keys of the configuration that differ"), self.changed
        if len(self.runs) <= SIDE_BY_SIDE:
            names = [
                Column(run.name, run.name, shown_value, is_prose=True, is_name=True, is_long=True) for run in self.runs
            ]
            rows = [
                {"configuration key": key, **dict(zip((run.name for run in self.runs), values, strict=True))}
                for key, values in changed.items()
            ]
            return DataTable(caption, (Column("configuration key", N_("key")), *names), rows)
        keys = [Column(key, key, shown_value, is_prose=True, is_name=True, is_long=True) for key in changed]
        rows = [
            {"name": run.name, **{key: values[index] for key, values in changed.items()}}
            for index, run in enumerate(self.runs)
        ]
        return DataTable(caption, (Column("name", N_("run")), *keys), rows)

    def sections(self, report: ReportFolder | None = None) -> list[Section]:
        """The page; figures are added to `report`, and left out without one."""
        told: list[Section] = [Callout(self.finding), _sortable(self.varied_table())]
        told += [Heading(_("What may be compared")), _sortable(self.relation_table())]
        told += [Listing(tuple(one.text for one in self.relations))] if len(self.relations) <= 8 else []
        if any(one.difference for one in self.relations):
            told += [Paragraph(_(OVER_THE_TEXT))]
            told += [] if report is None else self._difference_figures(report)
        told += [] if report is None else [Heading(_("Curves")), *self._curve_figures(report)]
        told += [Heading(_("Configuration"))]
        told += [_sortable(self.configuration_table()) if self.changed else Paragraph(_("No key differs."))]
        told += self._samples()
        told += [Listing(tuple(map(_, self.notes)))] if self.notes else []
        return told

    def page(self, sections: Sequence[Section]) -> str:
        """A page of these sections."""
        return page(self.title, sections, footer=_(FOOTER), language=PAGE_LANGUAGE[language()])

    @property
    def title(self) -> str:
        """Of the page."""
        if len(self.runs) == 2:
            return _("{run} and {other} side by side", run=self.runs[0].name, other=self.runs[1].name)
        return _("{count:,} runs side by side", count=len(self.runs))

    @property
    def finding(self) -> str:
        """The main result: of two runs their relation, of more which is best on each text."""
        if len(self.relations) == 1:
            return self.relations[0].text
        return " ".join(_best(runs) for runs in self._groups() if any(run.loss for run in runs)) or _(
            "No loss was measured."
        )

    def write(self, out: Path) -> Path:
        """Write page, tables and figures (SVG, PNG, PDF) into the folder `out`; return the page's path.

        Raises:
            StorageError: writing to disk failed.
        """
        report = ReportFolder(out, figures="figures")
        sections = self.sections(report)
        report.add(PAGE, self.page(sections))
        report.add("comparison.md", markdown(self.title, sections, footer=_(FOOTER)))
        report.add_json("comparison.json", self.plain())
        report.add_table("runs", self.table(), self.data())
        report.add_table("relations", self.relation_table(), self.relation_data())
        report.add_table("configuration", self.configuration_table())
        report.write(manifest=False)  # the folder is the user's own
        return out / PAGE

    def __str__(self) -> str:
        """The tables in aligned lines, and the sentences."""
        told: list[Section] = [self.varied_table().section(), Listing(tuple(one.text for one in self.relations))]
        if any(one.difference for one in self.relations):
            told.append(Paragraph(_(OVER_THE_TEXT)))
        told += [self.configuration_table().section()] if self.changed else []
        return plain_text(self.title, [*told, *self._samples(), Listing(tuple(map(_, self.notes)))])

    def _samples(self) -> list[Section]:
        written = [Preformatted(run.sample, run.name) for run in self.runs if run.sample is not None]
        lacking = self.lacking_samples
        if not written:
            return [Heading(_("Samples")), Listing(lacking)] if lacking else []
        how = _(
            "Each run continues the same prompt with the same seed ({seed}), at temperature {temperature}: the first "
            "sample, not the best of several.",
            seed=self.seed,
            temperature=0.8,
        )
        told: list[Section] = [Heading(_("Samples")), Paragraph(how)]
        told += [Preformatted(self.prompt, _("prompt"))] if self.prompt else []
        told.append(Columns(tuple(written[:SAMPLES_SHOWN])))
        rest = tuple(written[SAMPLES_SHOWN:])
        told += [Details(_("More samples"), (Columns(rest),))] if rest else []
        return [*told, *([Listing(lacking)] if lacking else [])]

    @property
    def lacking_samples(self) -> tuple[str, ...]:
        """A line for each run without a sample, with the reason."""
        return tuple(
            _("{run}: no sample ({reason}).", run=run.name, reason=_(run.why_no_sample))
            for run in self.runs
            if run.why_no_sample
        )

    def _difference_figures(self, report: ReportFolder) -> list[Section]:
        from vitral.figures.intervals import IntervalRow, interval_dots

        told: list[Section] = []
        for unit in (NATS, BITS):
            shown = [(one, one.difference) for one in self.relations if one.difference and one.difference.unit == unit]
            if not shown:
                continue
            rows = [
                IntervalRow(one.run, found.blocks, found.difference, found.low, found.high)
                for one, found in shown[:MOST_ROWS]
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
            alt = max(shown, key=lambda pair: abs(pair[1].difference))[0].text
            told.append(report.figure(drawn, f"differences-{'nats' if unit == NATS else 'bits'}", caption, alt))
        return told

    def _curve_figures(self, report: ReportFolder) -> list[Section]:
        told: list[Section] = []
        groups = self._groups()
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
        if told or not any(run.curve for run in self.runs):
            return told or [Paragraph(_("No evaluation was recorded."))]
        return [Paragraph(_("No curves: the tokens differ, and without the losses bits per character are not known."))]

    def _groups(self) -> list[list[ComparedRun]]:
        """Runs that can be drawn in one figure."""
        groups: dict[Any, list[ComparedRun]] = {}
        for run in self.runs:
            groups.setdefault((run.summary.test_text or run.name, run.summary.objective), []).append(run)
        return list(groups.values())


@page_of.register
def _comparison_page(found: RunComparison) -> str:
    return found.page(found.sections(Unwritten()))


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
        "rank": rank_text(run.summary),
        "standing": standing_text(run.summary),
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


def _value(config: Mapping[str, Any], key: str) -> Any:
    found: Any = config
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


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
