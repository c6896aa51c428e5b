"""How texts, models, forecasts and compared runs are printed."""

from typing import TYPE_CHECKING

from vitral.app.terminal.screen import console, print_data, say, table
from vitral.core.language import _, ngettext, number

if TYPE_CHECKING:
    from vitral.compare.comparison import RunComparison
    from vitral.forecast.forecasting import Forecast
    from vitral.report.model import ModelCount
    from vitral.report.survey import Survey

SHOWN_CHARACTERS, SHOWN_RARE = 40, 12


def print_survey(surveyed: "Survey") -> None:
    """Print the text in numbers, its alphabet, its n-gram baselines, its problems and how to train on it."""
    from vitral.report.survey import ngram_rows, text_facts

    report, screen = surveyed.report, console()
    screen.print(table(_("The text: {name}", name=report.name), ("", ""), text_facts(report), words=2))
    ordered = sorted(report.alphabet, key=lambda entry: -entry.count)
    shown = "  ".join(f"{_(entry.label)} {number(entry.count, ',')}" for entry in ordered[:SHOWN_CHARACTERS])
    say(_("alphabet, most frequent first: {characters}", characters=shown))
    if more := max(0, len(ordered) - SHOWN_CHARACTERS):
        say(ngettext("… and {n} more", "… and {n} more", more, n=more))
    if report.rare:
        rare = ", ".join(f"{_(entry.label)} {entry.code_point} ×{entry.count}" for entry in report.rare[:SHOWN_RARE])
        say(_("rare: {characters}", characters=rare) + (" …" if len(report.rare) > SHOWN_RARE else ""))
    say()
    screen.print(table(_("N-gram baselines"), ("", _("nats per token")), ngram_rows(surveyed.baselines)))
    for note in report.notes:
        say(_("note: {text}", text=_(note)))
    for problem in report.problems:
        say(_("problem: {text}", text=_(problem)))
    if not report.problems:
        say(_("no problems found"))
    for line in surveyed.advice:
        say(_(line))


def print_count(counted: "ModelCount") -> None:
    """Print every tensor with its formula, the total, operations and bytes."""
    from vitral.report.model import cost_rows

    rows = [
        (row.name, _(row.part), "×".join(str(size) for size in row.shape), row.formula, number(row.count, ","))
        for row in counted.rows
    ]
    columns = (_("name"), _("part"), _("shape"), _("formula"), _("parameters"))
    total = (_("total"), "", "", "", number(counted.cost.parameters, ","))
    console().print(table(counted.title, columns, [*rows, total], words=4))
    console().print(table(_("Operations and bytes (float32)"), ("", "", _("how counted")), cost_rows(counted), words=3))
    for line in counted.advice:
        say(_(line))


def print_forecast(forecast: "Forecast") -> None:
    """Print what is forecast, how it is counted, and notes."""
    from vitral.report.forecast import forecast_rows, forecast_title

    rows = forecast_rows(forecast)
    console().print(table(forecast_title(forecast), ("", "", _("how counted")), rows, words=3))
    for note in forecast.notes:
        say(_("note: {text}", text=_(note)))


def print_comparison(found: "RunComparison") -> None:
    """Print the tables, the sentences and the samples."""
    from vitral.report.relations import OVER_THE_TEXT, relation_text
    from vitral.report.side_by_side import configuration_table, lacking_samples, relation_table, varied_table

    print_data(varied_table(found))
    for one in found.relations:
        say(relation_text(one))
    if any(one.difference for one in found.relations):
        say(_(OVER_THE_TEXT))
    say()
    print_data(relation_table(found))
    if found.changed:
        print_data(configuration_table(found))
    for run in found.runs:
        if run.sample is not None:
            say(f"--- {run.name}")
            say(run.sample)
    for line in lacking_samples(found):
        say(line)
    for line in found.notes:
        say(_(line))
