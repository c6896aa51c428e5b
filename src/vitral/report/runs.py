"""The runs below a folder: a table, and a page with their curves, best first; without PyTorch."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from vitral.compare.comparison import derived, run_record
from vitral.core.errors import UsageError
from vitral.core.language import N_, _, language, ngettext
from vitral.core.shown import Shown
from vitral.core.tables import Tabular
from vitral.core.text import NONE, big
from vitral.evaluation.baselines import baseline_name
from vitral.report.folder import ReportFolder
from vitral.report.html import page
from vitral.report.notebook import page_of
from vitral.report.plain import plain_text
from vitral.report.sections import Heading, Listing, Paragraph, Section, SortableTable
from vitral.report.sparkline import Spark
from vitral.report.tables import Column, DataTable, decimals, whole
from vitral.runs.search import readable_path
from vitral.runs.summary import RunSummary, runs_below

SCHEMA = 1
PAGE = "runs.html"
ORDERS = ("loss", "time", "name")
Order = Literal["loss", "time", "name"]
STATES = {
    "finished": N_("finished"),
    "running": N_("running"),
    "stopped": N_("stopped"),
    "damaged": N_("damaged"),
}


RECENT = 300 * 86400.0
"""Seconds for which a time is shown with its hour and without its year."""


def _when(value: float | None) -> str:
    if value is None:
        return NONE
    return time.strftime("%m-%d %H:%M" if 0 <= time.time() - value < RECENT else "%Y-%m-%d", time.localtime(value))


COLUMNS = {
    column.key: column
    for column in (
        Column("name", N_("run")),
        Column("text", N_("text"), is_prose=True, is_long=True),
        Column("size", N_("size"), is_prose=True),
        Column("tokens", N_("tokenizer"), is_prose=True),
        Column("context", N_("context"), whole),
        Column("progress", N_("steps")),
        Column("test_loss", N_("test loss"), decimals(3)),
        Column("nats", N_("test loss"), decimals(4)),
        Column("bits_per_character", N_("bits/char"), decimals(4)),
        Column("rank", N_("n-grams beside"), is_prose=True, is_long=True),
        Column("when", N_("when"), _when, is_prose=True),
        Column("tokens_per_second", N_("tokens/s"), whole),
        Column("minutes", N_("minutes"), decimals(1)),
        Column("standing", N_("state"), is_prose=True, is_long=True),
    )
}
"""Columns of runs for people, by key."""
SHOWN = ("name", "text", "size", "tokens", "progress", "test_loss", "rank", "when", "minutes", "standing")
"""Columns of a list of runs."""
KEPT = {"name", "size", "test_loss"}
"""Columns that are there although all runs are the same in them."""
ALIKE = {"progress", "standing"}
"""Columns of a single run that are left to the caption."""
SORTED_BY = {"size": "parameters", "progress": "step", "rank": "test_loss"}
"""Columns for people -> the values that they are sorted by."""


@dataclass(frozen=True, repr=False)
class RunList(Shown, Tabular):
    """The runs below a folder, in order; print it to read it.

    Attributes:
        folder: that was searched.
        runs: in the chosen order.
        notes: what was not looked into, one English sentence each.
        order: "loss" (runs of one text and tokenizer together, best first), "time" (newest first) or "name".
    """

    folder: Path
    runs: tuple[RunSummary, ...]
    notes: tuple[str, ...] = field(default=())
    order: Order = "loss"

    def plain(self) -> dict[str, Any]:
        """Everything as plain data."""
        runs = [{**run.plain(), **derived(run)} for run in self.runs]
        return {"schema": SCHEMA, "folder": readable_path(self.folder), "runs": runs, "notes": list(self.notes)}

    def records(self) -> list[dict[str, Any]]:
        """One row for each run."""
        return self.data().plain()

    def table(self) -> DataTable:
        """The table for people."""
        return DataTable(self.title, tuple(COLUMNS[key] for key in SHOWN), [run_row(run) for run in self.runs])

    def varied_table(self) -> DataTable:
        """The same without the columns in which all runs are the same; the caption says these."""
        return self.table().varied(KEPT) if len(self.runs) > 1 else self.table()

    def data(self) -> DataTable:
        """The table of data, with every number in full precision."""
        return data_table(self.title, [run_record(run) for run in self.runs])

    @property
    def title(self) -> str:
        """The caption."""
        count = len(self.runs)
        return ngettext(
            "{count:,} run in {folder}",
            "{count:,} runs in {folder}",
            count,
            count=count,
            folder=readable_path(self.folder),
        )

    @property
    def advice(self) -> tuple[str, ...]:
        """The way to read the losses, and the folders that were not read."""
        groups = {run.test_tokens for run in self.runs if run.test_loss is not None}
        told = [_("Losses can be compared where text and tokenizer are the same; vitral compare RUN RUN does it.")]
        return (*(told if len(groups) > 1 else ()), *map(_, self.notes))

    def write(self, out: Path) -> Path:
        """Write the page, the tables (CSV, Markdown, LaTeX, JSON) and the figures into `out`; return the page's path.

        Raises:
            StorageError: writing to disk failed.
        """
        report = ReportFolder(out, figures="figures")
        sections = self.sections(report)
        report.add(PAGE, self.page(sections))
        report.add_table("runs", self.table(), self.data())
        report.add_json("runs.json", self.plain())
        report.write(listed=False)  # the folder is the user's own
        return out / PAGE

    def page(self, sections: Sequence[Section]) -> str:
        """A page of these sections."""
        footer, code = _("Made by vitral list runs."), PAGE_LANGUAGE[language()]
        return page(self.title, sections, lead=self.lead, footer=footer, language=code)

    @property
    def lead(self) -> str:
        """The number of runs in each state, in a line."""
        counts = {state: sum(run.state == state for run in self.runs) for state in STATES}
        told = {
            "finished": ngettext("{n:,} finished", "{n:,} finished", counts["finished"], n=counts["finished"]),
            "running": ngettext("{n:,} running", "{n:,} running", counts["running"], n=counts["running"]),
            "stopped": ngettext("{n:,} stopped", "{n:,} stopped", counts["stopped"], n=counts["stopped"]),
            "damaged": ngettext("{n:,} damaged", "{n:,} damaged", counts["damaged"], n=counts["damaged"]),
        }
        return ", ".join(told[state] for state, count in counts.items() if count)

    def sections(self, report: ReportFolder | None = None) -> list[Section]:
        """The page: a table for each text and tokenizer, best first, with curves in one frame.

        Args:
            report: receives a figure for each table of two runs or more; None: no figures.
        """
        told: list[Section] = []
        groups = grouped(self.runs)
        if len(groups) > 1:
            told.append(
                Paragraph(
                    _(
                        "Losses in nats per token can be compared inside a table, where text and tokenizer are the "
                        "same. A heading sorts its table."
                    )
                )
            )
        for number, runs in enumerate(groups, start=1):
            title = _group_title(runs[0])
            told += [Heading(title), _sortable(runs, title)]
            drawn = _curves(runs) if report is not None else None
            if report is not None and drawn is not None:
                figure, caption = drawn
                told.append(report.figure(figure, f"curves-{number}", caption, title))
        if self.notes:
            told += [Heading(_("Not looked into")), Listing(tuple(map(_, self.notes)))]
        return told

    def __str__(self) -> str:
        """The table in aligned lines, with what is to be said of it."""
        return plain_text("", [self.varied_table().section(), *map(Paragraph, self.advice)])


PAGE_LANGUAGE = {"en": "en", "pt": "pt-BR"}
"""BCP 47 codes of pages."""


@page_of.register
def _list_page(found: RunList) -> str:
    return found.page(found.sections())


def list_runs(folder: str | Path = "runs", *, order: Order = "loss", text: str | None = None) -> RunList:
    """Every run below a folder in a table: text, size, loss beside its baselines, when, state.

    Nothing is written, and no weights are read (`vitral doctor` verifies them).

    Args:
        folder: of runs, also nested, such as a study's.
        order: "loss" (runs of one text and tokenizer together, best first), "time" (newest first) or "name".
        text: only runs on texts whose name contains this.

    Raises:
        UsageError: there is no such folder, or no run in it.
    """
    found = runs_below(Path(folder))
    runs = [run for run in found.runs if text is None or (run.text and text.casefold() in run.text.casefold())]
    if not runs:
        known = ", ".join(sorted({run.text for run in found.runs if run.text})) or NONE
        raise UsageError(
            "{folder}: no run on a text {text!r}; there are: {known}", folder=folder, text=text, known=known
        )
    return RunList(Path(folder), tuple(ordered(runs, order)), found.notes, order)


def ordered(runs: Sequence[RunSummary], order: Order) -> list[RunSummary]:
    """The runs in an order; see `RunList`."""
    if order == "loss":
        return [run for group in grouped(runs) for run in group]
    if order == "time":
        return sorted(runs, key=lambda run: -(run.when or 0.0))
    return sorted(runs, key=lambda run: run.name)


def grouped(runs: Sequence[RunSummary]) -> list[list[RunSummary]]:
    """Runs whose losses can be compared together, best first; groups by text, the largest first."""
    groups: dict[Any, list[RunSummary]] = {}
    for run in runs:
        groups.setdefault((run.test_tokens, run.objective), []).append(run)
    inside = [sorted(group, key=lambda run: (_loss_or_last(run), run.name)) for group in groups.values()]
    return sorted(
        inside, key=lambda group: (group[0].text is None, group[0].text or "", -len(group), str(group[0].tokenizer))
    )


def _loss_or_last(run: RunSummary) -> float:
    return float("inf") if run.test_loss is None else run.test_loss


def data_table(caption: str, rows: Sequence[Mapping[str, Any]]) -> DataTable:
    """A table of data with a column for every key."""
    return DataTable(caption, tuple(Column(key, "") for key in dict.fromkeys(key for row in rows for key in row)), rows)


def run_row(run: RunSummary) -> dict[str, Any]:
    """The values of a run as data and, by the keys of `COLUMNS`, for people."""
    size = NONE if run.parameters is None else big(run.parameters)
    shape = "" if run.layers is None else f" ({run.layers}×{run.width})"
    return {
        **run_record(run),
        "when": run.when,
        "size": f"{size}{shape}",
        "tokens": NONE if run.tokenizer is None else f"{run.tokenizer} {run.vocab_size or ''}".strip(),
        "progress": _progress(run),
        "rank": _rank_text(run),
        "standing": _standing_text(run),
    }


def _progress(run: RunSummary) -> str:
    if run.step is None or run.steps is None:
        return NONE
    return whole(run.step) if run.step == run.steps else _("{step:,} of {steps:,}", step=run.step, steps=run.steps)


def _rank_text(run: RunSummary) -> str:
    """The n-gram baselines next to the test loss, in a few words."""
    found = derived(run)
    above, below = found["baseline_above"], found["baseline_below"]
    if above is not None and below is not None:
        return f"{baseline_name(above)} – {baseline_name(below)}"
    if above is not None:
        return _("below the {baseline}", baseline=baseline_name(above))
    if below is not None:
        return _("above the {baseline}", baseline=baseline_name(below))
    return NONE


def _standing_text(run: RunSummary) -> str:
    """The state with its reason."""
    told = _(STATES[run.state])
    why = _(run.why)
    return f"{told}: {why}" if why else told


def _group_title(run: RunSummary) -> str:
    if run.text is None:
        return _("Runs that cannot be read")
    title = f"{run.text} · {run.tokenizer} {run.vocab_size or ''}".strip()
    return title if run.objective == "next-token" else _("{title}, masked tokens", title=title)


def _sortable(runs: Sequence[RunSummary], title: str) -> SortableTable:
    columns = tuple(COLUMNS[key] for key in SHOWN if key not in ("text", "tokens"))
    rows = [run_row(run) for run in runs]
    table = DataTable(_("{title}: runs, best first", title=title), columns, rows)
    made, sparks = table.varied(KEPT if len(runs) > 1 else {column.key for column in columns} - ALIKE), _sparks(runs)
    by = [SORTED_BY.get(column.key, column.key) for column in made.columns]
    keys = tuple(tuple(_key(row.get(key)) for key in by) for row in rows)
    has_curves = any(spark.points for spark in sparks)
    return SortableTable(
        made.section(),
        keys,
        tuple(spark.svg for spark in sparks) if has_curves else (),
        _("test loss by step"),
        tuple(spark.alt for spark in sparks) if has_curves else (),
    )


def _key(value: Any) -> float | str | None:
    return value if value is None or isinstance(value, str) else float(value)


def _sparks(runs: Sequence[RunSummary]) -> list[Spark]:
    """A small curve of each run, all in one frame, with the baselines that lie in it."""
    curves = [[(float(step), test) for step, _validation, test in run.curve] for run in runs]
    every = [point for curve in curves for point in curve]
    if not every:
        return [Spark((), (0.0, 1.0, 0.0, 1.0)) for _run in runs]
    levels = sorted({loss for run in runs for loss in (run.baselines or {}).values()})
    lasts = [curve[-1][1] for curve in curves if curve]
    least, most = min(test for _step, test in every), max(test for _step, test in every)
    top = min(most, max(lasts) + 2 * (max(lasts) - least) + 0.3)
    frame = (0.0, max(step for step, _test in every), least, top)
    alts = [
        _("from {first:.3f} to {last:.3f}", first=curve[0][1], last=curve[-1][1]) if curve else "" for curve in curves
    ]
    return [Spark(tuple(curve), frame, tuple(levels), alt) for curve, alt in zip(curves, alts, strict=True)]


def _curves(runs: Sequence[RunSummary]) -> Any:
    """The curves of the best runs of a group in one figure, and its caption; None for fewer than two."""
    shown = [run for run in runs if len(run.curve) > 1]
    if len(shown) < 2:
        return None
    from vitral.report.lines import MOST_LINES, Line, left_out, loss_plot
    from vitral.report.margin import Reference

    lines = [Line(run.name, [p[0] for p in run.curve], [p[2] for p in run.curve], look="dots") for run in shown]
    lines = lines[:MOST_LINES]
    orders = shown[0].baselines or {} if shown[0].objective == "next-token" else {}
    references = [Reference(baseline_name(order), loss) for order, loss in orders.items()]
    title, y_label = _("Test loss while training"), _("loss (nats per token)")
    figure = loss_plot(lines, references=references, title=title, x_label=_("optimizer step"), y_label=y_label)
    caption = _("Test loss against steps, at every evaluation. Gray lines: n-gram baselines.")
    return figure, caption + left_out([run.name for run in shown])
