"""The runs below a folder: a table, and a page with their curves, best first; without PyTorch."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vitral.compare import derived, run_record
from vitral.core.errors import UsageError
from vitral.core.language import N_, _, ngettext
from vitral.core.shown import Shown, Tabular
from vitral.core.text import NONE, big
from vitral.evaluation.baselines import baseline_name
from vitral.report.folder import ReportFolder
from vitral.report.html import page
from vitral.report.markdown import plain_text
from vitral.report.sections import Heading, Paragraph, Section
from vitral.report.tables import Column, Table, data_table, decimals, whole
from vitral.runs.summary import RunSummary, readable_path, runs_below

SCHEMA = 1
PAGE = "runs.html"
Order = Literal["loss", "time", "name"]
STATES = (N_("finished"), N_("running"), N_("stopped"), N_("damaged"))
"""Of runs, as `_` translates them."""


def _when(value: float | None) -> str:
    return NONE if value is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(value))


COLUMNS = {
    column.key: column
    for column in (
        Column("name", N_("run")),
        Column("text", N_("text"), is_prose=True),
        Column("size", N_("size"), is_prose=True, sort="parameters"),
        Column("tokens", N_("tokenizer"), is_prose=True),
        Column("context", N_("context"), whole),
        Column("progress", N_("steps"), sort="step"),
        Column("test_loss", N_("test loss"), decimals(4)),
        Column("bits_per_character", N_("bits/char"), decimals(4)),
        Column("rank", N_("n-grams beside"), is_prose=True, sort="test_loss"),
        Column("when", N_("when"), _when, is_prose=True),
        Column("tokens_per_second", N_("tokens/s"), decimals(0)),
        Column("minutes", N_("minutes"), decimals(1)),
        Column("standing", N_("state"), is_prose=True),
    )
}
"""Columns of runs for people, by key."""
LISTED = ("name", "text", "size", "tokens", "progress", "test_loss", "rank", "when", "minutes", "standing")
KEPT = {"name", "size", "test_loss"}
"""Columns of a list of runs, and those that are there although all runs are the same in them."""


def runs_table(caption: str, keys: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    """Runs for people: these of the `COLUMNS`."""
    return Table(caption, [COLUMNS[key] for key in keys], rows, is_sortable=True)


@dataclass(frozen=True, repr=False)
class RunList(Shown, Tabular):
    """The runs below a folder, in order; print it to read it.

    Attributes:
        folder: that was searched.
        runs: in the chosen order.
    """

    folder: Path
    runs: tuple[RunSummary, ...]

    def plain(self) -> dict[str, Any]:
        """Everything as plain data."""
        runs = [{**run.plain(), **derived(run)} for run in self.runs]
        return {"schema": SCHEMA, "folder": readable_path(self.folder), "runs": runs}

    def records(self) -> list[dict[str, Any]]:
        """One row for each run."""
        return self.data().plain()

    def table(self) -> Table:
        """The table for people."""
        return runs_table(self.title, LISTED, [run_row(run) for run in self.runs])

    def varied_table(self) -> Table:
        """The same without the columns in which all runs are the same; the caption says these."""
        return self.table().varied(KEPT) if len(self.runs) > 1 else self.table()

    def data(self) -> Table:
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
        """The way to read the losses."""
        groups = {run.test_tokens for run in self.runs if run.test_loss is not None}
        comparable = _("Losses can be compared where text and tokenizer are the same; vitral compare RUN RUN does it.")
        return (comparable,) if len(groups) > 1 else ()

    def write(self, out: Path) -> Path:
        """Write the page, the tables (CSV, Markdown, LaTeX, JSON) and the figures into `out`; return the page's path.

        Raises:
            StorageError: writing to disk failed.
        """
        report = ReportFolder(out, figures="figures")
        report.add(PAGE, self.page(report))
        report.add_table("runs", self.table(), self.data())
        report.add_json("runs.json", self.plain())
        report.write(listed=False)  # the folder is the user's own
        return out / PAGE

    def page(self, report: ReportFolder | None = None) -> str:
        """A page with the table, and the curves of each text and tokenizer, which are added to `report`."""
        report = report or ReportFolder()
        sections: list[Section] = [self.varied_table(), *map(Paragraph, self.advice)]
        for number, runs in enumerate(grouped(self.runs), start=1):
            sections += curves_section(report, f"curves-{number}", runs)
        states = [run.state for run in self.runs]
        lead = ", ".join(f"{_(state)}: {states.count(state)}" for state in STATES if state in states)
        return page(self.title, sections, lead=lead, footer=_("Made by vitral list runs."))

    def __str__(self) -> str:
        """The table in aligned lines, with what is to be said of it."""
        return plain_text("", [self.varied_table(), *map(Paragraph, self.advice)])


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
    below = runs_below(Path(folder))
    runs = [run for run in below if text is None or (run.text and text.casefold() in run.text.casefold())]
    if not runs:
        known = ", ".join(sorted({run.text for run in below if run.text})) or NONE
        raise UsageError(
            "{folder}: no run on a text {text!r}; there are: {known}", folder=folder, text=text, known=known
        )
    orders = {"time": lambda run: -(run.when or 0.0), "name": lambda run: run.name}
    runs = [run for group in grouped(runs) for run in group] if order == "loss" else sorted(runs, key=orders[order])
    return RunList(Path(folder), tuple(runs))


def grouped(runs: Sequence[RunSummary]) -> list[list[RunSummary]]:
    """Runs whose losses can be compared together, best first; groups by text, the largest first."""
    groups: dict[Any, list[RunSummary]] = {}
    for run in sorted(runs, key=lambda run: (float("inf") if run.test_loss is None else run.test_loss, run.name)):
        groups.setdefault((run.test_tokens, run.objective), []).append(run)
    return sorted(
        groups.values(),
        key=lambda runs: (runs[0].text is None, runs[0].text or "", -len(runs), str(runs[0].tokenizer)),
    )


def run_row(run: RunSummary) -> dict[str, Any]:
    """The values of a run as data and, by the keys of `COLUMNS`, for people."""
    size = NONE if run.parameters is None else big(run.parameters)
    progress, record = NONE, run_record(run)
    if run.step is not None and run.steps is not None:
        done = run.step == run.steps
        progress = whole(run.step) if done else _("{step:,} of {steps:,}", step=run.step, steps=run.steps)
    above, below = ((order and baseline_name(order)) for order in (record["baseline_above"], record["baseline_below"]))
    rank = f"{above} – {below}" if above and below else NONE
    if not (above and below) and (above or below):
        rank = _("better than all") if above else _("worse than all")
    return {
        **record,
        "when": run.when,
        "size": size if run.layers is None else f"{size} ({run.layers}×{run.width})",
        "tokens": NONE if run.tokenizer is None else f"{run.tokenizer} {run.vocab_size or ''}".strip(),
        "progress": progress,
        "rank": rank,
        "standing": ": ".join(filter(None, (_(run.state), _(run.why)))),
    }


def curves_section(report: ReportFolder, name: str, runs: Sequence[RunSummary]) -> list[Section]:
    """The test losses of runs in the same tokens while they were trained, added to `report`; nothing without any."""
    shown = [run for run in runs if len(run.curve) > 1]
    if not shown:
        return []
    of = shown[0]
    title = f"{of.text} · {of.tokenizer} {of.vocab_size or ''}".strip()
    points = {run.name: ([point[0] for point in run.curve], [point[2] for point in run.curve]) for run in shown}
    return [Heading(title), curves(report, name, points, of, title=_("Test loss while training"))]


def curves(
    report: ReportFolder,
    name: str,
    points: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    of: RunSummary | None,
    **labels: str,
) -> Section:
    """The test losses of runs by their names, with the n-gram baselines of one of them, added to `report`."""
    from vitral.report.lines import MOST_LINES, Line, left_out, loss_plot  # matplotlib is slow to import

    lines = [Line(run, *pair) for run, pair in points.items()][:MOST_LINES]
    orders = of.baselines or {} if of and of.objective == "next-token" else {}
    references = [(baseline_name(order), loss) for order, loss in orders.items()]
    drawn = loss_plot(lines, references=references, **labels)
    caption = _("Test loss at every evaluation while training.") + left_out(list(points))
    return report.figure(drawn, name, caption, _("Curves of {names}", names=", ".join(points)))
