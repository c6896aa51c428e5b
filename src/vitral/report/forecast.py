"""The text and the page of a forecast."""

from vitral.core.language import N_, _, number
from vitral.forecast.forecasting import Forecast, Range
from vitral.report.html import page
from vitral.report.model import size_of
from vitral.report.notebook import page_of, text_of
from vitral.report.plain import plain_text
from vitral.report.sections import Listing, Section
from vitral.report.tables import Column, Table

COLUMNS = (
    Column("quantity", N_("quantity"), _, is_prose=True),
    Column("unit", N_("unit"), _, is_prose=True),
    Column("low", N_("least"), lambda value: number(value, ".4g")),
    Column("high", N_("most"), lambda value: number(value, ".4g")),
)


def forecast_table(forecast: Forecast) -> Table:
    """The quantities, in a form to be written."""
    places = {**vars(forecast), "accelerator": forecast.accelerator.name}
    title = _("Forecast for {name}: {parameters:,} parameters on {ranks} × {accelerator}", **places)
    return Table(title, COLUMNS, forecast.records())


def forecast_sections(forecast: Forecast) -> list[Section]:
    """The quantities for people, with how each is counted, and notes."""
    there = _("of {there}: it fits") if forecast.fits else _("of {there}: it does not fit")
    per_step = _("on all together; a step of {tokens:,} tokens", tokens=forecast.tokens_per_step)
    passes = _("forward, backward and the optimizer's step")
    rows = (
        (_("memory of one"), size_of(forecast.memory), there.format(there=size_of(int(forecast.accelerator.memory)))),
        (_("operations per token"), f"{number(forecast.flops_per_token, '.3g')} FLOPs", passes),
        (_("tokens per second"), _range(forecast.tokens_per_second, ",.0f"), per_step),
        (_("hours"), _range(forecast.hours, ".3g"), _("for {tokens:,} tokens", tokens=forecast.tokens)),
    )
    columns = ("", "", _("how counted"))
    return [Table(forecast_table(forecast).caption, columns, rows, prose=(1, 2)), Listing(forecast.notes)]


def _range(found: Range | None, spec: str) -> str:
    return "?" if found is None else _("{low} to {high}", low=number(found[0], spec), high=number(found[1], spec))


@text_of.register
def _forecast_text(forecast: Forecast) -> str:
    return plain_text("", forecast_sections(forecast)).lstrip()


@page_of.register
def _forecast_page(forecast: Forecast) -> str:
    return page(_("Forecast"), forecast_sections(forecast))
